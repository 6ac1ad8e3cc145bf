#include "engines/llamacpp/llama/llama_port.h"

#include <algorithm>

#include "base/check.h"
#include "engines/llamacpp/llama/settings_check.h"
#include "llama.h"

namespace rumbo {

LlamaPort::LlamaPort(LoadedModel* loaded, Adapters* adapters, Speculation* speculation)
    : loaded_(loaded),
      adapters_(adapters),
      speculation_(speculation),
      vocab_(llama_model_get_vocab(loaded->model)) {
  const EngineSettings& s = loaded->settings;
  traits_.vocabulary = static_cast<uint32_t>(llama_vocab_n_tokens(vocab_));
  traits_.sequences = loaded->sequences;
  traits_.context_total = llama_n_ctx(loaded->context);
  traits_.context_per_sequence = llama_n_ctx_seq(loaded->context);
  traits_.batch = llama_n_batch(loaded->context);
  const auto outputs = ExtraNumber(s, "outputs", traits_.batch, 1, 65536);
  traits_.outputs = std::min(traits_.batch, outputs.value_or(loaded->sequences));
  traits_.unified = *s.kv_unified || loaded->sequences == 1;
  traits_.rewindable = !llama_model_is_recurrent(loaded->model) && !llama_model_is_hybrid(loaded->model);
  traits_.rollback = llama_n_rs_seq(loaded->context);
  const int window = llama_model_n_swa(loaded->model);
  traits_.window = *s.swa_full || window < 0 ? 0 : static_cast<uint32_t>(window);

  token_.resize(traits_.batch);
  position_.resize(traits_.batch);
  sequence_count_.assign(traits_.batch, 1);
  sequence_.resize(traits_.batch);
  output_.resize(traits_.batch);
  for (int32_t& id : sequence_) sequence_ptr_.push_back(&id);
}

DecodeResult LlamaPort::Decode(std::span<const BatchToken> batch) {
  RUMBO_CHECK(!batch.empty() && batch.size() <= traits_.batch);
  kept_logits_.clear();
  const bool mixed = std::any_of(batch.begin(), batch.end(), [&](const BatchToken& token) {
    return token.adapters != batch.front().adapters;
  });
  return mixed ? DecodeMixed(batch) : DecodeSet(batch);
}

// A computation has one set of adapters: one for each set, with the logits kept.
DecodeResult LlamaPort::DecodeMixed(std::span<const BatchToken> batch) {
  std::vector<uint32_t> sets;
  for (const BatchToken& token : batch) {
    if (std::find(sets.begin(), sets.end(), token.adapters) == sets.end()) sets.push_back(token.adapters);
  }
  std::vector<std::vector<float>> kept(batch.size());
  for (const uint32_t set : sets) {
    std::vector<BatchToken> part;
    std::vector<size_t> places;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].adapters != set) continue;
      part.push_back(batch[i]);
      places.push_back(i);
    }
    // What was computed for the sets before cannot be undone.
    const DecodeResult result = DecodeSet(part);
    if (result != DecodeResult::kOk) return set == sets.front() ? result : DecodeResult::kFailed;
    for (size_t k = 0; k < part.size(); ++k) {
      if (!part[k].output) continue;
      const float* logits = llama_get_logits_ith(loaded_->context, static_cast<int32_t>(k));
      RUMBO_CHECK(logits != nullptr);
      kept[places[k]].assign(logits, logits + traits_.vocabulary);
    }
  }
  kept_logits_ = std::move(kept);
  return DecodeResult::kOk;
}

