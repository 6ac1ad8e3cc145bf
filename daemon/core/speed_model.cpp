#include "daemon/core/speed_model.h"

#include <algorithm>
#include <cmath>

namespace rumbo {
namespace {

double Assumption(const EngineCatalog& catalog, const char* name, double fallback) {
  const auto it = catalog.assumptions.find(name);
  return it == catalog.assumptions.end() ? fallback : it->second;
}

bool Has(const std::vector<std::string>& list, const char* word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// Operations per second of `device` at the row's number format, with where the number came from.
struct Peak {
  double rate = 0;
  bool assumed = false;
};

int ThreadsOf(const SpeedInput& in, const Device& device) {
  return in.threads > 0 ? static_cast<int>(in.threads)
                        : device.threads_allowed.value_or(device.cores_physical.value_or(1));
}

Peak CpuPeak(const SpeedInput& in, const Device& device, const SpeedRow& row) {
  const double clock = Assumption(*in.catalog, "cpu_clock_hz", 3e9);
  double lanes = 8;  // 128-bit multiply-add: 4 lanes, 2 operations
  if (Has(device.isa, "avx2")) lanes = 32;
  if (Has(device.isa, "avx512f")) lanes = 64;
  if (row.rate == "bf16" && Has(device.isa, "avx512_bf16")) lanes = 128;
  if (row.rate == "int8" && Has(device.isa, "avx512_vnni")) lanes = 256;
  const int threads = ThreadsOf(in, device);
  const int cores = std::max(1, std::min(threads, device.cores_physical.value_or(threads)));
  return {clock * lanes * cores, true};
}

Peak PeakOf(const SpeedInput& in, const Device& device, const SpeedRow& row, double bandwidth) {
  const Sourced<double>* wanted = &device.fp16_flops;
  if (row.rate == "fp32") wanted = &device.fp32_flops;
  if (row.rate == "bf16") wanted = &device.bf16_flops;
  if (row.rate == "fp8") wanted = &device.fp8_flops;
  if (row.rate == "int8") wanted = &device.int8_ops;
  for (const Sourced<double>* peak : {wanted, &device.fp16_flops, &device.bf16_flops}) {
    if (peak->value && *peak->value > 0) return {*peak->value, false};
  }
  if (device.kind == DeviceKind::kCpu) return CpuPeak(in, device, row);
  if (device.fp32_flops.value && *device.fp32_flops.value > 0) return {2 * *device.fp32_flops.value, true};
  return {bandwidth * Assumption(*in.catalog, "gpu_fp16_per_bandwidth", 60), true};
}

double D(uint64_t n) { return static_cast<double>(n); }

// Share of the experts that `tokens` tokens of one step touch.
double ExpertShare(const ModelDescriptor& model, double tokens) {
  if (model.experts == 0) return 0;
  const double one = std::min(1.0, D(model.experts_used) / D(model.experts));
  return 1 - std::pow(1 - one, tokens);
}

// Weights and cache that a step touches, over all layers of the main stack.
struct StepWork {
  double dense_bytes = 0, expert_bytes = 0, output_bytes = 0, kv_bytes_per_token = 0, draft_bytes = 0;
  double expert_layers = 0, layers = 0, mixers = 0;
};

StepWork WorkOf(const SpeedInput& in, double context) {
  StepWork w;
  w.output_bytes = D(in.model->output_bytes > 0 ? in.model->output_bytes : in.model->tied_bytes());
  for (const LayerDescriptor& layer : in.model->layers) {
    if (layer.mtp) {
      w.draft_bytes += D(layer.attention_bytes) + D(layer.dense_ffn_bytes) +
                       D(layer.expert_bytes) * ExpertShare(*in.model, 1);
      continue;
    }
    w.layers += 1;
    w.dense_bytes += D(layer.attention_bytes) + D(layer.dense_ffn_bytes);
    w.expert_bytes += D(layer.expert_bytes);
    if (layer.expert_bytes > 0) w.expert_layers += 1;
    if (layer.mixer == "linear" || layer.mixer == "scan") w.mixers += 1;
    const double seen = layer.window > 0 ? std::min(context, D(layer.window)) : context;
    const Bytes k = CacheBytes(in.shape.type_k, SaturatingMul(layer.kv_heads, layer.key_length)).value_or(0);
    const Bytes v =
        CacheBytes(in.shape.type_v, SaturatingMul(layer.kv_heads, layer.value_length)).value_or(0);
    w.kv_bytes_per_token += seen * (D(k) + D(v)) + 2 * D(layer.recurrent_state_bytes);
  }
  if (w.draft_bytes > 0) w.draft_bytes += w.output_bytes;
  return w;
}

// Seconds of a step of `tokens` tokens of `sequences` sequences on one side.
struct StepSize {
  double tokens = 1, sequences = 1;
  bool prompt = false;
};

struct StepSum {
  double seconds = 0;
  double draft_s = 0;    // one drafted token
  bool assumed = false;  // a peak rate was assumed
  double uncertainty = 0;
};

bool AddSide(const SpeedInput& in, const SpeedSide& side, const StepWork& work, const StepSize& size,
             StepSum& sum) {
  const SpeedRow* row = FindSpeedRow(*in.catalog, in.engine->name, side.host ? "cpu" : in.backend, in.build,
                                     in.model->quantization, *side.device);
  const double bandwidth = side.device->bandwidth_bytes_s.value.value_or(side.bandwidth_bytes_s);
  if (row == nullptr || !(bandwidth > 0)) return false;
  const double reading = bandwidth * (size.prompt ? row->prompt_bandwidth : row->bandwidth_efficiency);
  const double weights =
      work.dense_bytes + work.expert_bytes * ExpertShare(*in.model, size.tokens) + work.output_bytes;
  const double memory =
      weights / reading + size.sequences * work.kv_bytes_per_token / (bandwidth * row->kv_efficiency);
  const Peak peak = PeakOf(in, *side.device, *row, bandwidth);
  const double rate = peak.rate * (size.prompt ? row->compute_efficiency : row->batch_efficiency);
  const double compute = rate > 0 ? 2 * D(in.model->active_parameters) * size.tokens / rate : 0;
  const double threads = side.device->kind == DeviceKind::kCpu ? ThreadsOf(in, *side.device) : 0;
  const double overhead =
      (row->step_overhead_us + work.layers * (row->layer_overhead_us + threads * row->thread_overhead_us) +
       work.expert_layers * row->expert_overhead_us + size.sequences * row->sequence_overhead_us) *
      1e-6;
  const double body = std::max(memory, compute) + (1 - row->overlap) * std::min(memory, compute);
  sum.seconds += side.share * (body + overhead);
  sum.draft_s += side.share * (work.draft_bytes / reading + row->draft_overhead_us * 1e-6);
  sum.assumed = sum.assumed || peak.assumed;
  sum.uncertainty = std::max(sum.uncertainty, row->uncertainty);
  return true;
}

std::optional<StepSum> Step(const SpeedInput& in, const StepSize& size, double context) {
  const StepWork work = WorkOf(in, context);
  StepSum sum;
  for (const SpeedSide& side : in.sides) {
    if (!AddSide(in, side, work, size, sum)) return std::nullopt;
  }
  if (in.sides.size() > 1 && in.link_bytes_s > 0) {
    const double hops = static_cast<double>(in.sides.size() - 1);
    sum.seconds += hops * size.tokens * in.model->embedding_length * 4 / in.link_bytes_s;
  }
  return sum;
}

std::optional<double> PromptSeconds(const SpeedInput& in) {
  double left = in.prompt_tokens, done = 0, seconds = 0;
  for (int steps = 0; left > 0 && steps < 4096; ++steps) {
    const double tokens = std::min<double>(left, std::max(in.shape.ubatch, 1u));
    const auto step = Step(in, {tokens, 1, true}, done + tokens / 2);
    if (!step) return std::nullopt;
    seconds += step->seconds;
    left -= tokens;
    done += tokens;
  }
  const SpeedRow* row = FindSpeedRow(*in.catalog, in.engine->name, in.backend, in.build,
                                     in.model->quantization, *in.sides.front().device);
  if (row == nullptr) return seconds;
  return seconds + (row->prompt_overhead_ms + WorkOf(in, 0).mixers * row->linear_prompt_ms) * 1e-3;
}

}  // namespace

namespace {

// Joules per token where every device's power is known; unknown stays unknown.
void Energy(const SpeedInput& in, Predicted& p) {
  double watts = 0;
  for (const SpeedSide& side : in.sides) {
    if (!side.device->power_watts.value) return;
    watts += *side.device->power_watts.value;
  }
  if (p.aggregate_tok_s && *p.aggregate_tok_s > 0) p.energy_j_per_tok = watts / *p.aggregate_tok_s;
}

}  // namespace

double TokensPerStep(double acceptance, uint32_t drafts) {
  double sum = 1, power = 1;
  for (uint32_t i = 0; i < drafts; ++i) {
    power *= acceptance;
    sum += power;
  }
  return sum;
}

const SpeedRow* FindSpeedRow(const EngineCatalog& catalog, const std::string& engine,
                             const std::string& backend, const std::string& build, const std::string& weights,
                             const Device& device) {
  const SpeedRow* best = nullptr;
  int best_score = -1;
  for (const SpeedRow& row : catalog.speed) {
    if (row.engine != engine || row.backend != backend) continue;
    if (!row.build.empty() && row.build != build) continue;
    if (!row.weights.empty() && !MatchesPattern(row.weights, weights)) continue;
    if (!row.vendor.empty() && row.vendor != device.vendor) continue;
    if (!row.isa.empty() && !Has(device.isa, row.isa.c_str())) continue;
    const int score = (row.build.empty() ? 0 : 8) + (row.weights.empty() ? 0 : 4) +
                      (row.isa.empty() ? 0 : 2) + (row.vendor.empty() ? 0 : 1);
    if (score > best_score) best = &row, best_score = score;
  }
  return best;
}

SpeedEstimate EstimateSpeed(const SpeedInput& in) {
  SpeedEstimate out;
  Predicted& p = out.predicted;
  if (in.sides.empty()) return out;
  const double sessions = std::max(1u, in.sessions);
  const double together = in.engine->batches ? sessions : 1;
  const double context = in.prompt_tokens + in.answer_tokens / 2.0;
  const uint32_t drafts = in.shape.draft_tokens;
  const double acceptance = in.draft_acceptance.value_or(Assumption(*in.catalog, "draft_acceptance", 0.75));
  const auto step = Step(in, {together * (1 + drafts), together, false}, context);
  const auto prompt = PromptSeconds(in);
  if (!step || !prompt) {
    out.assumptions.push_back("no bandwidth or no constants for this combination: its speed is unknown");
    return out;
  }
  const double tokens = TokensPerStep(acceptance, drafts);
  p.aggregate_tok_s = together * tokens / (step->seconds + drafts * step->draft_s);
  p.decode_tok_s = *p.aggregate_tok_s / sessions;
  p.ttft_ms = *prompt * 1e3;
  p.uncertainty = step->uncertainty;
  p.source = "formula";
  Energy(in, p);
  if (step->assumed) out.assumptions.push_back("the peak rate of the device is assumed, not known");
  if (drafts > 0 && !in.draft_acceptance) {
    out.assumptions.push_back("assumes that " + std::to_string(static_cast<int>(acceptance * 100)) +
                              " % of the drafted tokens are accepted");
  }
  return out;
}

}  // namespace rumbo
