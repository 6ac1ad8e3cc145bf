#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "daemon/http/exchange.h"

namespace rumbo {

enum class Dialect { kOpenAi, kAnthropic, kOllama, kRumbo };

// An INVALID_ARGUMENT that names the field of the request: "temperature", "messages[2].content".
absl::Status FieldError(std::string_view field, std::string_view message);
std::string FieldOf(const absl::Status& status);  // "" where it names none

// The HTTP status for an error, the same in every dialect.
int HttpStatusOf(const absl::Status& status);

// Message and next step in one line, without control characters or ill-formed UTF-8.
std::string ErrorText(const absl::Status& status);

// The error object alone, as it also stands inside streams.
void AppendOpenAiError(std::string& out, const absl::Status& status);
void AppendAnthropicError(std::string& out, const absl::Status& status);
void AppendOllamaError(std::string& out, const absl::Status& status);
// {"error":{"code","reason","message","next_step","field","retry_after_ms"}}: gRPC's words, nothing folded.
void AppendRumboError(std::string& out, const absl::Status& status);

// The whole answer: status, body in the dialect's shape, Retry-After where the error says when a retry makes
// sense, and x-should-retry, which the OpenAI and Anthropic clients obey.
HttpReply ErrorReply(Dialect dialect, const absl::Status& status);

}  // namespace rumbo
