#pragma once

#include <memory>
#include <vector>

#include "engines/llamacpp/core/model_port.h"
#include "engines/llamacpp/llama/adapters.h"
#include "engines/llamacpp/llama/model_loader.h"
#include "engines/llamacpp/llama/speculation.h"

struct llama_vocab;

namespace rumbo {

// ModelPort over libllama.
class LlamaPort final : public ModelPort {
 public:
  // Borrows all, which outlive the port. `speculation` may be null.
  LlamaPort(LoadedModel* loaded, Adapters* adapters, Speculation* speculation);

  const PortTraits& traits() const override { return traits_; }
  DecodeResult Decode(std::span<const BatchToken> batch) override;
  float* Logits(size_t batch_index) override;
  bool Copy(SequenceId from, SequenceId to) override;
  bool Truncate(SequenceId sequence, uint32_t length) override;
  int32_t OldestPosition(SequenceId sequence) const override;
  SequenceState Save(SequenceId sequence, bool only_window) override;
  bool Restore(SequenceId sequence, const SequenceState& state, bool only_window) override;
  bool drafts() const override { return speculation_ != nullptr; }
  void Draft(std::span<DraftWish> wishes) override { speculation_->Draft(wishes); }
  void Accepted(SequenceId sequence, uint32_t count) override { speculation_->Accepted(sequence, count); }
  void StopDrafting(SequenceId sequence) override { speculation_->Leave(sequence); }
  bool IsEndOfText(TokenId token) const override;
  std::string Piece(TokenId token, bool special) const override;

 private:
  DecodeResult DecodeSet(std::span<const BatchToken> batch);
  DecodeResult DecodeMixed(std::span<const BatchToken> batch);

  LoadedModel* const loaded_;
  Adapters* const adapters_;
  Speculation* const speculation_;
  const llama_vocab* const vocab_;
  PortTraits traits_;
  // Arrays of one llama_batch.
  std::vector<int32_t> token_;
  std::vector<int32_t> position_;
  std::vector<int32_t> sequence_count_;
  std::vector<int32_t> sequence_;
  std::vector<int32_t*> sequence_ptr_;
  std::vector<int8_t> output_;
  // Logits of a batch that was computed in several parts, by batch index; empty where it was one.
  std::vector<std::vector<float>> kept_logits_;
};

// The bytes of a token.
std::string TokenPiece(const llama_vocab* vocab, TokenId token, bool special);

}  // namespace rumbo
