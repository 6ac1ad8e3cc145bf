#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engines/llamacpp/core/model_port.h"

namespace rumbo {

// Who holds which sequence of the KV cache and with which tokens; finds prompts that are there already.
//
// A slot is free, live (a request works in it) or retained (a finished request's tokens, kept as cache until the
// room is needed). Nothing is shared between different cache keys.
//
// Threading: the decode loop's thread only. Ownership: borrows the port.
class KvSlots {
 public:
  explicit KvSlots(ModelPort* port);

  struct Lease {
    SequenceId sequence = -1;
    uint32_t reused = 0;  // tokens of the prompt that are there
  };

  // A sequence for a request that may grow to `need` tokens, holding as much of `prompt` as can be had (never
  // all of it: the last token is computed for its logits). nullopt while there is no room: all slots are live,
  // or in a unified cache the cells do not suffice even without anything retained.
  // O(slots * prompt).
  std::optional<Lease> Acquire(const std::string& key, const std::vector<TokenId>& prompt, uint32_t need);

  // What Acquire would reuse, without acting.
  uint32_t Reusable(const std::string& key, const std::vector<TokenId>& prompt) const;

  // Looks again for a longer beginning of `prompt` than the live sequence holds and takes it over. Returns what
  // the sequence holds now.
  uint32_t Improve(SequenceId sequence, const std::vector<TokenId>& prompt);

  // `tokens` were computed behind what the live sequence holds.
  void Append(SequenceId sequence, const TokenId* tokens, size_t count);
  // Forgets all but `length` tokens of a live sequence. False where the memory cannot; it is then empty.
  bool Truncate(SequenceId sequence, uint32_t length);

  // The request is over. Its tokens stay as cache if `keep`.
  void Release(SequenceId sequence, bool keep);

  // Drops the retained slot that is cheapest to lose. False where there is none.
  bool EvictOne();

  const std::vector<TokenId>& tokens(SequenceId sequence) const { return slots_[Index(sequence)].tokens; }
  // Whether `length` tokens of the sequence can be copied or cut back to.
  bool CanReuse(SequenceId sequence, uint32_t length) const;

  uint32_t live() const { return live_; }
  // Tokens held, live and retained.
  uint64_t cells_used() const;

 private:
  enum class State { kFree, kLive, kRetained };
  struct Slot {
    State state = State::kFree;
    std::string key;
    std::vector<TokenId> tokens;
    uint32_t need = 0;       // live: tokens it may grow to
    uint64_t last_used = 0;  // ticks
  };
  struct Source {
    SequenceId sequence = -1;
    uint32_t length = 0;
  };

  static size_t Index(SequenceId sequence) { return static_cast<size_t>(sequence); }
  Source BestSource(const std::string& key, const std::vector<TokenId>& prompt, SequenceId except) const;
  // A slot to put a new request in that is not `except`; evicts where needed. -1: none.
  SequenceId TakeSlot(SequenceId except);
  SequenceId CheapestRetained(SequenceId except) const;
  bool MakeRoom(uint32_t need, SequenceId except);
  void MakeFree(Slot* slot, SequenceId sequence);

  ModelPort* const port_;
  std::vector<Slot> slots_;
  uint32_t live_ = 0;
  uint64_t tick_ = 0;
};

// The number of equal tokens at the beginning.
uint32_t CommonPrefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b);

}  // namespace rumbo
