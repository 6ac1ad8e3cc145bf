#include "daemon/core/planner_candidate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "daemon/core/memory_model.h"
#include "daemon/core/speed_model.h"

namespace rumbo {
namespace {

constexpr uint32_t kUbatch = 512;
constexpr uint32_t kMinContext = 256;  // per session, when the planner shortens

uint32_t Clamp32(uint64_t value) { return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX)); }

bool In(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

const Device* HostCpu(const Topology& topology) {
  for (const Device& device : topology.devices) {
    if (device.kind == DeviceKind::kCpu && !device.software) return &device;
  }
  return nullptr;
}

// What one trial varies.
struct Trial {
  uint32_t context = 0;
  uint32_t sessions = 1;
  std::string kv_type;
  uint32_t draft_tokens = 0;
  uint32_t offloaded = 0;        // layers + 1: all
  uint32_t experts_on_host = 0;
};

class Builder {
 public:
  Builder(const PlanInputs& in, const PlanOption& option) : in_(in), option_(option) {
    if (option.variant != nullptr) model_ = &option.variant->descriptor;
    for (const Device* device : option.devices) accelerated_ = accelerated_ || device->kind != DeviceKind::kCpu;
  }

  const ModelDescriptor& model() const { return *model_; }
  bool accelerated() const { return accelerated_; }
  bool pooled() const {
    return In(model_->capabilities, "embed") || In(model_->capabilities, "rerank");
  }

  Attempt Build(const Trial& trial) const {
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
    Room room(in_.topology, in_.request.ledger);
    switch (option_.engine->memory) {
      case MemoryModel::kLayered: Layered(trial, room, a); break;
      case MemoryModel::kFixed: Fixed(trial, a); break;
      default: a.why_not = "this kind of engine cannot be planned yet"; a.reason_code = Reason::kNotImplemented;
    }
    if (a.why_not.empty()) Fit(a);
    return a;
  }

 private:
  CacheShape ShapeOf(const Trial& trial) const {
    CacheShape shape;
    shape.sessions = trial.sessions;
    shape.context_total = trial.context;
    shape.ubatch = kUbatch;
    if (pooled()) {
      // Encoders see a whole input in one step.
      shape.ubatch = std::max(kUbatch, std::min<uint32_t>(trial.context / std::max(trial.sessions, 1u), 8192));
    }
    shape.outputs = pooled() ? shape.ubatch
                             : Clamp32(uint64_t{trial.sessions} * (1 + uint64_t{trial.draft_tokens}));
    shape.type_k = shape.type_v = trial.kv_type;
    shape.draft_tokens = trial.draft_tokens;
    return shape;
  }

  void Layered(const Trial& trial, const Room& room, Attempt& a) const {
    const CacheShape shape = ShapeOf(trial);
    Candidate& c = a.candidate;
    LayerPlacement placement;
    if (accelerated_) {
      placement.split = Split(room);
      placement.offloaded = trial.offloaded;
      placement.experts_on_host = trial.experts_on_host;
    }
    const LayeredBytes bytes = LayeredMemory(*model_, shape, placement);
    for (size_t i = 0; i < bytes.devices.size(); ++i) {
      if (!Side(room, *option_.devices[i], *option_.access[i], bytes.devices[i], c)) {
        a.why_not = "the memory of " + option_.devices[i]->name + " is unknown";
        return;
      }
      Reserve(in_.topology, room, *option_.devices[i], *option_.access[i], "engine",
              option_.backend->device_overhead_bytes, c);
    }
    HostSide(bytes.host, c);
    ReserveHost(in_.topology, "engine", option_.backend->host_overhead_bytes, c);
    Settings(trial, shape, placement, c);
    Speed(trial, shape, placement, a);
  }

  std::vector<double> Split(const Room& room) const {
    std::vector<double> free;
    double sum = 0;
    for (size_t i = 0; i < option_.devices.size(); ++i) {
      double here = 0;
      for (const std::string& pool : option_.access[i]->pools) {
        const double bytes = static_cast<double>(
            room.FreeFor(pool, option_.devices[i]->id, option_.backend->name).value_or(0));
        here = option_.access[i]->may_span_pools ? here + bytes : std::max(here, bytes);
      }
      free.push_back(here);
      sum += here;
    }
    for (double& share : free) share = sum > 0 ? share / sum : 1.0 / static_cast<double>(free.size());
    return free;
  }

  bool Side(const Room& room, const Device& device, const BackendSupport& access, const SideBytes& bytes,
            Candidate& c) const {
    bool known = true;
    const auto reserve = [&](const char* what, Bytes n) {
      known = Reserve(in_.topology, room, device, access, what, n, c) && known;
    };
    reserve("weights", bytes.weights);
    reserve("kv_cache", bytes.kv_cache);
    reserve("recurrent_state", bytes.recurrent_state);
    reserve("compute", bytes.compute);
    reserve("draft", bytes.draft);
    return known;
  }

  void HostSide(const SideBytes& bytes, Candidate& c) const {
    ReserveHost(in_.topology, "weights", bytes.weights, c);
    ReserveHost(in_.topology, "kv_cache", bytes.kv_cache, c);
    ReserveHost(in_.topology, "recurrent_state", bytes.recurrent_state, c);
    ReserveHost(in_.topology, "compute", bytes.compute, c);
    ReserveHost(in_.topology, "draft", bytes.draft, c);
  }

  uint32_t Threads() const {
    if (in_.request.overrides.threads) return *in_.request.overrides.threads;
    const Device* cpu = HostCpu(in_.topology);
    if (cpu == nullptr) return 1;
    return static_cast<uint32_t>(std::max(1, cpu->threads_allowed.value_or(cpu->cores_physical.value_or(1))));
  }

  void Settings(const Trial& trial, const CacheShape& shape, const LayerPlacement& placement, Candidate& c) const {
    EngineSettings& s = c.settings;
    const uint32_t cells = CellsPerStream(shape);
    s.sessions = trial.sessions;
    s.context_total = Clamp32(uint64_t{cells} * Streams(shape));
    s.context_per_session = shape.unified ? cells / std::max(trial.sessions, 1u) : cells;
    // Cells are rounded up; a session is promised no more than the model was trained for.
    if (model_->context_trained > 0) s.context_per_session = std::min(*s.context_per_session, model_->context_trained);
    s.threads = s.threads_batch = Threads();
    s.ubatch = shape.ubatch;
    s.batch = std::max({shape.ubatch, shape.outputs, 512u});
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
    if (trial.experts_on_host > 0) s.extra["experts_on_host"] = std::to_string(trial.experts_on_host);
    if (placement.split.size() > 1) s.extra["tensor_split"] = SplitText(placement.split);
    for (const auto& [key, value] : option_.settings) {
      if (key != "mmap") s.extra[key] = value;
    }
  }

  static std::string SplitText(const std::vector<double>& split) {
    std::string text;
    for (const double share : split) {
      char number[16];
      std::snprintf(number, sizeof number, "%.4f", share);
      text += (text.empty() ? "" : ",") + std::string(number);
    }
    return text;
  }

  void Speed(const Trial& trial, const CacheShape& shape, const LayerPlacement& placement, Attempt& a) const {
    SpeedInput speed;
    speed.model = model_;
    speed.catalog = &in_.catalog;
    speed.engine = option_.engine;
    speed.backend = option_.backend->name;
    speed.build = option_.build;
    speed.shape = shape;
    speed.sessions = trial.sessions;
    speed.prompt_tokens = *in_.workload.prompt_tokens;
    speed.answer_tokens = *in_.workload.answer_tokens;
    speed.threads = Threads();
    speed.draft_acceptance = in_.workload.draft_acceptance;
    const double all = static_cast<double>(model_->layers.size()) + 1;
    const double on_device = accelerated_ ? std::min(1.0, placement.offloaded / all) : 1;
    for (size_t i = 0; i < option_.devices.size(); ++i) {
      speed.sides.push_back({option_.devices[i],
                             accelerated_ ? on_device * placement.split[i] : on_device, false});
    }
    const Device* cpu = HostCpu(in_.topology);
    if (accelerated_ && on_device < 1 && cpu != nullptr) speed.sides.push_back({cpu, 1 - on_device, true});
    const SpeedEstimate estimate = EstimateSpeed(speed);
    a.candidate.predicted = estimate.predicted;
    for (const std::string& note : estimate.assumptions) a.candidate.reasons.push_back(note);
    Load(a.candidate);
  }

  void Load(Candidate& c) const {
    const auto disk = in_.catalog.assumptions.find("disk_bytes_s");
    if (disk == in_.catalog.assumptions.end() || disk->second <= 0) return;
    c.predicted.load_s = option_.engine->start_s + static_cast<double>(model_->tensor_bytes) / disk->second;
  }

  void Fixed(const Trial& trial, Attempt& a) const {
    Candidate& c = a.candidate;
    ReserveHost(in_.topology, "engine", option_.engine->fixed_bytes, c);
    c.settings.sessions = trial.sessions;
    c.settings.context_total = trial.context;
    c.settings.context_per_session = std::max(1u, trial.context / std::max(trial.sessions, 1u));
    c.settings.extra.insert(option_.settings.begin(), option_.settings.end());
    c.predicted.load_s = option_.engine->start_s;
    c.predicted.source = "default";
  }

  // As it is, then with the evictions that are needed and no others.
  void Fit(Attempt& a) const {
    const auto shortage_after = [&](const std::vector<const EvictionCandidate*>& gone) {
      Room room(in_.topology, in_.request.ledger);
      for (const EvictionCandidate* instance : gone) room.Release(*instance);
      return room.Take(a.candidate);
    };
    std::vector<const EvictionCandidate*> gone;
    a.shortage = shortage_after(gone);
    for (const EvictionCandidate& instance : in_.request.evictable) {
      if (!a.shortage) break;
      gone.push_back(&instance);
      a.shortage = shortage_after(gone);
    }
    if (a.shortage) return;
    for (size_t i = gone.size(); i-- > 0;) {
      std::vector<const EvictionCandidate*> fewer = gone;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (!shortage_after(fewer)) gone = fewer;
    }
    for (const EvictionCandidate* instance : gone) a.evictions.push_back(instance->instance_id);
  }

  const PlanInputs& in_;
  const PlanOption& option_;
  const ModelDescriptor* model_ = nullptr;
  bool accelerated_ = false;
};

double Score(const PlanInputs& in, const Attempt& a) {
  const Predicted& p = a.candidate.predicted;
  const std::string& objective = in.workload.objective;
  constexpr double kUnknown = 1e12;
  if (objective == "memory") {
    double bytes = 0;
    for (const MemoryItem& item : a.candidate.memory) bytes += static_cast<double>(item.bytes);
    return bytes;
  }
  if (objective == "energy") return p.energy_j_per_tok.value_or(kUnknown);
  if (objective == "throughput") return p.aggregate_tok_s && *p.aggregate_tok_s > 0 ? 1 / *p.aggregate_tok_s : kUnknown;
  if (!p.ttft_ms || !p.decode_tok_s || *p.decode_tok_s <= 0) return kUnknown;
  return *p.ttft_ms / 1e3 + *in.workload.answer_tokens / *p.decode_tok_s;
}

// Less is better: first what fits, then the score, then fewer evictions.
bool Better(const Attempt& a, const Attempt& b) {
  const auto rank = [](const Attempt& x) { return !x.why_not.empty() ? 2 : x.shortage ? 1 : 0; };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) == 1 && a.shortage->missing != b.shortage->missing) return a.shortage->missing < b.shortage->missing;
  if (a.score != b.score) return a.score < b.score;
  return a.evictions.size() < b.evictions.size();
}

