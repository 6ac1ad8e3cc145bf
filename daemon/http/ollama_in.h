#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/http/decoded.h"

// Ollama's request bodies. Pure; any thread. Errors are kInvalidArgument naming the field; unknown fields and
// unknown options are tolerated, as Ollama does.
namespace rumbo {

struct OllamaRequest {
  DecodedRequest request;
  // No prompt and no message: only load the model, or unload it where keep_alive is 0.
  bool only_load = false;
  // generate without "raw": the prompt goes through the model's template where it has one.
  bool templated_prompt = false;
};

absl::StatusOr<OllamaRequest> DecodeOllamaGenerate(std::string_view body, size_t max_depth = 64);
absl::StatusOr<OllamaRequest> DecodeOllamaChat(std::string_view body, size_t max_depth = 64);

struct OllamaEmbedRequest {
  std::string model;
  std::vector<std::string> inputs;
  uint32_t dimensions = 0;
  std::optional<int64_t> keep_alive_s;
};
// "input" of /api/embed, or "prompt" of the older /api/embeddings.
absl::StatusOr<OllamaEmbedRequest> DecodeOllamaEmbed(std::string_view body, size_t max_depth = 64);

// {"model"|"name": ...} of show, pull, delete. An empty "model" beside a "name" is what their own client
// sends.
absl::StatusOr<std::string> DecodeOllamaName(std::string_view body, size_t max_depth = 64);

// Our name for theirs: without the ":latest" that their clients add.
std::string FromOllamaName(std::string_view name);
// Their name for ours: with ":latest" where there is no tag.
std::string ToOllamaName(std::string_view name);

// "5m", "1h30m", "-1", "300ms" in seconds, rounded up; negative: always. nullopt where it is no duration.
std::optional<int64_t> ParseDuration(std::string_view text);

}  // namespace rumbo
