#include <algorithm>

#include "base/utf8.h"
#include "daemon/http/engine_call.h"
#include "daemon/http/handlers.h"
#include "daemon/http/json_out.h"
#include "daemon/http/token_in.h"
#include "daemon/http/vectors.h"
#include "engines/api/vectors.h"

namespace rumbo {
namespace {

void AppendPromptUsage(JsonWriter& w, uint32_t prompt_tokens) {
  w.Key("usage").Open('{').Key("prompt_tokens").Uint(prompt_tokens);
  w.Key("total_tokens").Uint(prompt_tokens).Close('}');
}

std::string EmbeddingsBody(const EmbeddingsRequest& request, const EmbeddingResult& result) {
  std::string body;
  JsonWriter w(body);
  w.Open('{').Key("object").String("list").Key("model").String(request.model).Key("data").Open('[');
  for (size_t i = 0; i < result.embeddings.size(); ++i) {
    const std::vector<float>& vector = result.embeddings[i];
    w.Open('{').Key("object").String("embedding").Key("index").Uint(i).Key("embedding");
    request.base64 ? static_cast<void>(w.String(VectorBase64(vector))) : AppendVector(w, vector);
    w.Close('}');
  }
  w.Close(']');
  AppendPromptUsage(w, result.prompt_tokens);
  w.Close('}');
  return body;
}

std::string RerankBody(const RerankRequest& request, const RerankScores& scores) {
  std::vector<size_t> order(scores.scores.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores.scores[a] > scores.scores[b]; });
  if (request.top_n > 0 && order.size() > request.top_n) order.resize(request.top_n);
  std::string body;
  JsonWriter w(body);
  w.Open('{').Key("object").String("list").Key("model").String(request.model).Key("results").Open('[');
  for (const size_t i : order) {
    w.Open('{').Key("index").Uint(i).Key("relevance_score").Float(scores.scores[i]);
    if (request.return_documents && i < request.documents.size()) {
      w.Key("document").Open('{').Key("text").String(request.documents[i]).Close('}');
    }
    w.Close('}');
  }
  w.Close(']');
  AppendPromptUsage(w, scores.prompt_tokens);
  w.Close('}');
  return body;
}

std::string TokensBody(const TokenizeRequest& request, const TokenizeResult& result) {
  std::string body;
  JsonWriter w(body);
  w.Open('{').Key("tokens").Open('[');
  for (size_t i = 0; i < result.ids.size(); ++i) {
    if (!request.with_pieces) {
      w.Int(result.ids[i]);
      continue;
    }
    const std::string piece = i < result.pieces.size() ? result.pieces[i] : std::string();
    w.Open('{').Key("id").Int(result.ids[i]).Key("piece");
    if (IsValidUtf8(piece)) {
      w.String(piece);
    } else {
      w.Open('[');
      for (const char c : piece) w.Uint(static_cast<unsigned char>(c));
      w.Close(']');
    }
    w.Close('}');
  }
  w.Close(']').Key("count").Uint(result.ids.size()).Close('}');
  return body;
}

}  // namespace

