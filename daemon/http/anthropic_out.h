#pragma once

#include <memory>
#include <string>

#include "daemon/http/answer_encoder.h"

namespace rumbo {

struct AnthropicAnswerOptions {
  bool stream = false;
  // Cached tokens are told apart from input tokens only where the client marked what to cache, as the real
  // service does; otherwise input_tokens is the whole prompt.
  bool reports_cache = false;
  std::string model;
};

std::unique_ptr<AnswerEncoder> NewAnthropicEncoder(AnthropicAnswerOptions options);

}  // namespace rumbo
