#include "engines/llamacpp/core/step_model.h"

#include <algorithm>
#include <cmath>

namespace rumbo {
namespace {

constexpr double kForget = 0.97;  // weight of the past at each new measurement
constexpr double kBlend = 0.2;    // weight of a new prefill measurement
constexpr double kSpare = 0.85;   // of the time there is, against surprises
constexpr uint32_t kFew = 128;    // tokens of a short chunk
constexpr uint32_t kLeast = 8;    // tokens that are worth a pass

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
  if (tokens >= kFew) {
    few_ms_per_token_ += kBlend * (per_token - few_ms_per_token_);
  } else {
    const double above_pass = std::max(0.25 * per_token, (ms - pass_ms()) / tokens);
    const double weight = few_ms_per_token_ == 0 ? 1 : kBlend * std::min(1.0, tokens / 16.0);
    few_ms_per_token_ += weight * (above_pass - few_ms_per_token_);
  }
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

uint32_t StepModel::FewTokensIn(double ms) const {
  const double left = ms - pass_ms();
  if (left <= 0 || few_ms_per_token_ <= 0) return 0;
  const double tokens = std::min<double>(left / few_ms_per_token_, chunk_);
  const bool dear = ms > 2 * tokens * prefill_ms_per_token_;
  return tokens < kLeast || dear ? 0 : static_cast<uint32_t>(tokens);
}

uint32_t StepModel::PrefillTokens(uint32_t decoding, bool may_be_long) const {
  if (decoding == 0 || prefill_ms_per_token_ == 0) return chunk_;
  if (!may_be_long) return FewTokensIn(kSpare * decode_ms(decoding));
  return static_cast<uint32_t>(
      std::clamp<double>(std::max(kMaxStallMs, kSpare * decode_ms(decoding)) / prefill_ms_per_token_,
                         std::min(kFloor, chunk_), chunk_));
}

bool StepModel::IsLong(uint32_t decoding, double ms) const {
  return decoding > 0 && ms > 2 * decode_ms(decoding);
}

}  // namespace rumbo
