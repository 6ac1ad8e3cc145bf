#include "daemon/core/planner_builder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rumbo {
namespace {

constexpr uint32_t kUbatch = 512;
constexpr uint32_t kBatch = 512;  // tokens of one step of all sessions, where nothing else was found better
constexpr uint32_t kVectorUbatch =
    256;                               // of models that read in parts: rows of the whole vocabulary are wide
constexpr uint32_t kPagedStep = 2048;  // tokens of one step of a paged server

uint32_t Clamp32(uint64_t value) { return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX)); }

bool In(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string SplitText(const std::vector<double>& split) {
  std::string text;
  for (const double share : split) {
    char number[16];
    std::snprintf(number, sizeof number, "%.4f", share);
    text += (text.empty() ? "" : ",") + std::string(number);
  }
  return text;
}

}  // namespace

CandidateBuilder::CandidateBuilder(const PlanInputs& in, const PlanOption& option)
    : in_(in),
      option_(option),
      room_(in.topology, in.request.ledger),
      key_(KeyOf(option)),
      corrections_(in.request.assume_installed ? Corrections() : Corrections(in.calibration, key_)) {
  if (option.variant != nullptr) model_ = &option.variant->descriptor;
  for (const Device* device : option.devices) {
    accelerated_ = accelerated_ || device->kind != DeviceKind::kCpu || device->software;
  }
  for (const Device& device : in.topology.devices) {
    if (host_ == nullptr && device.kind == DeviceKind::kCpu && !device.software) host_ = &device;
  }
}

bool CandidateBuilder::pooled() const {
  if (!in_.request.overrides.pooling.empty()) return model_ != nullptr;
  return model_ != nullptr && (In(model_->capabilities, "embed") || In(model_->capabilities, "rerank"));
}

Attempt CandidateBuilder::Build(const Trial& trial, bool fit_only) const {
  Attempt a;
  a.workload = in_.workload;
  a.workload.context = trial.context;
  a.workload.sessions = trial.sessions;
  Candidate& c = a.candidate;
  if (option_.variant != nullptr) c.variant = option_.variant->id;
  c.engine = option_.engine->name;
  c.engine_version = option_.version;
  c.engine_build = option_.build;
  c.backend = option_.backend->name;
  for (const Device* device : option_.devices) c.devices.push_back(device->id);
  c.maturity = option_.maturity;
  c.environment = option_.environment;
  c.key = key_;
  c.knobs = trial.knobs;
  switch (option_.engine->memory) {
    case MemoryModel::kLayered:
      Layered(trial, fit_only, a);
      break;
    case MemoryModel::kPaged:
      Paged(trial, fit_only, a);
      break;
    case MemoryModel::kWhole:
      Whole(trial, fit_only, a);
      break;
    case MemoryModel::kFixed:
      Fixed(trial, a);
      break;
  }
  if (!a.why_not.empty()) return a;
  Correct(trial, a);
  Fit(a);
  if (!fit_only) HostCache(a);
  return a;
}

// Room for states of conversations that leave the KV cache: as much as the whole cache holds, but only of
// memory that nothing else needs, and never for a plan that stops others or is to be small.
void CandidateBuilder::HostCache(Attempt& a) const {
  Candidate& c = a.candidate;
  if (option_.engine->host_cache_most == 0 || pooled()) return;
  c.settings.host_cache_bytes = 0;
  const MemoryPool* pool = SystemPool(in_.topology);
  if (pool == nullptr || a.shortage || !a.evictions.empty() || in_.workload.objective == "memory") return;
  Bytes states = 0, taken = 0;
  for (const MemoryItem& item : c.memory) {
    if (item.what == "kv_cache" || item.what == "recurrent_state") states = SaturatingAdd(states, item.bytes);
    if (item.pool == pool->id) taken = SaturatingAdd(taken, item.bytes);
  }
  const auto free = room_.FreeFor(pool->id, "", "cpu");
  if (!free) return;
  const Bytes bytes = std::min({states, option_.engine->host_cache_most, SaturatingSub(*free, taken) / 4});
  if (bytes < kMiB) return;
  Candidate with = c;
  ReserveHost(in_.topology, "host_cache", bytes, with);
  if (room_.Lacks(with)) return;
  c = std::move(with);
  c.settings.host_cache_bytes = bytes;
  // What leaves the memory of the host goes on to the disk.
  if (option_.engine->disk_cache && in_.request.disk_cache > 0)
    c.settings.extra["disk_cache_bytes"] = std::to_string(in_.request.disk_cache);
}

