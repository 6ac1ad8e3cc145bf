#include "engines/llamacpp/llama/llama_embedder.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "engines/llamacpp/llama/tokenizer.h"
#include "llama.h"

namespace rumbo {
namespace {

absl::Status CheckInput(const char* field, size_t index, size_t tokens, uint32_t most) {
  const std::string name = std::string(field) + "[" + std::to_string(index) + "]";
  if (tokens == 0) return InvalidArgument(name + " has no tokens");
  if (tokens <= most) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kPromptTooLong,
               name + " has " + std::to_string(tokens) + " tokens, the most is " + std::to_string(most),
               "Split the text, or load the model with more context.");
}

void ReplaceAll(std::string* text, std::string_view what, const std::string& with) {
  for (size_t at = text->find(what); at != std::string::npos; at = text->find(what, at + with.size())) {
    text->replace(at, what.size(), with);
  }
}

}  // namespace

LlamaEmbedder::LlamaEmbedder(LoadedModel* loaded) : loaded_(loaded) {
  const llama_model* model = loaded->model;
  const bool has_memory = llama_get_memory(loaded->context) != nullptr;
  const uint32_t trained = ContextTrained(*loaded);
  traits_.ranks = loaded->pooling == "rank";
  traits_.step_tokens = llama_n_ubatch(loaded->context);
  traits_.sequences = loaded->sequences;
  traits_.input_tokens = has_memory ? llama_n_ctx_seq(loaded->context) : traits_.step_tokens;
  if (trained > 0) traits_.input_tokens = std::min(traits_.input_tokens, trained);
  traits_.width =
      static_cast<uint32_t>(traits_.ranks ? llama_model_n_cls_out(model) : llama_model_n_embd_out(model));
  encode_ = llama_model_has_encoder(model) && !llama_model_has_decoder(model);
}

bool LlamaEmbedder::Compute(std::span<const BatchToken> batch) {
  RUMBO_CHECK(!batch.empty() && batch.size() <= traits_.step_tokens);
  const auto count = static_cast<int32_t>(batch.size());
  llama_batch raw = llama_batch_init(count, 0, 1);
  raw.n_tokens = count;
  for (int32_t i = 0; i < count; ++i) {
    const BatchToken& token = batch[static_cast<size_t>(i)];
    raw.token[i] = token.token;
    raw.pos[i] = token.position;
    raw.n_seq_id[i] = 1;
    raw.seq_id[i][0] = token.sequence;
    raw.logits[i] = 1;
  }
  const int32_t result = encode_ ? llama_encode(loaded_->context, raw) : llama_decode(loaded_->context, raw);
  llama_batch_free(raw);
  if (result == 0) llama_synchronize(loaded_->context);
  return result == 0;
}

const float* LlamaEmbedder::TokenRow(size_t batch_index) {
  return llama_get_embeddings_ith(loaded_->context, static_cast<int32_t>(batch_index));
}

const float* LlamaEmbedder::InputRow(SequenceId sequence) {
  return llama_get_embeddings_seq(loaded_->context, sequence);
}

void LlamaEmbedder::Clear() {
  if (llama_memory_t memory = llama_get_memory(loaded_->context); memory != nullptr) {
    llama_memory_clear(memory, false);
  }
}

absl::StatusOr<std::vector<std::vector<TokenId>>> EmbedInputs(const LoadedModel& model,
                                                              const std::vector<std::string>& texts,
                                                              uint32_t most) {
  std::vector<std::vector<TokenId>> inputs;
  for (const std::string& text : texts) {
    RUMBO_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, EncodeText(model, text, true, true));
    RUMBO_RETURN_IF_ERROR(CheckInput("inputs", inputs.size(), tokens.size(), most));
    inputs.push_back(std::move(tokens));
  }
  return inputs;
}

// Models bring a template for the pair or want it as [BOS] query [EOS] [SEP] document [EOS], each mark as far
// as the vocabulary adds it.
absl::StatusOr<std::vector<std::vector<TokenId>>> RerankInputs(const LoadedModel& model,
                                                               const std::string& query,
                                                               const std::vector<std::string>& documents,
                                                               uint32_t most) {
  const llama_vocab* vocab = llama_model_get_vocab(model.model);
  const char* shape = llama_model_chat_template(model.model, "rerank");
  RUMBO_ASSIGN_OR_RETURN(const std::vector<TokenId> asked, EncodeText(model, query, false, false));
  TokenId end = llama_vocab_eos(vocab);
  if (end < 0) end = llama_vocab_sep(vocab);
  std::vector<std::vector<TokenId>> inputs;
  for (const std::string& document : documents) {
    std::vector<TokenId> tokens;
    if (shape != nullptr) {
      std::string text = shape;
      ReplaceAll(&text, "{query}", query);
      ReplaceAll(&text, "{document}", document);
      RUMBO_ASSIGN_OR_RETURN(tokens, EncodeText(model, text, false, true));
    } else {
      RUMBO_ASSIGN_OR_RETURN(const std::vector<TokenId> words, EncodeText(model, document, false, false));
      if (llama_vocab_get_add_bos(vocab)) tokens.push_back(llama_vocab_bos(vocab));
      tokens.insert(tokens.end(), asked.begin(), asked.end());
      if (llama_vocab_get_add_eos(vocab)) tokens.push_back(end);
      if (llama_vocab_get_add_sep(vocab)) tokens.push_back(llama_vocab_sep(vocab));
      tokens.insert(tokens.end(), words.begin(), words.end());
      if (llama_vocab_get_add_eos(vocab)) tokens.push_back(end);
    }
    RUMBO_RETURN_IF_ERROR(CheckInput("documents", inputs.size(), tokens.size(), most));
    inputs.push_back(std::move(tokens));
  }
  return inputs;
}

}  // namespace rumbo
