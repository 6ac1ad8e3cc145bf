#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/http/decoded.h"

// Anthropic's Messages. Pure; any thread. Errors are kInvalidArgument naming the field; unknown fields are
// tolerated.
namespace rumbo {

// `counting`: for count_tokens, where max_tokens is not required.
absl::StatusOr<DecodedRequest> DecodeMessages(std::string_view body, bool counting, size_t max_depth = 64);

}  // namespace rumbo
