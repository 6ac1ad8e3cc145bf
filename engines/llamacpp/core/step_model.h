#pragma once

#include <cstdint>

namespace rumbo {

// Learns from measured steps how long decoding and reading prompts take, and says how many prompt tokens the
// next step may hold so that running answers are not stalled. Pure. Times in milliseconds.
class StepModel {
 public:
  // At most `chunk` prompt tokens per step, which are computed apart from the answers' or in one pass with
  // them.
  explicit StepModel(uint32_t chunk, bool apart = true) : chunk_(chunk), apart_(apart) {}

  // A part of a step took `ms` and held so many tokens of answers (one each, and guesses).
  void AddDecode(uint32_t tokens, double ms);
  // The same for prompt tokens.
  void AddPrefill(uint32_t tokens, double ms);

  // Prompt tokens for the next step beside `decoding` running answers. The whole chunk where nobody is
  // stalled; where it `may_be_long`, what takes at most kMaxStallMs or most of a step of decoding, whichever
  // is longer. Else what makes the step at most twice as long as decoding alone, or none where so few tokens
  // would cost more than twice as much as in a long step.
  uint32_t PrefillTokens(uint32_t decoding, bool may_be_long) const;

  // A step that read prompts and took `ms` was more than twice as long as decoding alone.
  bool IsLong(uint32_t decoding, double ms) const;

  double decode_ms(uint32_t tokens) const;  // 0 while unknown
  // The cost of one more token in a decoding step. While only one size was seen, a quarter of the step.
  double token_ms() const;
  double prefill_tok_s() const;  // 0 while unknown

  static constexpr uint32_t kFloor = 32;
  static constexpr double kMaxStallMs = 500;

 private:
  uint32_t FewTokensIn(double ms) const;
  double pass_ms() const { return apart_ ? decode_ms(1) : 0; }

  const uint32_t chunk_;
  const bool apart_;
  // Weighted sums for decode ms = a + b * sequences.
  double w_ = 0, wx_ = 0, wy_ = 0, wxx_ = 0, wxy_ = 0;
  double prefill_ms_per_token_ = 0;  // of long chunks
  // Of short ones, each a pass over the weights besides; more than that of long ones where a long context
  // makes each pass dear.
  double few_ms_per_token_ = 0;
};

}  // namespace rumbo