void CandidateBuilder::ReserveDraft(const Trial& trial, Candidate& c) const {
  const ModelDescriptor* draft = in_.request.draft;
  if (draft == nullptr || trial.draft_tokens == 0) return;
  CacheShape shape = ShapeOf(trial);
  shape.draft_tokens = 0;
  shape.type_k = shape.type_v = "f16";
  shape.outputs = trial.sessions + 1;
  ReserveHost(in_.topology, "draft", LayeredMemory(*draft, shape, {}).host.total(), c);
}

CacheShape CandidateBuilder::ShapeOf(const Trial& trial) const {
  CacheShape shape;
  shape.sessions = trial.sessions;
  shape.context_total = trial.context;
  shape.ubatch = kUbatch;
  if (trial.knobs.ubatch) shape.ubatch = *trial.knobs.ubatch;
  // Encoders see an input whole; others read it in parts, every token with its row of the output.
  if (pooled() && encoder()) {
    shape.ubatch = std::max(kUbatch, std::min<uint32_t>(trial.context / std::max(trial.sessions, 1u), 8192));
  } else if (pooled()) {
    shape.ubatch = kVectorUbatch;
    shape.unified = true;
  }
  shape.outputs =
      pooled() ? shape.ubatch : Clamp32(uint64_t{trial.sessions} * (1 + uint64_t{trial.draft_tokens}));
  shape.type_k = shape.type_v = trial.kv_type;
  shape.draft_tokens = trial.draft_tokens;
  shape.mapped = option_.settings.count("mmap") > 0 && option_.settings.at("mmap") == "true";
  return shape;
}

bool CandidateBuilder::encoder() const {
  return std::all_of(model_->layers.begin(), model_->layers.end(),
                     [](const LayerDescriptor& layer) { return layer.kv_heads == 0 && !layer.recurrent; });
}

const StepBuffers& CandidateBuilder::BuffersOf(const Trial& trial, const CacheShape& shape) const {
  const auto same = [&](const Trial& t) {
    return t.context == trial.context && t.sessions == trial.sessions && t.kv_type == trial.kv_type &&
           t.draft_tokens == trial.draft_tokens && t.knobs.ubatch == trial.knobs.ubatch;
  };
  if (!buffers_ || !same(buffers_->first)) buffers_ = {trial, StepBuffersOf(*model_, shape)};
  return buffers_->second;
}

void CandidateBuilder::Layered(const Trial& trial, bool fit_only, Attempt& a) const {
  const CacheShape shape = ShapeOf(trial);
  Candidate& c = a.candidate;
  LayerPlacement placement;
  if (accelerated_) {
    placement.split = Split();
    placement.offloaded = trial.offloaded;
    placement.experts_on_host = trial.experts_on_host;
  }
  const LayeredBytes bytes = LayeredMemory(*model_, shape, placement, BuffersOf(trial, shape));
  for (size_t i = 0; i < bytes.devices.size(); ++i) {
    if (!ReserveSide(i, bytes.devices[i], a)) return;
  }
  ReserveOnHost(bytes.host, c);
  ReserveDraft(trial, c);
  ReserveHost(in_.topology, "engine", option_.backend->host_overhead_bytes, c);
  if (fit_only) return;
  LayeredSettings(trial, shape, placement, c);
  const double all = static_cast<double>(model_->layers.size()) + 1;
  const double on_device = accelerated_ ? std::min(1.0, placement.offloaded / all) : 1;
  std::vector<SpeedSide> sides;
  for (size_t i = 0; i < option_.devices.size(); ++i) {
    sides.push_back({option_.devices[i], accelerated_ ? on_device * placement.split[i] : 1, false});
  }
  // Layers whose experts stay behind run their feed-forward part there.
  const double experts = all > 0 ? 0.8 * trial.experts_on_host / all : 0;
  const double behind = std::max(1 - on_device, experts);
  if (accelerated_ && behind > 0 && host_ != nullptr) {
    for (SpeedSide& side : sides) side.share *= (1 - behind) / std::max(on_device, 1e-9);
    sides.push_back({host_, behind, true});
  }
  Speed(trial, shape, sides, a);
}

