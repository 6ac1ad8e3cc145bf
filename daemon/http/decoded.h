#pragma once

#include <optional>
#include <string>

#include "engines/api/request.h"

namespace rumbo {

// What every dialect's generating calls decode into: one form, so that the same question asked in three
// dialects is one request.
struct DecodedRequest {
  std::string model;
  GenerateRequest generate;
  bool stream = false;
  bool include_usage = false;           // OpenAI streams: usage in a last chunk
  bool reports_cache = false;           // Anthropic: the client marked what to cache
  std::optional<int64_t> keep_alive_s;  // Ollama; negative: always
  std::optional<uint32_t> context;      // Ollama: tokens the app expects
};

}  // namespace rumbo