void HandleEmbeddings(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeEmbeddings(exchange->request().body, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  const auto request = std::make_shared<EmbeddingsRequest>(*std::move(decoded));
  WithModel(
      api, exchange, request->model, std::nullopt,
      [exchange, request](Core::ReadyEngine ready) {
        Engine& engine = *ready.engine;
        engine.Embed(request->inputs, "", true, ShortCallDeadline(),
                     [exchange, request, ready = std::move(ready)](absl::StatusOr<EmbeddingResult> result) {
                       if (!result.ok()) return ReplyError(exchange, result.status());
                       for (auto& vector : result->embeddings) {
                         if (const absl::Status cut = Shorten(request->dimensions, true, &vector); !cut.ok())
                           return ReplyError(exchange, cut);
                       }
                       ReplyJson(exchange, EmbeddingsBody(*request, *result), &ready.placement);
                     });
      },
      InstanceUse::kVectors);
}

void HandleRerank(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeRerank(exchange->request().body, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  const auto request = std::make_shared<RerankRequest>(*std::move(decoded));
  WithModel(
      api, exchange, request->model, std::nullopt,
      [exchange, request](Core::ReadyEngine ready) {
        Engine& engine = *ready.engine;
        engine.Rerank(request->query, request->documents, ShortCallDeadline(),
                      [exchange, request, ready = std::move(ready)](absl::StatusOr<RerankScores> scores) {
                        if (!scores.ok()) return ReplyError(exchange, scores.status());
                        ReplyJson(exchange, RerankBody(*request, *scores), &ready.placement);
                      });
      },
      InstanceUse::kVectors);
}

void HandleTokenize(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeTokenize(exchange->request().body, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  const auto request = std::make_shared<TokenizeRequest>(*std::move(decoded));
  WithDefaultModel(api, exchange, request->model, [&api, exchange, request](std::string model) {
    WithModel(api, exchange, std::move(model), std::nullopt, [exchange, request](Core::ReadyEngine ready) {
      Engine& engine = *ready.engine;
      engine.Tokenize(request->text, request->add_special, request->parse_special, ShortCallDeadline(),
                      [exchange, request, ready = std::move(ready)](absl::StatusOr<TokenizeResult> result) {
                        if (!result.ok()) return ReplyError(exchange, result.status());
                        ReplyJson(exchange, TokensBody(*request, *result), &ready.placement);
                      });
    });
  });
}

void HandleDetokenize(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeDetokenize(exchange->request().body, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  const auto request = std::make_shared<DetokenizeRequest>(*std::move(decoded));
  WithDefaultModel(api, exchange, request->model, [&api, exchange, request](std::string model) {
    WithModel(api, exchange, std::move(model), std::nullopt, [exchange, request](Core::ReadyEngine ready) {
      Engine& engine = *ready.engine;
      engine.Detokenize(
          request->ids, ShortCallDeadline(),
          [exchange, ready = std::move(ready)](absl::StatusOr<std::string> text) {
            if (!text.ok()) return ReplyError(exchange, text.status());
            std::string body;
            JsonWriter(body).Open('{').Key("content").String(*text).Key("prompt").String(*text).Close('}');
            ReplyJson(exchange, std::move(body), &ready.placement);
          });
    });
  });
}

// What apps ask llama-server for: the model, its context and its template. ?model=NAME where more than one is
// there.
void HandleProps(Api& api, ExchangePtr exchange) {
  std::string model;
  const std::string& query = exchange->request().query;
  if (query.substr(0, 6) == "model=") model = query.substr(6, query.find('&') - 6);
  WithDefaultModel(api, exchange, std::move(model), [&api, exchange](std::string name) {
    WithModel(api, exchange, name, std::nullopt, [&api, exchange, name](Core::ReadyEngine ready) {
      api.core->GetModel(name, [exchange, name, ready](absl::StatusOr<StoredModel> stored) {
        const auto& settings = ready.info.settings;
        std::string body;
        JsonWriter w(body);
        w.Open('{').Key("model_alias").String(name).Key("total_slots").Uint(settings.sessions.value_or(0));
        w.Key("default_generation_settings")
            .Open('{')
            .Key("n_ctx")
            .Uint(settings.context_per_session.value_or(0));
        w.Close('}').Key("n_ctx_train").Uint(ready.info.context_trained);
        const bool known = stored.ok() && !stored->variants.empty();
        w.Key("chat_template").String(known ? stored->variants.front().descriptor.chat_template : "");
        w.Key("build_info").String("rumbo " + ready.placement.engine + " " + ready.info.version).Close('}');
        ReplyJson(exchange, std::move(body), &ready.placement);
      });
    });
  });
}

}  // namespace rumbo
