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

Peak CpuPeak(const SpeedInput& in, const Device& device, const SpeedRow& row) {
  const double clock = Assumption(*in.catalog, "cpu_clock_hz", 3e9);
  double lanes = 8;  // 128-bit multiply-add: 4 lanes, 2 operations
  if (Has(device.isa, "avx2")) lanes = 32;
  if (Has(device.isa, "avx512f")) lanes = 64;
  if (row.rate == "bf16" && Has(device.isa, "avx512_bf16")) lanes = 128;
  if (row.rate == "int8" && Has(device.isa, "avx512_vnni")) lanes = 256;
  const int threads = in.threads > 0 ? static_cast<int>(in.threads)
                                     : device.threads_allowed.value_or(device.cores_physical.value_or(1));
  const int cores = std::max(1, std::min(threads, device.cores_physical.value_or(threads)));
  return {clock * lanes * cores, true};
}

Peak PeakOf(const SpeedInput& in, const Device& device, const SpeedRow& row) {
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
  if (!device.bandwidth_bytes_s.value) return {};
  return {*device.bandwidth_bytes_s.value * Assumption(*in.catalog, "gpu_fp16_per_bandwidth", 60), true};
}

double D(uint64_t n) { return static_cast<double>(n); }

// Weights and cache that a step touches, over all layers of the main stack.
struct StepWork {
  double dense_bytes = 0, expert_bytes = 0, output_bytes = 0, kv_bytes_per_token = 0;
  double expert_layers = 0, layers = 0;
};

StepWork WorkOf(const SpeedInput& in, double context) {
  StepWork w;
  for (const LayerDescriptor& layer : in.model->layers) {
    if (layer.mtp) continue;
    w.layers += 1;
    w.dense_bytes += D(layer.attention_bytes) + D(layer.dense_ffn_bytes);
    w.expert_bytes += D(layer.expert_bytes);
    if (layer.expert_bytes > 0) w.expert_layers += 1;
    const double seen = layer.window > 0 ? std::min(context, D(layer.window)) : context;
    const Bytes k = CacheBytes(in.shape.type_k, SaturatingMul(layer.kv_heads, layer.key_length)).value_or(0);
    const Bytes v = CacheBytes(in.shape.type_v, SaturatingMul(layer.kv_heads, layer.value_length)).value_or(0);
    w.kv_bytes_per_token += seen * (D(k) + D(v)) + 2 * D(layer.recurrent_state_bytes);
  }
  w.output_bytes = D(in.model->output_bytes > 0 ? in.model->output_bytes : in.model->tied_bytes());
  return w;
}

// Share of the experts that `tokens` tokens of one step touch.
double ExpertShare(const ModelDescriptor& model, double tokens) {
  if (model.experts == 0) return 0;
  const double one = std::min(1.0, D(model.experts_used) / D(model.experts));
  return 1 - std::pow(1 - one, tokens);
}

// Seconds of one step over `tokens` tokens on one side. `prompt`: long steps, at the prompt's efficiency.
std::optional<double> SideSeconds(const SpeedInput& in, const SpeedSide& side, const StepWork& work, double tokens,
                                  double cache_reads, bool prompt, Predicted& out, bool& assumed) {
  const SpeedRow* row = FindSpeedRow(*in.catalog, in.engine->name, side.host ? "cpu" : in.backend, in.build,
                                     in.model->quantization, *side.device);
  if (row == nullptr || !side.device->bandwidth_bytes_s.value || *side.device->bandwidth_bytes_s.value <= 0) {
    return std::nullopt;
  }
  const double bandwidth = *side.device->bandwidth_bytes_s.value;
  const double weights = work.dense_bytes + work.expert_bytes * ExpertShare(*in.model, tokens) + work.output_bytes;
  const double memory = weights / (bandwidth * row->bandwidth_efficiency) +
                        cache_reads * work.kv_bytes_per_token / (bandwidth * row->kv_efficiency);
  const Peak peak = PeakOf(in, *side.device, *row);
  assumed = assumed || peak.assumed;
  const double efficiency = prompt ? row->compute_efficiency : row->batch_efficiency;
  const double compute = peak.rate > 0 ? 2 * D(in.model->active_parameters) * tokens / (peak.rate * efficiency) : 0;
  const double overhead = (row->step_overhead_us + work.layers * row->layer_overhead_us +
                           work.expert_layers * row->expert_overhead_us) * 1e-6;
  out.uncertainty = std::max(out.uncertainty.value_or(0), row->uncertainty);
  return side.share * (std::max(memory, compute) + overhead);
}

