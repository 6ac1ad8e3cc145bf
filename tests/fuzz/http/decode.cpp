// Request bodies of every dialect. The first byte chooses the decoder. What is accepted is a request that the
// engines' own check can judge, and texts cut out of it (schemas, arguments) are JSON themselves.
#include <boost/json.hpp>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "daemon/http/anthropic_in.h"
#include "daemon/http/ollama_in.h"
#include "daemon/http/openai_in.h"
#include "daemon/http/responses_in.h"
#include "daemon/http/token_in.h"
#include "engines/api/sampling_limits.h"

namespace {

void MustBeJson(std::string_view text) {
  if (text.empty()) return;
  boost::json::error_code error;
  boost::json::parse_options options;
  options.max_depth = 64;
  boost::json::parse({text.data(), text.size()}, error, {}, options);
  if (error) std::abort();
}

void Check(const rumbo::GenerateRequest& request) {
  static_cast<void>(rumbo::ValidateGenerateRequest(request));
  if (!rumbo::ValidateSampling(request.sampling).ok() &&
      !(request.sampling.min_tokens && request.sampling.max_tokens) &&
      request.sampling.json_schema.size() < (1 << 20) && request.sampling.grammar.size() < (1 << 20) &&
      request.sampling.regex.size() < (1 << 20)) {
    std::abort();  // a range that the two checks do not share
  }
  MustBeJson(request.sampling.json_schema);
  for (const auto& tool : request.input.chat.tools) MustBeJson(tool.parameters_json_schema);
  for (const auto& [key, value] : request.input.chat.template_args) MustBeJson(value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto check = [](const auto& decoded) {
    if (decoded.ok()) Check(decoded->generate);
  };
  switch (data[0] % 12) {
    case 0:
      check(rumbo::DecodeCompletion(body));
      break;
    case 1:
      check(rumbo::DecodeChatCompletion(body));
      break;
    case 2:
      check(rumbo::DecodeMessages(body, false));
      break;
    case 3:
      check(rumbo::DecodeResponses(body));
      break;
    case 4:
      if (const auto decoded = rumbo::DecodeOllamaGenerate(body); decoded.ok())
        Check(decoded->request.generate);
      break;
    case 5:
      if (const auto decoded = rumbo::DecodeOllamaChat(body); decoded.ok()) Check(decoded->request.generate);
      break;
    case 6:
      static_cast<void>(rumbo::DecodeOllamaEmbed(body));
      break;
    case 7:
      static_cast<void>(rumbo::DecodeEmbeddings(body));
      break;
    case 8:
      static_cast<void>(rumbo::DecodeRerank(body));
      break;
    case 9:
      static_cast<void>(rumbo::DecodeTokenize(body));
      break;
    case 10:
      static_cast<void>(rumbo::DecodeDetokenize(body));
      break;
    default:
      static_cast<void>(rumbo::ParseDuration(body));
      break;
  }
  return 0;
}