void CandidateBuilder::Paged(const Trial& trial, bool fit_only, Attempt& a) const {
  Candidate& c = a.candidate;
  const CacheShape shape = ShapeOf(trial);
  const std::vector<SideBytes> bytes = PagedMemory(*model_, shape, kPagedStep, option_.devices.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!ReserveSide(i, bytes[i], a)) return;
  }
  ReserveHost(in_.topology, "engine", option_.backend->host_overhead_bytes, c);
  if (fit_only) return;
  CommonSettings(trial, c);
  c.settings.context_per_session = std::max(1u, trial.context / std::max(trial.sessions, 1u));
  c.settings.context_total = trial.context;
  c.settings.kv_type_k = c.settings.kv_type_v = trial.kv_type;
  c.settings.batch = kPagedStep;
  c.settings.draft_tokens = trial.draft_tokens;
  c.settings.extra["kv_bytes"] = std::to_string(bytes.front().kv_cache);
  if (option_.devices.size() > 1)
    c.settings.extra["tensor_parallel"] = std::to_string(option_.devices.size());
  std::vector<SpeedSide> sides;
  // All devices work on every layer at once: together they are one device that is so many times as fast, so
  // each carries its share of the time.
  const double share = 1.0 / static_cast<double>(option_.devices.size());
  for (const Device* device : option_.devices) sides.push_back({device, share * share, false});
  Speed(trial, shape, sides, a);
}

void CandidateBuilder::Whole(const Trial& trial, bool fit_only, Attempt& a) const {
  Candidate& c = a.candidate;
  SideBytes bytes;
  bytes.weights = model_->tensor_bytes;
  const double workspace = static_cast<double>(model_->tensor_bytes) * option_.engine->workspace_factor;
  bytes.compute = workspace < 9e18 ? static_cast<Bytes>(workspace) : UINT64_MAX;
  if (accelerated_) {
    if (!ReserveSide(0, bytes, a)) return;
  } else {
    ReserveOnHost(bytes, c);
  }
  ReserveHost(in_.topology, "engine", option_.backend->host_overhead_bytes, c);
  if (fit_only) return;
  CommonSettings(trial, c);
  a.candidate.reasons.push_back("no speed is predicted for this kind of model");
  Load(c);
}

void CandidateBuilder::Fixed(const Trial& trial, Attempt& a) const {
  Candidate& c = a.candidate;
  ReserveHost(in_.topology, "engine", option_.engine->fixed_bytes, c);
  CommonSettings(trial, c);
  c.settings.context_total = trial.context;
  c.settings.context_per_session = std::max(1u, trial.context / std::max(trial.sessions, 1u));
  c.predicted.load_s = option_.engine->start_s;
  c.predicted.source = "default";
}

// Shares of the layers by what is free on each device.
std::vector<double> CandidateBuilder::Split() const {
  std::vector<double> free;
  double sum = 0;
  for (size_t i = 0; i < option_.devices.size(); ++i) {
    double here = 0;
    const BackendSupport& access = *option_.access[i];
    for (const std::string& pool : access.pools.empty() ? option_.devices[i]->pools : access.pools) {
      const double bytes =
          static_cast<double>(room_.FreeFor(pool, option_.devices[i]->id, option_.backend->name).value_or(0));
      here = access.may_span_pools ? here + bytes : std::max(here, bytes);
    }
    free.push_back(here);
    sum += here;
  }
  for (double& share : free) share = sum > 0 ? share / sum : 1.0 / static_cast<double>(free.size());
  return free;
}

bool CandidateBuilder::ReserveSide(size_t device, const SideBytes& bytes, Attempt& a) const {
  const std::pair<const char*, Bytes> items[] = {{"weights", bytes.weights},
                                                 {"kv_cache", bytes.kv_cache},
                                                 {"recurrent_state", bytes.recurrent_state},
                                                 {"compute", bytes.compute},
                                                 {"draft", bytes.draft},
                                                 {"engine", option_.backend->device_overhead_bytes}};
  for (const auto& [what, n] : items) {
    if (Reserve(in_.topology, room_, *option_.devices[device], *option_.access[device], what, n, a.candidate))
      continue;
    a.why_not = "the memory of " + option_.devices[device]->name + " is unknown";
    return false;
  }
  return true;
}

void CandidateBuilder::ReserveOnHost(const SideBytes& bytes, Candidate& c) const {
  ReserveHost(in_.topology, "weights", bytes.weights, c);
  ReserveHost(in_.topology, "kv_cache", bytes.kv_cache, c);
  ReserveHost(in_.topology, "recurrent_state", bytes.recurrent_state, c);
  ReserveHost(in_.topology, "compute", bytes.compute, c);
  ReserveHost(in_.topology, "draft", bytes.draft, c);
}

uint32_t CandidateBuilder::Threads(const Trial& trial) const {
  if (in_.request.overrides.threads) return *in_.request.overrides.threads;
  if (trial.knobs.threads) return *trial.knobs.threads;
  if (host_ == nullptr) return 1;
  // A second thread on a core waits for the first one's vector units.
  const int allowed = host_->threads_allowed.value_or(host_->cores_physical.value_or(1));
  return static_cast<uint32_t>(std::max(1, std::min(allowed, host_->cores_physical.value_or(allowed))));
}

