#pragma once

#include <string>
#include <vector>

#include "engines/api/request.h"

namespace rumbo {

// Tool arguments as a JSON object, for dialects where they are part of the document: the text itself where it
// is one, else {} (a model may have been cut off in the middle of its arguments).
std::string ObjectOrEmpty(const std::string& arguments_json);

// The tokens of a chunk that are reasoning alone; chunks that mix both count as answer.
inline uint32_t ReasoningTokens(const ChunkEvent& chunk) {
  return !chunk.reasoning.empty() && chunk.text.empty() && chunk.tool_calls.empty() ? chunk.tokens : 0;
}

// An answer put together from its chunks, for callers that wait for the whole of it.
struct GatheredAnswer {
  std::string text;
  std::string reasoning;
  std::vector<TokenLogprob> logprobs;
  std::vector<ToolCall> tool_calls;
  uint32_t reasoning_tokens = 0;

  void Add(ChunkEvent& chunk) {
    reasoning_tokens += ReasoningTokens(chunk);
    text += chunk.text;
    reasoning += chunk.reasoning;
    for (auto& logprob : chunk.logprobs) logprobs.push_back(std::move(logprob));
    for (auto& delta : chunk.tool_calls) {
      if (delta.index > 1024) continue;  // no engine has so many; its bug is not our memory
      if (delta.index >= tool_calls.size()) tool_calls.resize(delta.index + 1);
      ToolCall& call = tool_calls[delta.index];
      call.id += delta.id;
      call.name += delta.name;
      call.arguments_json += delta.arguments_json;
    }
  }
};

}  // namespace rumbo
