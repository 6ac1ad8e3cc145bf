#include "engines/llamacpp/llama/tensor_placement.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/status.h"
#include "engines/llamacpp/llama/settings_check.h"

namespace rumbo {
namespace {

constexpr uint32_t kMaxLayers = 4096;

absl::StatusOr<std::vector<float>> Shares(const std::string& text, size_t devices) {
  const absl::Status bad = InvalidArgument("settings.extra.tensor_split is \"" + text + "\", must be " +
                                           std::to_string(devices) + " shares such as \"0.6,0.4\"");
  std::vector<float> shares;
  double sum = 0;
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    float share = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), share);
    if (error != std::errc() || stop != word.data() + word.size() || !std::isfinite(share) || share < 0)
      return bad;
    shares.push_back(share);
    sum += share;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (shares.size() != devices || sum <= 0) return bad;
  shares.resize(std::max(llama_max_devices(), shares.size()), 0);
  return shares;
}

}  // namespace

absl::StatusOr<TensorPlacement> TensorPlacement::Make(const EngineSettings& settings, size_t devices) {
  TensorPlacement out;
  RUMBO_ASSIGN_OR_RETURN(const uint32_t layers, ExtraNumber(settings, "experts_on_host", 0, 0, kMaxLayers));
  // Reserved first: the overrides point into the strings.
  out.patterns_.reserve(layers);
  for (uint32_t i = 0; i < layers; ++i) {
    out.patterns_.push_back("blk\\." + std::to_string(i) + "\\.ffn_(up|down|gate|gate_up)_(ch)?exps");
    out.overrides_.push_back({out.patterns_.back().c_str(), ggml_backend_cpu_buffer_type()});
  }
  if (layers > 0) out.overrides_.push_back({nullptr, nullptr});
  const auto split = settings.extra.find("tensor_split");
  if (split != settings.extra.end()) {
    if (devices == 0) return InvalidArgument("settings.extra.tensor_split needs devices other than the CPU");
    RUMBO_ASSIGN_OR_RETURN(out.split_, Shares(split->second, devices));
  }
  return out;
}

void TensorPlacement::Apply(llama_model_params* params) const {
  if (!overrides_.empty()) params->tensor_buft_overrides = overrides_.data();
  if (!split_.empty()) params->tensor_split = split_.data();
}

}  // namespace rumbo
