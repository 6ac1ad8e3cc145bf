#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engines/llamacpp/core/host_cache.h"
#include "engines/llamacpp/core/model_port.h"

namespace rumbo {

// Who holds which sequence of the KV cache and with which tokens; finds prompts that are there already.
//
// A slot is free, live (a request works in it) or retained (a finished request's tokens, kept as cache until
// the room is needed; then they move to host memory). Nothing is shared between different cache keys.
//
// Layers with a window or a recurrent state cannot be cut back at will. For them checkpoints of just those
// layers are kept in host memory while a prompt is read; a sequence can be cut back to any of them.
//
// Threading: the decode loop's thread only. Ownership: borrows the port.
class KvSlots {
 public:
  // At most `host_bytes` of host memory for states and, where the model needs them, checkpoints: half for
  // each. What has no room there goes to `disk`, which may be null; without host memory
  // only what was idle is written to it.
  KvSlots(ModelPort* port, uint64_t host_bytes, DiskCache* disk = nullptr);

  struct Lease {
    SequenceId sequence = -1;
    uint32_t reused = 0;  // tokens of the prompt that are there
  };

  // A sequence for a request that may grow to `need` tokens, holding as much of `prompt` as can be had (never
  // all of it: the last token is computed for its logits). nullopt while there is no room: all slots are
  // live, or in a unified cache the cells do not suffice even without anything retained. O(slots * prompt).
  std::optional<Lease> Acquire(const std::string& key, const std::vector<TokenId>& prompt, uint32_t need);

  // Looks again for a longer beginning of `prompt` than the live sequence holds and takes it over. Returns
  // what the sequence holds now.
  uint32_t Improve(SequenceId sequence, const std::vector<TokenId>& prompt);

  // `tokens` were computed behind what the live sequence holds.
  void Append(SequenceId sequence, const TokenId* tokens, size_t count);
  // Forgets all but `length` tokens of a live sequence. False where the memory cannot; it is then empty.
  bool Truncate(SequenceId sequence, uint32_t length);

  // A part of a prompt was read: makes a checkpoint where the memory needs them and the last one is far
  // enough back. With `end` the prompt is complete.
  void Checkpoint(SequenceId sequence, bool end);

  // The request is over. Its tokens stay as cache if `keep`.
  void Release(SequenceId sequence, bool keep);

  // Gives the disk a copy of one retained sequence that it does not have. False where there is none.
  // O(state).
  bool PersistOne();

  // A Decode was made: copies between streams are there now.
  void Decoded();

  // Drops the retained slot that is cheapest to lose. False where there is none.
  bool EvictOne();

  // Moves the live sequence to the id `to`, which is free or retained; what is retained there moves the other
  // way. False where nothing was moved.
  bool Move(SequenceId from, SequenceId to);
  bool IsLive(SequenceId sequence) const { return slots_[Index(sequence)].state == State::kLive; }

  const std::vector<TokenId>& tokens(SequenceId sequence) const { return slots_[Index(sequence)].tokens; }

  uint32_t live() const { return live_; }
  // Tokens held, live and retained.
  uint64_t cells_used() const;
  uint64_t host_bytes_used() const { return host_.bytes() + checkpoint_bytes_; }

 private:
  enum class State { kFree, kLive, kRetained };
  struct Mark {
    uint32_t length = 0;
    SequenceState state;
  };
  struct Slot {
    State state = State::kFree;
    std::string key;
    std::vector<TokenId> tokens;
    std::deque<Mark> marks;    // checkpoints, shortest first
    uint32_t need = 0;         // live: tokens it may grow to
    uint64_t last_used = 0;    // ticks
    bool persisted = false;    // retained: the disk has it, or nothing is to be had from it
    bool copied_from = false;  // since the last Decode, to another stream
    bool copied_to = false;
  };
  // Where a beginning of a prompt can be had: a sequence, perhaps with a checkpoint of it, or host memory.
  struct Source {
    SequenceId sequence = -1;
    const HostCache::Entry* entry = nullptr;
    uint32_t length = 0;
    bool from_mark = false;
  };

  static size_t Index(SequenceId sequence) { return static_cast<size_t>(sequence); }
  bool NeedsMarks() const;
  // The longest length up to `common` that the slot can be cut back to, and whether by a checkpoint.
  uint32_t Reachable(SequenceId sequence, uint32_t common, bool* from_mark) const;
  Source BestSource(const std::string& key, const std::vector<TokenId>& prompt, SequenceId except);
  // Makes `target` hold what the source has. Returns the tokens it holds then.
  uint32_t Install(const Source& source, SequenceId target);
  // Copies what the sequence holds by way of host memory, at once.
  bool CopyNow(SequenceId from, SequenceId to);
  bool CutBack(SequenceId sequence, const std::deque<Mark>& marks, uint32_t length, bool from_mark);
  bool CanInstall(const Source& source, SequenceId target) const;
  // A slot to put a new request in that is not `except`; evicts where needed. -1: none.
  SequenceId TakeSlot(SequenceId except);
  SequenceId CheapestRetained(SequenceId except) const;
  bool MakeRoom(uint32_t need, SequenceId except);
  void SaveToHost(SequenceId sequence);
  void MakeFree(SequenceId sequence, bool to_host);
  void DropMarks(Slot* slot, uint32_t longer_than);

  CachedSequence StateOf(SequenceId sequence) const;

  ModelPort* const port_;
  DiskCache* const disk_;
  HostCache host_;
  const uint64_t max_checkpoint_bytes_;
  uint64_t checkpoint_bytes_ = 0;
  std::vector<Slot> slots_;
  uint32_t live_ = 0;
  uint64_t tick_ = 0;
};

}  // namespace rumbo
