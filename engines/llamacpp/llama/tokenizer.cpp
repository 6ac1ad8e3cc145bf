#include "engines/llamacpp/llama/tokenizer.h"

#include <algorithm>
#include <limits>

#include "base/status.h"
#include "base/utf8.h"
#include "engines/llamacpp/llama/llama_port.h"
#include "llama.h"

namespace rumbo {

absl::StatusOr<std::vector<TokenId>> EncodeText(const LoadedModel& model, const std::string& text,
                                                bool add_special, bool parse_special) {
  if (text.size() > kMaxTextBytes) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kRequestTooLarge,
                 "the text has " + std::to_string(text.size()) + " bytes, at most " +
                     std::to_string(kMaxTextBytes) + " are taken");
  }
  if (!IsValidUtf8(text)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kInvalidUtf8, "the text is not valid UTF-8");
  }
  const llama_vocab* vocab = llama_model_get_vocab(model.model);
  std::vector<TokenId> tokens(text.size() + 16);
  const int32_t length = static_cast<int32_t>(text.size());
  try {
    int32_t count = llama_tokenize(vocab, text.data(), length, tokens.data(),
                                   static_cast<int32_t>(tokens.size()), add_special, parse_special);
    if (count == std::numeric_limits<int32_t>::min()) return Internal("the tokeniser overflowed");
    if (count < 0) {
      tokens.resize(static_cast<size_t>(-count));
      count = llama_tokenize(vocab, text.data(), length, tokens.data(), -count, add_special, parse_special);
    }
    tokens.resize(static_cast<size_t>(std::max(count, 0)));
  } catch (const std::exception& e) {
    return Internal(std::string("the tokeniser failed: ") + e.what());
  }
  return tokens;
}

absl::Status CheckTokens(const LoadedModel& model, const std::vector<TokenId>& tokens, const char* field) {
  const int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model.model));
  for (const TokenId token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return InvalidArgument(std::string(field) + " holds " + std::to_string(token) +
                           ", which is no token of this model (0 to " + std::to_string(vocabulary - 1) + ")");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DecodeTokens(const LoadedModel& model, const std::vector<TokenId>& tokens) {
  RUMBO_RETURN_IF_ERROR(CheckTokens(model, tokens, "ids"));
  const llama_vocab* vocab = llama_model_get_vocab(model.model);
  std::string text;
  for (const TokenId token : tokens) text += TokenPiece(vocab, token, true);
  return text;
}

std::vector<TokenId> EndOfTextTokens(const LoadedModel& model) {
  const llama_vocab* vocab = llama_model_get_vocab(model.model);
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    if (llama_vocab_is_eog(vocab, token)) tokens.push_back(token);
  }
  return tokens;
}

uint32_t ContextTrained(const LoadedModel& model) {
  return static_cast<uint32_t>(std::max(0, llama_model_n_ctx_train(model.model)));
}

}  // namespace rumbo
