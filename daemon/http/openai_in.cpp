#include "daemon/http/openai_in.h"

#include "base/status.h"
#include "daemon/http/chat_in.h"
#include "daemon/http/json_in.h"
#include "daemon/http/sampling_in.h"

namespace rumbo {
namespace {

constexpr int64_t kInt31 = 2147483647;

void ReadMaxTokens(Fields& fields, SamplingParams& out) {
  // The newest name wins where a client sends several. llama.cpp's -1 means no limit of the client's.
  const json::value* predict = fields.Find("n_predict");
  const bool unlimited = predict != nullptr && AsInt(*predict, -1, -1).has_value();
  if (const auto value = unlimited ? std::nullopt : fields.Int("n_predict", 1, kInt31)) {
    out.max_tokens = static_cast<uint32_t>(*value);
  }
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    if (const auto value = fields.Int(key, 1, kInt31)) out.max_tokens = static_cast<uint32_t>(*value);
  }
}

void ReadShared(Fields& fields, const RawJson& raw, DecodedRequest& out) {
  const auto model = fields.String("model");
  if (!model || model->empty()) fields.Fail("model", "must name a model");
  out.model = std::string(model.value_or(""));
  SamplingParams& sampling = out.generate.sampling;
  ReadMaxTokens(fields, sampling);
  ReadCommonSampling(fields, sampling);
  ReadStop(fields, "stop", sampling);
  ReadLogitBias(fields, sampling);
  ReadConstraints(fields, raw, sampling);
  if (const auto seed = fields.Uint64("seed")) sampling.seed = *seed;
  if (const auto n = fields.Int("n", 1, 128); n.value_or(1) != 1) fields.Fail("n", "only 1 is supported");
  if (const auto stream = fields.Bool("stream")) out.stream = *stream;
  if (const json::object* options = fields.Object("stream_options")) {
    Fields inner(*options, "stream_options", fields.status());
    out.include_usage = inner.Bool("include_usage").value_or(false);
  }
}

void ReadPrompt(Fields& fields, GenerateInput& input) {
  const json::value* prompt = fields.Find("prompt");
  if (prompt == nullptr) return fields.Fail("prompt", "is required");
  // One prompt per request; a list of one is the same thing.
  if (prompt->is_array() && prompt->get_array().size() == 1 && !prompt->get_array()[0].is_number()) {
    prompt = &prompt->get_array()[0];
  }
  if (prompt->is_string()) {
    input.prompt = std::string(View(prompt->get_string()));
    return;
  }
  if (!prompt->is_array() || prompt->get_array().empty()) {
    return fields.Fail("prompt", "must be a string or a list of token numbers");
  }
  input.kind = GenerateInput::Kind::kTokens;
  for (const json::value& token : prompt->get_array()) {
    const auto id = AsInt(token, 0, kInt31);
    if (!id) return fields.Fail("prompt", "must be one string or one list of token numbers");
    input.tokens.push_back(static_cast<int32_t>(*id));
  }
}

}  // namespace

absl::StatusOr<DecodedRequest> DecodeCompletion(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  DecodedRequest out;
  ReadShared(fields, RawJson(body), out);
  ReadPrompt(fields, out.generate.input);
  if (const auto logprobs = fields.Int("logprobs", 0, 20)) {
    out.generate.sampling.logprobs = static_cast<uint32_t>(*logprobs);
  }
  if (fields.Bool("echo").value_or(false)) fields.Fail("echo", "is not supported");
  if (!fields.String("suffix").value_or("").empty()) fields.Fail("suffix", "is not supported");
  if (fields.Int("best_of", 1, 128).value_or(1) != 1) fields.Fail("best_of", "only 1 is supported");
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<DecodedRequest> DecodeChatCompletion(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  DecodedRequest out;
  const RawJson raw(body);
  ReadShared(fields, raw, out);
  out.generate.input.kind = GenerateInput::Kind::kChat;
  ReadOpenAiChat(fields, raw, out.generate.input.chat);
  out.generate.input.chat.continue_final_message =
      fields.Bool("continue_final_message").value_or(false);  // vLLM's
  const auto top = fields.Int("top_logprobs", 0, 20);
  if (fields.Bool("logprobs").value_or(false)) {
    out.generate.sampling.logprobs = static_cast<uint32_t>(top.value_or(0));
  } else if (top.value_or(0) > 0) {
    fields.Fail("top_logprobs", "needs logprobs: true");
  }
  if (!status.ok()) return status;
  return out;
}

}  // namespace rumbo
