#pragma once

#include <cstdint>

namespace rumbo {

// Learns from measured steps how long decoding and reading prompts take, and says how many prompt tokens the next
// step may hold so that running answers are not stalled. Pure. Times in milliseconds.
class StepModel {
 public:
  // At most `chunk` prompt tokens per step.
  explicit StepModel(uint32_t chunk) : chunk_(chunk) {}

  // A part of a step took `ms` and held so many sequences with one token each.
  void AddDecode(uint32_t sequences, double ms);
  // The same for prompt tokens.
  void AddPrefill(uint32_t tokens, double ms);

  // Prompt tokens for the next step beside `decoding` running answers while `waiting` prompts are not read yet.
  // The whole chunk where nobody is stalled or most are waiting; fewer, down to kFloor, where many running
  // answers would wait for few prompts.
  uint32_t PrefillTokens(uint32_t decoding, uint32_t waiting) const;

  double decode_ms(uint32_t sequences) const;  // 0 while unknown
  double prefill_tok_s() const;                // 0 while unknown

  static constexpr uint32_t kFloor = 32;

 private:
  const uint32_t chunk_;
  // Weighted sums for decode ms = a + b * sequences.
  double w_ = 0, wx_ = 0, wy_ = 0, wxx_ = 0, wxy_ = 0;
  double prefill_ms_per_token_ = 0;
};

}  // namespace rumbo
