#pragma once

#include <memory>
#include <string>

#include "daemon/http/answer_encoder.h"

namespace rumbo {

struct ResponsesAnswerOptions {
  bool stream = false;
  std::string model;
  int64_t created_unix_s = 0;
  // Said again in the answer, as the real service does.
  std::string tools_json = "[]";
  std::string tool_choice = "auto";
  bool parallel_tool_calls = true;
};

std::unique_ptr<AnswerEncoder> NewResponsesEncoder(ResponsesAnswerOptions options);

}  // namespace rumbo
