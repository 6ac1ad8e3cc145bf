#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engines/llamacpp/core/job.h"

struct common_chat_params;

namespace rumbo {

// Reads an answer as the template's format writes it: content, reasoning and tool calls, as they become
// certain. Null where the format is plain text. Any thread to make; used on the decode loop.
absl::StatusOr<std::unique_ptr<AnswerFormat>> MakeChatFormat(const common_chat_params& params,
                                                             bool parse_tool_calls, bool continues_message);

}  // namespace rumbo