std::optional<double> StepSeconds(const SpeedInput& in, double tokens, double sequences, double context, bool prompt,
                                  Predicted& out, bool& assumed) {
  const StepWork work = WorkOf(in, context);
  double sum = 0;
  for (const SpeedSide& side : in.sides) {
    const auto seconds = SideSeconds(in, side, work, tokens, sequences, prompt, out, assumed);
    if (!seconds) return std::nullopt;
    sum += *seconds;
  }
  return sum;
}

std::optional<double> PromptSeconds(const SpeedInput& in, Predicted& out, bool& assumed) {
  double left = in.prompt_tokens, done = 0, seconds = 0;
  for (int steps = 0; left > 0 && steps < 4096; ++steps) {
    const double step = std::min<double>(left, in.shape.ubatch);
    const auto s = StepSeconds(in, step, 1, done + step / 2, true, out, assumed);
    if (!s) return std::nullopt;
    seconds += *s;
    left -= step;
    done += step;
  }
  return seconds;
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

const SpeedRow* FindSpeedRow(const EngineCatalog& catalog, const std::string& engine, const std::string& backend,
                             const std::string& build, const std::string& weights, const Device& device) {
  const SpeedRow* best = nullptr;
  int best_score = -1;
  for (const SpeedRow& row : catalog.speed) {
    if (row.engine != engine || row.backend != backend) continue;
    if (!row.build.empty() && row.build != build) continue;
    if (!row.weights.empty() && !MatchesPattern(row.weights, weights)) continue;
    if (!row.vendor.empty() && row.vendor != device.vendor) continue;
    if (!row.isa.empty() && !Has(device.isa, row.isa.c_str())) continue;
    const int score = (row.build.empty() ? 0 : 8) + (row.weights.empty() ? 0 : 4) + (row.isa.empty() ? 0 : 2) +
                      (row.vendor.empty() ? 0 : 1);
    if (score > best_score) best = &row, best_score = score;
  }
  return best;
}

SpeedEstimate EstimateSpeed(const SpeedInput& in) {
  SpeedEstimate out;
  Predicted& p = out.predicted;
  bool assumed = false;
  const double sessions = std::max(1u, in.sessions);
  const double together = in.engine->batches ? sessions : 1;
  const double context = in.prompt_tokens + in.answer_tokens / 2.0;
  const uint32_t drafts = in.shape.draft_tokens;
  const double acceptance = in.draft_acceptance.value_or(0.7);
  const auto step = StepSeconds(in, together * (1 + drafts), together, context, false, p, assumed);
  const auto prompt = PromptSeconds(in, p, assumed);
  if (!step || !prompt) {
    p = {};
    out.assumptions.push_back("no bandwidth or no constants for this combination: speed unknown");
    return out;
  }
  const SpeedRow* row = FindSpeedRow(*in.catalog, in.engine->name, in.backend, in.build, in.model->quantization,
                                     *in.sides.front().device);
  const double draft_s = drafts * (row != nullptr ? row->draft_overhead_us * 1e-6 : 0);
  const double rate = TokensPerStep(acceptance, drafts) / (*step + draft_s);
  p.aggregate_tok_s = rate * together;
  p.decode_tok_s = *p.aggregate_tok_s / sessions;
  p.ttft_ms = *prompt * 1e3 + (row != nullptr ? row->prompt_overhead_ms : 0);
  p.source = "formula";
  if (assumed) out.assumptions.push_back("the peak rate of the device is assumed, not known");
  return out;
}

}  // namespace rumbo