void CandidateBuilder::CommonSettings(const Trial& trial, Candidate& c) const {
  c.settings.sessions = trial.sessions;
  // What has a field of its own is not an extra.
  for (const auto& [key, value] : option_.settings) {
    if (key != "mmap" && key != "draft_tokens" && key != "kv_type") c.settings.extra[key] = value;
  }
  if (option_.backend->exclusive_device) c.settings.extra["exclusive_device"] = "true";
}

void CandidateBuilder::LayeredSettings(const Trial& trial, const CacheShape& shape,
                                       const LayerPlacement& placement, Candidate& c) const {
  CommonSettings(trial, c);
  EngineSettings& s = c.settings;
  const uint32_t cells = CellsPerStream(shape);
  s.context_total = Clamp32(uint64_t{cells} * Streams(shape));
  s.context_per_session = shape.unified ? cells / std::max(trial.sessions, 1u) : cells;
  // Cells are rounded up; a session is promised no more than the model was trained for.
  if (model_->context_trained > 0)
    s.context_per_session = std::min(*s.context_per_session, model_->context_trained);
  s.threads = s.threads_batch = Threads(trial);
  s.ubatch = shape.ubatch;
  s.batch = std::max({shape.ubatch, shape.outputs, trial.knobs.batch.value_or(kBatch)});
  s.gpu_layers = accelerated_ ? placement.offloaded : 0;
  s.kv_type_k = shape.type_k;
  s.kv_type_v = shape.type_v;
  s.flash_attention = shape.flash_attention ? "on" : "off";
  s.mmap = option_.settings.count("mmap") == 0 || option_.settings.at("mmap") == "true";
  s.kv_unified = shape.unified;
  s.swa_full = shape.full_windows;
  s.draft_tokens = trial.draft_tokens;
  s.host_cache_bytes = 0;
  s.poll = 50;
  s.extra["outputs"] = std::to_string(shape.outputs);
  // Nobody asked for guesses: an engine that cannot make them for this model runs it without.
  if (trial.draft_tokens > 0 && !in_.request.overrides.draft_tokens && in_.request.draft == nullptr)
    s.extra["draft_optional"] = "1";
  if (in_.request.draft != nullptr && trial.draft_tokens > 0)
    s.extra["draft_model"] = in_.request.overrides.draft_model;
  const std::string& pooling = in_.request.overrides.pooling;
  if (!pooling.empty()) {
    s.extra["pooling"] = pooling;
  } else if (pooled() && !model_->pooling.empty() && model_->pooling != "none") {
    s.extra["pooling"] = model_->pooling;
  }
  if (trial.experts_on_host > 0) s.extra["experts_on_host"] = std::to_string(trial.experts_on_host);
  if (placement.split.size() > 1) s.extra["tensor_split"] = SplitText(placement.split);
}

void CandidateBuilder::Speed(const Trial& trial, const CacheShape& shape, const std::vector<SpeedSide>& sides,
                             Attempt& a) const {
  SpeedInput speed;
  speed.model = model_;
  speed.catalog = &in_.catalog;
  speed.engine = option_.engine;
  speed.backend = option_.backend->name;
  speed.build = option_.build;
  speed.shape = shape;
  speed.sides = sides;
  for (SpeedSide& side : speed.sides) {
    // A device that shares the host's memory shares its bandwidth.
    if (side.device->bandwidth_bytes_s.value || side.device->memory_kind == MemoryKind::kDiscrete ||
        host_ == nullptr)
      continue;
    side.bandwidth_bytes_s = host_->bandwidth_bytes_s.value.value_or(0);
    if (side.bandwidth_bytes_s > 0)
      a.candidate.reasons.push_back("the bandwidth of " + side.device->name +
                                    " is unknown: the host's is taken, whose memory it shares");
  }
  speed.sessions = trial.sessions;
  speed.prompt_tokens = *in_.workload.prompt_tokens;
  speed.answer_tokens = pooled() ? 0 : *in_.workload.answer_tokens;
  speed.threads = Threads(trial);
  speed.draft_acceptance = in_.workload.draft_acceptance;
  for (const Device* device : option_.devices)
    speed.link_bytes_s = device->link_bytes_s.value.value_or(speed.link_bytes_s);
  const SpeedEstimate estimate = EstimateSpeed(speed);
  a.candidate.predicted = estimate.predicted;
  if (pooled()) a.candidate.predicted.decode_tok_s = a.candidate.predicted.aggregate_tok_s = std::nullopt;
  for (const std::string& note : estimate.assumptions) a.candidate.reasons.push_back(note);
  Load(a.candidate);
}