class Search {
 public:
  Search(const PlanInputs& in, const PlanOption& option) : in_(in), option_(option), builder_(in, option) {}

  Attempt At(uint32_t context, uint32_t sessions) {
    Trial trial;
    trial.context = context;
    trial.sessions = std::min(sessions, option_.engine->max_sessions);
    if (option_.engine->memory == MemoryModel::kFixed) return Scored(trial);
    const std::string refused = CacheTypes(trial);
    if (!refused.empty()) {
      Attempt a;
      a.why_not = refused;
      a.reason_code = Reason::kCapabilityMissing;
      return a;
    }
    Attempt best = Drafts(trial);
    // A smaller cache only where the default one does not fit and nobody chose one.
    for (size_t i = 1; best.shortage && in_.request.overrides.kv_type.empty() && i < types_.size() && i < 2; ++i) {
      trial.kv_type = types_[i];
      Attempt smaller = Drafts(trial);
      smaller.candidate.reasons.push_back("the " + types_[0] + " cache does not fit, the " + types_[i] + " cache does");
      if (!smaller.shortage) best = std::move(smaller);
    }
    trial.kv_type = types_[0];
    if (best.shortage) {
      Attempt partial = Partial(trial);
      if (Better(partial, best)) best = std::move(partial);
    }
    return best;
  }

