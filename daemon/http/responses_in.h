#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/http/decoded.h"

// OpenAI's Responses, without server-side state: the conversation comes with each request. Pure; any thread.
namespace rumbo {

absl::StatusOr<DecodedRequest> DecodeResponses(std::string_view body, size_t max_depth = 64);

}  // namespace rumbo
