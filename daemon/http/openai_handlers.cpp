#include <chrono>

#include "base/status.h"
#include "daemon/http/handlers.h"
#include "daemon/http/inference.h"
#include "daemon/http/json_in.h"
#include "daemon/http/json_out.h"
#include "daemon/http/ollama_out.h"
#include "daemon/http/openai_in.h"
#include "daemon/http/openai_out.h"
#include "daemon/http/responses_in.h"
#include "daemon/http/responses_out.h"

namespace rumbo {
namespace {

void AppendModel(JsonWriter& w, const StoredModel& model) {
  int64_t created = 0;
  uint32_t context = 0;
  for (const auto& variant : model.variants) {
    created = std::max(created, variant.added_unix_s);
    context = std::max(context, variant.descriptor.context_trained);
  }
  w.Open('{').Key("id").String(model.name).Key("object").String("model").Key("created").Int(created);
  w.Key("owned_by").String("rumbo");
  // What Anthropic's clients read of the same route.
  w.Key("type")
      .String("model")
      .Key("display_name")
      .String(model.name)
      .Key("created_at")
      .String(Rfc3339(created));
  if (context > 0) w.Key("context_length").Uint(context);
  w.Close('}');
}

void Generate(ExchangePtr exchange, absl::StatusOr<DecodedRequest> decoded, bool chat) {
  if (!decoded.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, decoded.status()));
  OpenAiAnswerOptions options;
  options.chat = chat;
  options.stream = decoded->stream;
  options.include_usage = decoded->include_usage;
  options.model = decoded->model;
  options.created_unix_s = UnixSeconds();
  RunDecoded(std::move(exchange), *std::move(decoded), NewOpenAiEncoder(std::move(options)));
}

}  // namespace

void HandleModels(Api& api, ExchangePtr exchange) {
  api.core->ListModels([exchange](absl::StatusOr<std::vector<StoredModel>> models) {
    if (!models.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, models.status()));
    HttpReply reply;
    JsonWriter w(reply.body);
    w.Open('{').Key("object").String("list").Key("data").Open('[');
    for (const auto& model : *models) AppendModel(w, model);
    w.Close(']').Key("has_more").Bool(false);
    if (!models->empty())
      w.Key("first_id").String(models->front().name).Key("last_id").String(models->back().name);
    w.Close('}');
    exchange->Reply(std::move(reply));
  });
}

void HandleModel(Api& api, ExchangePtr exchange) {
  api.core->GetModel(exchange->request().argument, [exchange](absl::StatusOr<StoredModel> model) {
    if (!model.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, model.status()));
    HttpReply reply;
    JsonWriter w(reply.body);
    AppendModel(w, *model);
    exchange->Reply(std::move(reply));
  });
}

void HandleCompletions(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeCompletion(exchange->request().body, api.options.max_json_depth);
  Generate(std::move(exchange), std::move(decoded), false);
}

void HandleChatCompletions(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeChatCompletion(exchange->request().body, api.options.max_json_depth);
  Generate(std::move(exchange), std::move(decoded), true);
}

void HandleResponses(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeResponses(exchange->request().body, api.options.max_json_depth);
  if (!decoded.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, decoded.status()));
  ResponsesAnswerOptions options;
  options.stream = decoded->stream;
  options.model = decoded->model;
  options.created_unix_s = UnixSeconds();
  const ChatInput& chat = decoded->generate.input.chat;
  if (!chat.tools.empty())
    options.tools_json = OneLineJson(RawJson(exchange->request().body).Member("tools").text());
  if (!chat.tool_choice.empty()) options.tool_choice = chat.tool_choice;
  options.parallel_tool_calls = chat.tools.empty() || chat.parallel_tool_calls;
  RunDecoded(std::move(exchange), *std::move(decoded), NewResponsesEncoder(std::move(options)));
}

}  // namespace rumbo