 private:
  Attempt Scored(const Trial& trial) {
    Attempt a = builder_.Build(trial);
    a.score = Score(in_, a);
    return a;
  }

  // Fills types_ and the trial's default; or says why none works.
  std::string CacheTypes(Trial& trial) {
    const std::vector<std::string>& offered = option_.backend->kv_types;
    const std::string& wanted = in_.request.overrides.kv_type;
    for (const std::string& type : offered) {
      if (!wanted.empty() && type != wanted) continue;
      if (Fits(type)) types_.push_back(type);
    }
    if (types_.empty()) {
      return wanted.empty() ? "no cache type fits the heads of this model"
                            : "a " + wanted + " cache does not work with this engine and model";
    }
    trial.kv_type = types_[0];
    return "";
  }

  bool Fits(const std::string& type) const {
    const uint32_t block = CacheBlock(type);
    if (block == 0) return false;
    for (const LayerDescriptor& layer : builder_.model().layers) {
      if (layer.kv_heads == 0) continue;
      if (layer.key_length % block != 0 || layer.value_length % block != 0) return false;
    }
    return true;
  }

  Attempt Drafts(Trial trial) {
    const auto layers = static_cast<uint32_t>(builder_.model().layers.size());
    trial.offloaded = in_.request.overrides.gpu_layers
        ? std::min(*in_.request.overrides.gpu_layers, layers + 1) : layers + 1;
    Attempt best = Scored(trial);
    if (builder_.model().mtp_layers == 0 || !option_.engine->speculative) return best;
    for (uint32_t drafts = 1; drafts <= option_.engine->max_draft_tokens; ++drafts) {
      trial.draft_tokens = drafts;
      Attempt a = Scored(trial);
      if (Better(a, best)) best = std::move(a);
    }
    return best;
  }

