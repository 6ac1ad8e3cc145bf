#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engines/llamacpp/core/model_port.h"

namespace rumbo {

// Guesses how a text goes on from what followed the last time its newest tokens appeared: free, and often
// right where an answer repeats its prompt or itself. Keeps its own history. Memory: about 40 bytes a token.
class NgramDrafter {
 public:
  // Tokens that must match before anything is guessed.
  static constexpr size_t kMatch = 3;

  void Append(TokenId token) { history_.push_back(token); }
  void Append(const std::vector<TokenId>& tokens) {
    history_.insert(history_.end(), tokens.begin(), tokens.end());
  }

  // Up to `count` tokens after the history; fewer or none where it has no precedent. Amortised O(count).
  std::vector<TokenId> Draft(size_t count);

 private:
  uint64_t KeyAt(size_t end) const;  // of the kMatch tokens before `end`

  std::vector<TokenId> history_;
  size_t indexed_ = 0;  // keys that end before this offset are in the table
  std::unordered_map<uint64_t, uint32_t> followed_by_;
};

// How often guesses of one answer were right, and from that how many are worth computing. Pure.
class DraftPolicy {
 public:
  // Guessed tokens to add to a step that holds `tokens` tokens without them, for `limit` at most. `fixed_ms`
  // and `token_ms` are the cost of a step and of each token in it; `extra_ms` what the first guess costs
  // besides, `guess_ms` what making each costs.
  uint32_t Worth(uint32_t limit, uint32_t tokens, double fixed_ms, double token_ms, double extra_ms,
                 double guess_ms = 0) const;
  void Record(uint32_t drafted, uint32_t accepted);
  double acceptance() const { return acceptance_; }

 private:
  double acceptance_ = 0.6;  // chance that the next guess is right when all before it were
};

}  // namespace rumbo
