#pragma once

#include <memory>

#include "daemon/http/answer_encoder.h"
#include "daemon/http/json_out.h"

namespace rumbo {

struct OpenAiAnswerOptions {
  bool chat = true;
  bool stream = false;
  bool include_usage = false;
  std::string model;
  int64_t created_unix_s = 0;
};

std::unique_ptr<AnswerEncoder> NewOpenAiEncoder(OpenAiAnswerOptions options);

// {"prompt_tokens":..,"completion_tokens":..,"total_tokens":..,"prompt_tokens_details":{..}}
void AppendOpenAiUsage(std::string& out, const FinishedEvent& finished, uint32_t reasoning_tokens);
// "stop", "length", "tool_calls"
const char* OpenAiFinishReason(std::string_view reason);
// What follows "req-" in a request id.
std::string_view IdSuffix(std::string_view request_id);
// [{"id","token","logprob","bytes","top_logprobs"}], bytes as the engine gave them.
void AppendLogprobContent(std::string& out, const std::vector<TokenLogprob>& logprobs);

}  // namespace rumbo
