#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/llamacpp/core/model_port.h"
#include "engines/llamacpp/llama/model_loader.h"

namespace rumbo {

// A second, cheaper context that follows the target's sequences and guesses how they go on: a smaller model
// of the same vocabulary, or the model's own heads for it (MTP). Through libllama-common.
//
// Guesses never change an answer: the target computes each before it counts. What a sequence took over from
// host memory or disk is unknown here; guesses then build on what came after.
//
// Threading: the thread that decodes. Ownership: borrows the target.
class Speculation {
 public:
  // With `draft_files` that model, else the target's own heads. Blocks. Errors: kFailedPrecondition:
  // kCapabilityMissing where the model has no heads, the vocabularies differ, or what guesses could not take
  // guesses back; kModelInvalid; kResourceExhausted (kDoesNotFit).
  static absl::StatusOr<std::unique_ptr<Speculation>> Make(LoadedModel* target,
                                                           const std::vector<std::string>& draft_files,
                                                           uint32_t draft_tokens);
  virtual ~Speculation() = default;

  // The target computed this.
  virtual void Decoded(std::span<const BatchToken> batch) = 0;
  // Fills `tokens` of each wish.
  virtual void Draft(std::span<DraftWish> wishes) = 0;
  // Of the last guesses for the sequence so many were right.
  virtual void Accepted(SequenceId sequence, uint32_t count) = 0;
  // The sequence is not followed until it is empty again.
  virtual void Leave(SequenceId sequence) = 0;

  virtual void Copy(SequenceId from, SequenceId to) = 0;
  virtual void Truncate(SequenceId sequence, uint32_t length) = 0;

  // What it took beside the target, as "draft".
  virtual std::vector<MemoryItem> memory() const = 0;
};

}  // namespace rumbo
