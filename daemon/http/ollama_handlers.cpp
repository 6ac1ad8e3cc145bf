#include "base/status.h"
#include "daemon/http/engine_call.h"
#include "daemon/http/handlers.h"
#include "daemon/http/inference.h"
#include "daemon/http/json_out.h"
#include "daemon/http/ollama_in.h"
#include "daemon/http/ollama_out.h"
#include "daemon/http/vectors.h"
#include "engines/api/vectors.h"

namespace rumbo {
namespace {

// The level of Ollama's API that these routes speak; clients compare it with what they need.
constexpr char kOllamaApiVersion[] = "0.12.0";

void Run(ExchangePtr exchange, DecodedRequest request, bool chat) {
  OllamaAnswerOptions options;
  options.chat = chat;
  options.stream = request.stream;
  options.model = ToOllamaName(request.model);
  RunDecoded(std::move(exchange), std::move(request), NewOllamaEncoder(std::move(options)));
}

void LoadOrUnload(Api& api, ExchangePtr exchange, const DecodedRequest& request, bool chat) {
  OllamaAnswerOptions options;
  options.chat = chat;
  options.stream = request.stream;
  options.model = ToOllamaName(request.model);
  const auto answer = [exchange, options](const char* done_reason) {
    HttpReply reply;
    if (options.stream) reply.content_type = "application/x-ndjson";
    reply.body = OllamaLoadAnswer(options, done_reason);
    exchange->Reply(std::move(reply));
  };
  if (request.keep_alive_s == 0) {
    // Who may only ask must not end what others run.
    const HttpRequest& http = exchange->request();
    if (!http.own_user && (http.scopes & (1u << static_cast<int>(Scope::kModels))) == 0) {
      return ReplyError(exchange, Error(absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied,
                                        "unloading a model needs the scope models",
                                        "Ask the owner of this daemon for such a token."));
    }
    api.core->UnloadModel(request.model, std::nullopt,
                          [exchange, answer](absl::StatusOr<std::vector<std::string>> stopped) {
                            // A model that is not loaded is as unloaded as asked for.
                            if (!stopped.ok() && ReasonOf(stopped.status()) != Reason::kInstanceNotFound) {
                              return ReplyError(exchange, stopped.status());
                            }
                            answer("unload");
                          });
    return;
  }
  LoadSpec spec;
  spec.model = request.model;
  spec.keep_alive_s = request.keep_alive_s;
  spec.workload.context = request.context;
  api.core->LoadModel(
      std::move(spec), [](const StepProgress&) {},
      [exchange, answer](absl::StatusOr<LoadResult> loaded) {
        if (!loaded.ok()) return ReplyError(exchange, loaded.status());
        answer("load");
      });
}

// A model without a chat template gets the prompt as it is, as Ollama does with its empty template.
DecodedRequest WithoutTemplate(DecodedRequest request) {
  GenerateInput& input = request.generate.input;
  input.kind = GenerateInput::Kind::kPrompt;
  for (const auto& message : input.chat.messages) {
    for (const auto& part : message.content) {
      if (!input.prompt.empty()) input.prompt += "\n\n";
      input.prompt += part.text;
    }
  }
  input.chat = ChatInput();
  return request;
}

std::string Parameters(uint64_t count) {
  char text[32];
  if (count >= 1000000000) {
    std::snprintf(text, sizeof text, "%.1fB", static_cast<double>(count) / 1e9);
  } else {
    std::snprintf(text, sizeof text, "%.2fM", static_cast<double>(count) / 1e6);
  }
  return count == 0 ? "" : text;
}

const StoredVariant* First(const StoredModel& model) {
  return model.variants.empty() ? nullptr : &model.variants.front();
}

void AppendDetails(JsonWriter& w, const StoredVariant* variant) {
  const ModelDescriptor descriptor = variant == nullptr ? ModelDescriptor() : variant->descriptor;
  w.Open('{').Key("parent_model").String("").Key("format").String(descriptor.format);
  w.Key("family")
      .String(descriptor.architecture)
      .Key("families")
      .Open('[')
      .String(descriptor.architecture)
      .Close(']');
  w.Key("parameter_size").String(Parameters(descriptor.parameters));
  w.Key("quantization_level").String(descriptor.quantization).Close('}');
}

void AppendIdentity(JsonWriter& w, const StoredModel& model) {
  const StoredVariant* variant = First(model);
  const std::string name = ToOllamaName(model.name);
  w.Key("name").String(name).Key("model").String(name);
  w.Key("size").Uint(variant == nullptr ? 0 : variant->descriptor.file_bytes);
  w.Key("digest").String(variant == nullptr ? "" : variant->sha256).Key("details");
  AppendDetails(w, variant);
}

const char* OllamaCapability(std::string_view capability) {
  if (capability == "generate") return "completion";
  if (capability == "tools" || capability == "vision" || capability == "thinking") return capability.data();
  if (capability == "embed") return "embedding";
  return nullptr;
}

void AppendShow(std::string& out, const StoredModel& model) {
  const StoredVariant* variant = First(model);
  const ModelDescriptor descriptor = variant == nullptr ? ModelDescriptor() : variant->descriptor;
  JsonWriter w(out);
  w.Open('{').Key("modelfile").String("# made by rumbo\nFROM " + model.name).Key("parameters").String("");
  w.Key("template").String(descriptor.chat_template).Key("details");
  AppendDetails(w, variant);
  const std::string& arch = descriptor.architecture;
  w.Key("model_info").Open('{').Key("general.architecture").String(arch);
  w.Key("general.parameter_count").Uint(descriptor.parameters);
  if (descriptor.context_trained > 0) w.KeyEscaped(arch + ".context_length").Uint(descriptor.context_trained);
  if (descriptor.embedding_length > 0)
    w.KeyEscaped(arch + ".embedding_length").Uint(descriptor.embedding_length);
  w.KeyEscaped(arch + ".block_count").Uint(descriptor.layers.size());
  for (const auto& [key, value] : descriptor.metadata) w.KeyEscaped(key).String(value);
  w.Close('}').Key("capabilities").Open('[');
  for (const auto& capability : descriptor.capabilities) {
    if (const char* word = OllamaCapability(capability)) w.String(word);
  }
  w.Close(']');
  if (variant != nullptr) w.Key("modified_at").String(Rfc3339(variant->added_unix_s));
  w.Close('}');
}

}  // namespace

void HandleOllamaGenerate(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeOllamaGenerate(exchange->request().body, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  if (decoded->only_load) return LoadOrUnload(api, std::move(exchange), decoded->request, false);
  if (!decoded->templated_prompt) return Run(std::move(exchange), std::move(decoded->request), false);
  auto request = std::make_shared<DecodedRequest>(std::move(decoded->request));
  api.core->GetModel(request->model, [exchange, request](absl::StatusOr<StoredModel> model) {
    if (!model.ok()) return ReplyError(exchange, model.status());
    const StoredVariant* variant = First(*model);
    const bool templated = variant == nullptr || variant->descriptor.has_chat_template;
    Run(exchange, templated ? std::move(*request) : WithoutTemplate(std::move(*request)), false);
  });
}

void HandleOllamaChat(Api& api, ExchangePtr exchange) {
  auto decoded = DecodeOllamaChat(exchange->request().body, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  if (decoded->only_load) return LoadOrUnload(api, std::move(exchange), decoded->request, true);
  Run(std::move(exchange), std::move(decoded->request), true);
}

void HandleOllamaTags(Api& api, ExchangePtr exchange) {
  api.core->ListModels([exchange](absl::StatusOr<std::vector<StoredModel>> models) {
    if (!models.ok()) return ReplyError(exchange, models.status());
    std::string body;
    JsonWriter w(body);
    w.Open('{').Key("models").Open('[');
    for (const auto& model : *models) {
      w.Open('{');
      AppendIdentity(w, model);
      const StoredVariant* variant = First(model);
      w.Key("modified_at").String(Rfc3339(variant == nullptr ? 0 : variant->added_unix_s)).Close('}');
    }
    w.Close(']').Close('}');
    ReplyJson(exchange, std::move(body));
  });
}

void HandleOllamaShow(Api& api, ExchangePtr exchange) {
  auto name = DecodeOllamaName(exchange->request().body, api.options.max_json_depth);
  if (!name.ok()) return ReplyError(exchange, name.status());
  api.core->GetModel(*std::move(name), [exchange](absl::StatusOr<StoredModel> model) {
    if (!model.ok()) return ReplyError(exchange, model.status());
    std::string body;
    AppendShow(body, *model);
    ReplyJson(exchange, std::move(body));
  });
}

void HandleOllamaPs(Api& api, ExchangePtr exchange) {
  api.core->ListInstances([&api, exchange](absl::StatusOr<std::vector<InstanceInfo>> instances) {
    if (!instances.ok()) return ReplyError(exchange, instances.status());
    api.core->ListModels(
        [exchange, instances = *std::move(instances)](absl::StatusOr<std::vector<StoredModel>> models) {
          std::string body;
          JsonWriter w(body);
          w.Open('{').Key("models").Open('[');
          for (const auto& instance : instances) {
            if (instance.state != InstanceState::kReady) continue;
            StoredModel model;
            model.name = instance.model;
            if (models.ok()) {
              for (const auto& stored : *models) {
                if (stored.name == instance.model) model = stored;
              }
            }
            Bytes vram = 0;
            for (const auto& item : instance.memory) {
              if (item.pool != "system") vram += item.bytes;
            }
            w.Open('{');
            AppendIdentity(w, model);
            w.Key("size_vram").Uint(vram).Key("context_length").Uint(instance.context_per_session);
            // When it would be unloaded is not known here; far away rather than a guess.
            w.Key("expires_at").String("2318-01-01T00:00:00Z").Close('}');
          }
          w.Close(']').Close('}');
          ReplyJson(exchange, std::move(body));
        });
  });
}

void HandleOllamaVersion(Api& api, ExchangePtr exchange) {
  std::string body;
  JsonWriter(body)
      .Open('{')
      .Key("version")
      .String(kOllamaApiVersion)
      .Key("rumbo")
      .String(api.options.version)
      .Close('}');
  ReplyJson(exchange, std::move(body));
}

// Says success for what is there already; fetching is not built yet and says so.
void HandleOllamaPull(Api& api, ExchangePtr exchange) {
  auto name = DecodeOllamaName(exchange->request().body, api.options.max_json_depth);
  if (!name.ok()) return ReplyError(exchange, name.status());
  api.core->GetModel(*std::move(name), [exchange](absl::StatusOr<StoredModel> model) {
    if (model.ok()) return ReplyJson(exchange, "{\"status\":\"success\"}\n");
    if (ReasonOf(model.status()) != Reason::kModelNotFound) return ReplyError(exchange, model.status());
    ReplyError(exchange, Error(absl::StatusCode::kUnimplemented, Reason::kNotImplemented,
                               "pulling models over this API is not implemented yet",
                               "Import a file with `rumbo import PATH --name NAME`."));
  });
}

void HandleOllamaDelete(Api& api, ExchangePtr exchange) {
  auto name = DecodeOllamaName(exchange->request().body, api.options.max_json_depth);
  if (!name.ok()) return ReplyError(exchange, name.status());
  api.core->DeleteModel(*name, [exchange, name = *name](absl::StatusOr<Bytes> freed) {
    HttpReply reply;
    if (!freed.ok()) reply = ErrorReply(Dialect::kOllama, freed.status());
    reply.subject = name;
    exchange->Reply(std::move(reply));
  });
}

namespace {

void Embed(Api& api, ExchangePtr exchange, bool older) {
  auto decoded = DecodeOllamaEmbed(exchange->request().body, api.options.max_json_depth);
  if (!decoded.ok()) return ReplyError(exchange, decoded.status());
  const auto request = std::make_shared<OllamaEmbedRequest>(*std::move(decoded));
  const auto begun = std::chrono::steady_clock::now();
  WithModel(
      api, exchange, request->model, request->keep_alive_s,
      [=](Core::ReadyEngine ready) {
        Engine& engine = *ready.engine;
        const auto loaded = std::chrono::steady_clock::now();
        // The older route gives the vector as the model makes it, the newer one unit vectors.
        engine.Embed(
            request->inputs, "", !older, ShortCallDeadline(),
            [=, ready = std::move(ready)](absl::StatusOr<EmbeddingResult> result) {
              if (!result.ok()) return ReplyError(exchange, result.status());
              for (auto& vector : result->embeddings) {
                if (const absl::Status cut = Shorten(request->dimensions, !older, &vector); !cut.ok())
                  return ReplyError(exchange, cut);
              }
              std::string body;
              JsonWriter w(body);
              w.Open('{');
              if (older) {
                w.Key("embedding");
                AppendVector(w, result->embeddings.empty() ? std::vector<float>() : result->embeddings[0]);
                w.Close('}');
                return ReplyJson(exchange, std::move(body), &ready.placement);
              }
              w.Key("model").String(ToOllamaName(request->model)).Key("embeddings").Open('[');
              for (const auto& vector : result->embeddings) AppendVector(w, vector);
              const auto ns = [](auto d) {
                return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
              };
              w.Close(']').Key("total_duration").Int(ns(std::chrono::steady_clock::now() - begun));
              w.Key("load_duration").Int(ns(loaded - begun));
              w.Key("prompt_eval_count").Uint(result->prompt_tokens).Close('}');
              ReplyJson(exchange, std::move(body), &ready.placement);
            });
      },
      InstanceUse::kVectors);
}

}  // namespace

void HandleOllamaEmbed(Api& api, ExchangePtr exchange) { Embed(api, std::move(exchange), false); }
void HandleOllamaEmbeddings(Api& api, ExchangePtr exchange) { Embed(api, std::move(exchange), true); }

}  // namespace rumbo
