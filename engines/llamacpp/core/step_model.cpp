#include "engines/llamacpp/core/step_model.h"

#include <algorithm>
#include <cmath>

namespace rumbo {
namespace {

constexpr double kForget = 0.97;  // weight of the past at each new measurement
constexpr double kBlend = 0.2;    // weight of a new prefill measurement
}  // namespace

void StepModel::AddDecode(uint32_t tokens, double ms) {
  const double x = tokens;
  w_ = w_ * kForget + 1;
  wx_ = wx_ * kForget + x;
  wy_ = wy_ * kForget + ms;
  wxx_ = wxx_ * kForget + x * x;
  wxy_ = wxy_ * kForget + x * ms;
}

void StepModel::AddPrefill(uint32_t tokens, double ms) {
  if (tokens == 0) return;
  const double per_token = ms / tokens;
  // Short chunks are dominated by fixed cost and say little about long ones.
  const double blend = prefill_ms_per_token_ == 0 ? 1 : kBlend * std::min(1.0, tokens / 64.0);
  prefill_ms_per_token_ += blend * (per_token - prefill_ms_per_token_);
}

double StepModel::token_ms() const {
  if (w_ == 0) return 0;
  const double spread = w_ * wxx_ - wx_ * wx_;
  if (spread < 1e-6 * w_ * wxx_) return 0.25 * wy_ / std::max(1.0, wx_);
  return std::max(0.0, (w_ * wxy_ - wx_ * wy_) / spread);
}

double StepModel::decode_ms(uint32_t tokens) const {
  if (w_ == 0 || tokens == 0) return 0;
  const double slope = token_ms();
  return std::max(0.0, (wy_ - slope * wx_) / w_ + slope * tokens);
}

double StepModel::prefill_tok_s() const {
  return prefill_ms_per_token_ > 0 ? 1000 / prefill_ms_per_token_ : 0;
}

uint32_t StepModel::TokensIn(double ms) const {
  if (prefill_ms_per_token_ == 0) return chunk_;
  return static_cast<uint32_t>(
      std::clamp<double>(ms / prefill_ms_per_token_, std::min(kFloor, chunk_), chunk_));
}

uint32_t StepModel::PrefillTokens(uint32_t decoding, bool may_be_long) const {
  if (decoding == 0) return chunk_;
  return TokensIn(may_be_long ? std::max(kMaxStallMs, decode_ms(decoding)) : decode_ms(decoding));
}

bool StepModel::IsLong(uint32_t decoding, uint32_t prefill_tokens) const {
  return decoding > 0 && prefill_tokens > TokensIn(decode_ms(decoding));
}

}  // namespace rumbo
