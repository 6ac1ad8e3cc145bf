#pragma once

#include <cstdint>

namespace rumbo {

// Learns from measured steps how long decoding and reading prompts take, and says how many prompt tokens the
// next step may hold so that running answers are not stalled. Pure. Times in milliseconds.
class StepModel {
 public:
  // At most `chunk` prompt tokens per step.
  explicit StepModel(uint32_t chunk) : chunk_(chunk) {}

  // A part of a step took `ms` and held so many tokens of answers (one each, and guesses).
  void AddDecode(uint32_t tokens, double ms);
  // The same for prompt tokens.
  void AddPrefill(uint32_t tokens, double ms);

  // Prompt tokens for the next step beside `decoding` running answers. The whole chunk where nobody is
  // stalled. Else what makes the step at most twice as long as decoding alone or, where it `may_be_long`,
  // what takes at most kMaxStallMs.
  uint32_t PrefillTokens(uint32_t decoding, bool may_be_long) const;

  // So many prompt tokens make a step more than twice as long as decoding alone.
  bool IsLong(uint32_t decoding, uint32_t prefill_tokens) const;

  double decode_ms(uint32_t tokens) const;  // 0 while unknown
  // The cost of one more token in a decoding step. While only one size was seen, a quarter of the step.
  double token_ms() const;
  double prefill_tok_s() const;  // 0 while unknown

  static constexpr uint32_t kFloor = 32;
  static constexpr double kMaxStallMs = 500;

 private:
  // Prompt tokens that take about `ms`.
  uint32_t TokensIn(double ms) const;

  const uint32_t chunk_;
  // Weighted sums for decode ms = a + b * sequences.
  double w_ = 0, wx_ = 0, wy_ = 0, wxx_ = 0, wxy_ = 0;
  double prefill_ms_per_token_ = 0;
};

}  // namespace rumbo
