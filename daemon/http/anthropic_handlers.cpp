#include "daemon/http/anthropic_in.h"
#include "daemon/http/anthropic_out.h"
#include "daemon/http/engine_call.h"
#include "daemon/http/handlers.h"
#include "daemon/http/inference.h"
#include "daemon/http/json_out.h"

namespace rumbo {

void HandleMessages(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeMessages(exchange->request().body, false, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  AnthropicAnswerOptions options;
  options.stream = decoded->stream;
  options.reports_cache = decoded->reports_cache;
  options.model = decoded->model;
  RunDecoded(std::move(exchange), *std::move(decoded), NewAnthropicEncoder(std::move(options)));
}

// Through the model's own template, tools included: the number that message_start will report.
void HandleCountTokens(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeMessages(exchange->request().body, true, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  const std::string model = decoded->model;
  auto chat = std::make_shared<ChatInput>(std::move(decoded->generate.input.chat));
  WithModel(api, exchange, model, std::nullopt, [exchange, chat](Core::ReadyEngine ready) {
    Engine& engine = *ready.engine;
    engine.ApplyTemplate(*chat, ShortCallDeadline(),
                         [exchange, ready = std::move(ready)](absl::StatusOr<TemplateResult> result) {
                           if (!result.ok()) return ReplyError(exchange, result.status());
                           std::string body;
                           JsonWriter(body).Open('{').Key("input_tokens").Uint(result->tokens).Close('}');
                           ReplyJson(exchange, std::move(body), &ready.placement);
                         });
  });
}

}  // namespace rumbo
