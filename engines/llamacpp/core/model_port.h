#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/api/request.h"

// The seam between the scheduler and libllama: what the scheduler needs of a loaded model and its KV cache.
// Implementations: llama/llama_port.h, and core/testing/fake_port.h for tests.
namespace rumbo {

using TokenId = int32_t;
using SequenceId = int32_t;

struct BatchToken {
  TokenId token = 0;
  int32_t position = 0;
  SequenceId sequence = 0;
  bool output = false;    // its logits are wanted
  uint32_t adapters = 0;  // the set of adapters to compute it with; 0: none
};

// Guesses wanted for one sequence.
struct DraftWish {
  SequenceId sequence = 0;
  TokenId last = 0;      // chosen, not computed yet
  int32_t position = 0;  // of `last`
  uint32_t most = 0;
  std::vector<TokenId> tokens;  // filled: what may come after `last`
};

// What a model's memory can do. Constant after load.
struct PortTraits {
  uint32_t vocabulary = 0;
  uint32_t sequences = 0;             // ids 0 .. sequences-1
  uint32_t context_total = 0;         // cells of all sequences together
  uint32_t context_per_sequence = 0;  // most tokens one sequence can hold
  uint32_t batch = 0;                 // most tokens of one Decode
  uint32_t outputs = UINT32_MAX;      // most of them with `output`; at least one for each sequence
  // All sequences share one pool of cells: copying a prefix costs nothing and shares its cells.
  bool unified = false;
  // A sequence can be cut back to any earlier length that OldestPosition allows. False for recurrent models,
  // whose state is only at its end.
  bool rewindable = true;
  // Tokens that can be taken back all the same, right after they were computed.
  uint32_t rollback = 0;
  // Tokens of the attention window; 0: every layer sees everything. With a window, cutting back to n needs
  // OldestPosition() <= max(0, n - window).
  uint32_t window = 0;
};

enum class DecodeResult {
  kOk,
  kNoRoom,  // nothing was changed
  kFailed,  // sequences in the batch are undefined
};

// Bytes of one sequence's state, opaque.
struct SequenceState {
  std::vector<uint8_t> bytes;
};

// Not thread-safe: one thread (the decode loop) calls everything here.
class ModelPort {
 public:
  virtual ~ModelPort() = default;

  virtual const PortTraits& traits() const = 0;

  // Computes the batch; tokens of one sequence stand in order of position, directly after what the sequence
  // holds. Blocks.
  virtual DecodeResult Decode(std::span<const BatchToken> batch) = 0;

  // Logits of the token at `batch_index` of the last Decode, which had `output`; vocabulary floats, writable,
  // valid until the next Decode.
  virtual float* Logits(size_t batch_index) = 0;

  // Makes `to` (emptied first) hold what `from` holds. Returns false where the memory cannot do that; `to` is
  // then empty. Between separate streams the cells are copied at the start of the next Decode only: until
  // then `to` must not be saved and neither of the two restored.
  virtual bool Copy(SequenceId from, SequenceId to) = 0;

  // Forgets all but the first `length` tokens. The caller has checked rewindable and the window, or restored
  // a state of that length before. False where the memory cannot; the sequence is then empty.
  virtual bool Truncate(SequenceId sequence, uint32_t length) = 0;

  // The smallest position the sequence still holds in every layer; -1 when empty.
  virtual int32_t OldestPosition(SequenceId sequence) const = 0;

  // The state of `sequence` as bytes; none where that fails. `only_window` saves just what cannot be cut
  // back: the windows of windowed layers and the state of recurrent ones.
  virtual SequenceState Save(SequenceId sequence, bool only_window) = 0;
  // Back into a sequence: an empty one, or with `only_window` one whose other layers hold at least as many
  // tokens. False where that fails; the sequence is then empty.
  virtual bool Restore(SequenceId sequence, const SequenceState& state, bool only_window) = 0;

  // Guesses by heads of the model or a smaller one, which then follow all that is computed. Wishes are for
  // different sequences.
  virtual bool drafts() const { return false; }
  virtual void Draft(std::span<DraftWish> wishes) { (void)wishes; }
  // Of the guesses last drafted for the sequence and then computed so many were right.
  virtual void Accepted(SequenceId sequence, uint32_t count) { (void)sequence, (void)count; }
  // No more guesses for the sequence until it is empty again: following it costs more than it gives.
  virtual void StopDrafting(SequenceId sequence) { (void)sequence; }

  // The token ends the answer.
  virtual bool IsEndOfText(TokenId token) const = 0;

  // The token's bytes; empty for control tokens unless `special`.
  virtual std::string Piece(TokenId token, bool special) const = 0;
};

// Chooses tokens of one answer. Used by the decode loop's thread only.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // The next token, given logits it may scribble on. With `logprob`, also fills it as asked for in the
  // request. Errors (a grammar that allows nothing, logits that are no numbers) end the answer.
  virtual absl::StatusOr<TokenId> Pick(float* logits, TokenLogprob* logprob) = 0;

  // The token became part of the answer.
  virtual void Accept(TokenId token) = 0;
};

}  // namespace rumbo