void CandidateBuilder::Load(Candidate& c) const {
  const auto disk = in_.catalog.assumptions.find("disk_bytes_s");
  if (disk == in_.catalog.assumptions.end() || disk->second <= 0) return;
  c.predicted.load_s = option_.engine->start_s + static_cast<double>(model_->tensor_bytes) / disk->second;
}

CalibrationKey KeyOf(const PlanOption& option) {
  CalibrationKey key;
  key.engine = option.engine->name;
  key.engine_version = option.version;
  key.engine_build = option.build;
  key.backend = option.backend->name;
  for (size_t i = 0; i < option.devices.size(); ++i) {
    key.device += (i > 0 ? "+" : "") + option.devices[i]->name;
    key.driver_version +=
        (i > 0 ? "+" : "") +
        (option.access[i]->version.empty() ? option.devices[i]->driver_version : option.access[i]->version);
  }
  if (option.variant != nullptr) {
    key.model_sha256 = option.variant->sha256;
    key.quantization = option.variant->descriptor.quantization;
  }
  return key;
}

// What was measured on this machine, applied to this machine only.
void CandidateBuilder::Correct(const Trial& trial, Attempt& a) const {
  Candidate& c = a.candidate;
  c.uncorrected = c.predicted;
  c.uncorrected_memory = c.memory;
  a.loaded_ttft_ms = c.predicted.ttft_ms;
  if (corrections_.empty()) return;
  for (MemoryItem& item : c.memory) {
    const auto factor = corrections_.Memory(item.what);
    if (!factor) continue;
    item.source = *factor <= 1 ? "formula; measured here" : "measured here";
    if (*factor <= 1) continue;  // a plan reserves at least what the formula says
    const double bytes = static_cast<double>(item.bytes) * *factor;
    const Bytes corrected = bytes < 9e18 ? static_cast<Bytes>(bytes) : UINT64_MAX;
    for (auto& [limit, sum] : c.limit_bytes) {
      (void)limit;
      sum = SaturatingAdd(sum, corrected - item.bytes);
    }
    item.bytes = corrected;
  }
  const std::string knobs = trial.knobs.Text();
  Predicted& p = c.predicted;
  if (const auto decode = corrections_.Decode(trial.sessions, knobs); decode && p.decode_tok_s) {
    p.decode_tok_s = *p.decode_tok_s * decode->factor;
    p.uncertainty = decode->uncertainty;
    p.source = decode->source;
  }
  if (const auto all = corrections_.Aggregate(trial.sessions, knobs); all && p.aggregate_tok_s) {
    p.aggregate_tok_s = *p.aggregate_tok_s * all->factor;
    if (p.energy_j_per_tok) p.energy_j_per_tok = *p.energy_j_per_tok / all->factor;
  }
  const uint32_t prompt = in_.workload.prompt_tokens.value_or(0);
  if (p.ttft_ms) {
    if (const auto ttft = corrections_.LoadedTtft(trial.sessions, prompt, knobs))
      a.loaded_ttft_ms = *p.ttft_ms * ttft->factor;
    if (const auto ttft = corrections_.Ttft(prompt, knobs)) p.ttft_ms = *p.ttft_ms * ttft->factor;
  }
  if (const auto load = corrections_.Load(); load && p.load_s) p.load_s = *p.load_s * load->factor;
}

// As it is, then with the evictions that are needed and no others.
void CandidateBuilder::Fit(Attempt& a) const {
  const std::vector<EvictionCandidate>& evictable = in_.request.evictable;
  std::vector<char> gone(evictable.size(), 0);
  const auto shortage = [&] {
    Room room = room_;
    for (size_t i = 0; i < gone.size(); ++i) {
      if (gone[i]) room.Release(evictable[i]);
    }
    return room.Lacks(a.candidate);
  };
  a.shortage = room_.Lacks(a.candidate);
  for (size_t i = 0; i < gone.size() && a.shortage; ++i) {
    gone[i] = 1;
    a.shortage = shortage();
  }
  if (a.shortage) return;
  for (size_t i = gone.size(); i-- > 0;) {
    if (!gone[i]) continue;
    gone[i] = 0;
    if (shortage()) gone[i] = 1;
  }
  for (size_t i = 0; i < gone.size(); ++i) {
    if (gone[i]) a.evictions.push_back(evictable[i].instance_id);
  }
}

}  // namespace rumbo
