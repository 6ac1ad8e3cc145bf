#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "engines/api/engine.h"
#include "engines/llamacpp/core/model_port.h"

namespace rumbo {

// Turns the text of an answer into events: content, reasoning, tool calls. Without one, all text is content.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // `text` came next. Appends what is known for sure to `chunk`. Errors end the answer.
  virtual absl::Status Add(std::string_view text, ChunkEvent* chunk) = 0;
  // The answer is over: appends the rest.
  virtual absl::Status Finish(ChunkEvent* chunk) = 0;
  // The answer holds at least one tool call.
  virtual bool called_tools() const = 0;
};

// One request, ready for the scheduler: validated, tokenised, with its sampler built.
struct Job {
  uint64_t id = 0;
  std::vector<TokenId> prompt;
  // Requests share cached prompts only where this is equal: the owner, and the adapters in use.
  std::string cache_key;
  uint32_t adapters = 0;  // the set in use, as BatchToken::adapters
  Priority priority = Priority::kNormal;
  uint32_t max_tokens = UINT32_MAX;  // of the answer
  bool logprobs = false;
  std::vector<std::string> stop;
  // Control tokens whose text belongs to the answer (tool call markers).
  std::unordered_set<TokenId> visible_control;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<AnswerFormat> format;  // null: plain text
  std::shared_ptr<GenerateSink> sink;
  Clock::TimePoint submitted{};
};

}  // namespace rumbo