DecodeResult LlamaPort::DecodeSet(std::span<const BatchToken> batch) {
  adapters_->Apply(batch.front().adapters);
  for (size_t i = 0; i < batch.size(); ++i) {
    token_[i] = batch[i].token;
    position_[i] = batch[i].position;
    sequence_[i] = batch[i].sequence;
    output_[i] = batch[i].output ? 1 : 0;
  }
  llama_batch raw{};
  raw.n_tokens = static_cast<int32_t>(batch.size());
  raw.token = token_.data();
  raw.pos = position_.data();
  raw.n_seq_id = sequence_count_.data();
  raw.seq_id = sequence_ptr_.data();
  raw.logits = output_.data();
  const int32_t result = llama_decode(loaded_->context, raw);
  if (result == 0) {
    llama_synchronize(loaded_->context);
    if (speculation_ != nullptr) speculation_->Decoded(batch);
    return DecodeResult::kOk;
  }
  return result == 1 ? DecodeResult::kNoRoom : DecodeResult::kFailed;
}

float* LlamaPort::Logits(size_t batch_index) {
  if (!kept_logits_.empty()) return kept_logits_[batch_index].data();
  float* logits = llama_get_logits_ith(loaded_->context, static_cast<int32_t>(batch_index));
  RUMBO_CHECK(logits != nullptr);
  return logits;
}

bool LlamaPort::Copy(SequenceId from, SequenceId to) {
  llama_memory_t memory = llama_get_memory(loaded_->context);
  llama_memory_seq_rm(memory, to, -1, -1);
  // Within one pool of cells this only counts them twice; between streams it copies their whole buffers.
  llama_memory_seq_cp(memory, from, to, -1, -1);
  if (speculation_ != nullptr) speculation_->Copy(from, to);
  if (!*loaded_->settings.kv_unified || traits_.window == 0) return true;
  // Window cells that several sequences own are never given back when they leave the window, so each gets its
  // own.
  const SequenceState window = Save(from, true);
  return !window.bytes.empty() && Restore(to, window, true);
}

bool LlamaPort::Truncate(SequenceId sequence, uint32_t length) {
  llama_memory_t memory = llama_get_memory(loaded_->context);
  if (speculation_ != nullptr) speculation_->Truncate(sequence, length);
  if (length == 0) {
    llama_memory_seq_rm(memory, sequence, -1, -1);
    return true;
  }
  if (llama_memory_seq_rm(memory, sequence, static_cast<int32_t>(length), -1)) return true;
  llama_memory_seq_rm(memory, sequence, -1, -1);
  return false;
}

int32_t LlamaPort::OldestPosition(SequenceId sequence) const {
  return llama_memory_seq_pos_min(llama_get_memory(loaded_->context), sequence);
}

SequenceState LlamaPort::Save(SequenceId sequence, bool only_window) {
  const llama_state_seq_flags flags = only_window ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : 0;
  SequenceState state;
  state.bytes.resize(llama_state_seq_get_size_ext(loaded_->context, sequence, flags));
  const size_t written =
      llama_state_seq_get_data_ext(loaded_->context, state.bytes.data(), state.bytes.size(), sequence, flags);
  state.bytes.resize(written);
  return state;
}

bool LlamaPort::Restore(SequenceId sequence, const SequenceState& state, bool only_window) {
  const llama_state_seq_flags flags = only_window ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : 0;
  if (llama_state_seq_set_data_ext(loaded_->context, state.bytes.data(), state.bytes.size(), sequence,
                                   flags) == state.bytes.size()) {
    return true;
  }
  llama_memory_seq_rm(llama_get_memory(loaded_->context), sequence, -1, -1);
  return false;
}

bool LlamaPort::IsEndOfText(TokenId token) const { return llama_vocab_is_eog(vocab_, token); }

std::string LlamaPort::Piece(TokenId token, bool special) const { return TokenPiece(vocab_, token, special); }

std::string TokenPiece(const llama_vocab* vocab, TokenId token, bool special) {
  char small[64];
  const int32_t length = llama_token_to_piece(vocab, token, small, sizeof(small), 0, special);
  if (length >= 0) return std::string(small, static_cast<size_t>(length));
  std::string piece(static_cast<size_t>(-length), '\0');
  llama_token_to_piece(vocab, token, piece.data(), -length, 0, special);
  return piece;
}

}  // namespace rumbo
