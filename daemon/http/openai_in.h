#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/http/decoded.h"

// OpenAI's request bodies. Pure; any thread. Errors are kInvalidArgument naming the field. Unknown fields are
// tolerated, as the real service does; a known one with a value that cannot be honoured is refused.
namespace rumbo {

absl::StatusOr<DecodedRequest> DecodeCompletion(std::string_view body, size_t max_depth = 64);
absl::StatusOr<DecodedRequest> DecodeChatCompletion(std::string_view body, size_t max_depth = 64);

}  // namespace rumbo
