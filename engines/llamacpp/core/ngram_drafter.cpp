#include "engines/llamacpp/core/ngram_drafter.h"

#include <algorithm>
#include <cmath>

namespace rumbo {

uint64_t NgramDrafter::KeyAt(size_t end) const {
  uint64_t key = 1469598103934665603ull;
  for (size_t i = end - kMatch; i < end; ++i)
    key = (key ^ static_cast<uint32_t>(history_[i])) * 1099511628211ull;
  return key;
}

std::vector<TokenId> NgramDrafter::Draft(size_t count) {
  std::vector<TokenId> draft;
  if (history_.size() <= kMatch) return draft;
  // The newest key is looked up, not entered: it would only find itself.
  for (indexed_ = std::max(indexed_, kMatch); indexed_ < history_.size(); ++indexed_) {
    followed_by_[KeyAt(indexed_)] = static_cast<uint32_t>(indexed_);
  }
  const auto found = followed_by_.find(KeyAt(history_.size()));
  if (found == followed_by_.end()) return draft;
  for (size_t k = 1; k <= kMatch; ++k) {  // equal keys need not be equal tokens
    if (history_[found->second - k] != history_[history_.size() - k]) return draft;
  }
  // What was guessed counts as history: a loop of few tokens goes on as long as asked for.
  for (size_t i = 0; i < count; ++i) {
    const size_t at = found->second + i;
    draft.push_back(at < history_.size() ? history_[at] : draft[at - history_.size()]);
  }
  return draft;
}

uint32_t DraftPolicy::Worth(uint32_t limit, uint32_t tokens, double fixed_ms, double token_ms,
                            double extra_ms, double guess_ms) const {
  double best_rate = tokens / std::max(1e-6, fixed_ms + token_ms * tokens);
  uint32_t best = 0;
  double expected = tokens;
  double chance = 1;
  for (uint32_t k = 1; k <= limit; ++k) {
    chance *= acceptance_;
    expected += chance;
    const double rate = expected / (fixed_ms + extra_ms + token_ms * (tokens + k) + guess_ms * k);
    if (rate > best_rate) {
      best_rate = rate;
      best = k;
    }
  }
  return best;
}

void DraftPolicy::Record(uint32_t drafted, uint32_t accepted) {
  if (drafted == 0) {
    // Forgets slowly, so that after a stretch without repetition guessing is tried again.
    acceptance_ += 0.004 * (0.6 - acceptance_);
    return;
  }
  const uint32_t trials = std::min(drafted, accepted + 1);
  const double rate = static_cast<double>(accepted) / trials;
  acceptance_ += (1 - std::pow(0.85, trials)) * (rate - acceptance_);
  acceptance_ = std::clamp(acceptance_, 0.05, 0.98);
}

}  // namespace rumbo
