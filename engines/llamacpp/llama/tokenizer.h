#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/llamacpp/core/model_port.h"
#include "engines/llamacpp/llama/model_loader.h"

namespace rumbo {

// Text as tokens. Errors: kInvalidUtf8; kRequestTooLarge over kMaxTextBytes. Thread-safe.
absl::StatusOr<std::vector<TokenId>> EncodeText(const LoadedModel& model, const std::string& text,
                                                bool add_special, bool parse_special);

// The bytes of the tokens, control tokens included. kInvalidArgument for an id outside the vocabulary.
absl::StatusOr<std::string> DecodeTokens(const LoadedModel& model, const std::vector<TokenId>& tokens);

absl::Status CheckTokens(const LoadedModel& model, const std::vector<TokenId>& tokens, const char* field);

// All tokens that end an answer.
std::vector<TokenId> EndOfTextTokens(const LoadedModel& model);

uint32_t ContextTrained(const LoadedModel& model);

inline constexpr size_t kMaxTextBytes = 32 << 20;

}  // namespace rumbo