  // Part of the layers, or the routed experts, in host memory.
  Attempt Partial(Trial trial) {
    const auto layers = static_cast<uint32_t>(builder_.model().layers.size());
    if (!builder_.accelerated() || !option_.backend->partial_offload || in_.request.overrides.gpu_layers) {
      Attempt none;
      none.why_not = "no part of it may stay in host memory";
      return none;
    }
    if (builder_.model().experts > 0) {
      trial.offloaded = layers + 1;
      Attempt a = Smallest(0, layers, [&](uint32_t n) {
        trial.experts_on_host = n;
        return Scored(trial);
      });
      if (!a.shortage) return a;
      trial.experts_on_host = layers;
    }
    return Smallest(0, layers, [&](uint32_t n) {
      trial.offloaded = layers - n;
      return Scored(trial);
    });
  }

  // The attempt for the smallest n in [low, high] that fits, where fitting grows with n; the last one where none does.
  template <typename Try>
  static Attempt Smallest(uint32_t low, uint32_t high, const Try& attempt) {
    Attempt best = attempt(high);
    if (best.shortage || !best.why_not.empty()) return best;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      Attempt a = attempt(middle);
      if (a.shortage) {
        low = middle + 1;
      } else {
        high = middle;
        best = std::move(a);
      }
    }
    return best;
  }

  const PlanInputs& in_;
  const PlanOption& option_;
  Builder builder_;
  std::vector<std::string> types_;
};

}  // namespace

Attempt TryOptionAt(const PlanInputs& in, const PlanOption& option, uint32_t context, uint32_t sessions) {
  return Search(in, option).At(context, sessions);
}

Attempt TryOption(const PlanInputs& in, const PlanOption& option) {
  const uint32_t sessions = *in.workload.sessions;
  Attempt best = TryOptionAt(in, option, *in.workload.context, sessions);
  if (!best.shortage || in.request.workload.context) return best;
  const uint32_t least = std::max(kMinContext, in.request.contract.min_context.value_or(0));
  for (uint32_t each = *in.workload.context / sessions / 2; each >= least; each /= 2) {
    Attempt a = TryOptionAt(in, option, each * sessions, sessions);
    if (a.shortage) continue;
    a.candidate.reasons.push_back("the default context does not fit: shortened to " + std::to_string(each) +
                                  " tokens per session");
    return a;
  }
  return best;
}

}  // namespace rumbo
