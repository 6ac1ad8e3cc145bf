#include "engines/llamacpp/service/worker_service.h"

#include <algorithm>

#include "base/status.h"
#include "base/utf8.h"
#include "engines/api/sampling_limits.h"
#include "engines/llamacpp/llama/llama_port.h"
#include "engines/llamacpp/llama/prepare.h"
#include "engines/llamacpp/llama/settings_check.h"
#include "engines/llamacpp/llama/tokenizer.h"
#include "engines/llamacpp/service/convert.h"
#include "engines/llamacpp/service/load_call.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {
namespace {

// The scheduler's view of a client's stream.
class StreamSink final : public GenerateSink {
 public:
  explicit StreamSink(std::shared_ptr<TokenStream> stream) : stream_(std::move(stream)) {}

  void OnStarted(const StartedEvent& event) override {
    v1::Started started;
    started.set_prompt_tokens(event.prompt_tokens);
    started.set_cached_tokens(event.cached_tokens);
    stream_->PushStarted(std::move(started));
  }

  bool OnChunk(ChunkEvent& chunk) override {
    if (chunk.logprobs.empty() && chunk.tool_calls.empty() && chunk.reasoning.empty()) {
      return stream_->PushText(chunk.text, chunk.tokens);
    }
    v1::Chunk message;
    ToProto(std::move(chunk), &message);
    return stream_->PushChunk(std::move(message));
  }

  void OnEnd(const absl::Status& status, const FinishedEvent* finished) override {
    if (finished != nullptr) {
      stream_->End(ToProto(*finished));
    } else {
      stream_->Fail(status);
    }
  }

 private:
  const std::shared_ptr<TokenStream> stream_;
};

grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace

WorkerService::WorkerService() = default;
WorkerService::~WorkerService() = default;

absl::Status WorkerService::RequireLoaded() const {
  if (loaded_.load(std::memory_order_acquire)) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kInstanceStopped, "no model is loaded",
               "Call Load first.");
}

// ---- Load ----

grpc::ServerWriteReactor<engine::v1::LoadResponse>* WorkerService::Load(
    grpc::CallbackServerContext*, const engine::v1::LoadRequest* request) {
  return LoadCall::Start(this, *request);
}

absl::StatusOr<engine::v1::LoadedInfo> WorkerService::DoLoad(const engine::v1::LoadRequest& request,
                                                             const LoadProgressFn& progress) {
  const Clock::TimePoint begin = clock_.Now();
  LoadSpec spec;
  spec.files.assign(request.files().begin(), request.files().end());
  spec.settings = FromProto(request.settings());
  spec.backend = request.backend();
  spec.device_selectors.assign(request.device_selectors().begin(), request.device_selectors().end());
  RUMBO_ASSIGN_OR_RETURN(model_, LoadModel(spec, progress));
  RUMBO_ASSIGN_OR_RETURN(chat_template_, ChatTemplate::Make(model_->model, request.chat_template()));
  port_ = std::make_unique<LlamaPort>(model_.get());

  const EngineSettings& s = model_->settings;
  SchedulerOptions options;
  options.sessions = *s.sessions;
  options.context_per_session = *s.context_per_session;
  RUMBO_ASSIGN_OR_RETURN(options.prefill_chunk, ExtraNumber(s, "prefill_chunk", 512, 1, *s.batch));
  RUMBO_ASSIGN_OR_RETURN(const uint32_t share, ExtraNumber(s, "share_prefixes", 1, 0, 1));
  options.share_prefixes = share != 0;
  RUMBO_ASSIGN_OR_RETURN(options.draft_tokens, ExtraNumber(s, "ngram_draft", 0, 0, 64));
  options.host_cache_bytes = *s.host_cache_bytes;
  loop_.Adopt(std::make_unique<Scheduler>(port_.get(), &clock_, options));

  engine::v1::LoadedInfo info;
  info.set_engine_version(model_->engine_version);
  info.set_backend_variant(model_->backend_variant);
  *info.mutable_settings() = ToProto(s);
  for (const MemoryItem& item : model_->memory) {
    auto* out = info.add_memory();
    out->set_pool(item.pool);
    out->set_what(item.what);
    out->set_bytes(item.bytes);
    out->set_source(item.source);
  }
  if (*s.host_cache_bytes > 0) {
    auto* cache = info.add_memory();
    cache->set_pool("host");
    cache->set_what("host_cache");
    cache->set_bytes(*s.host_cache_bytes);
    cache->set_source("limit");
  }
  info.set_has_chat_template(chat_template_ != nullptr);
  for (const std::string& word : Capabilities(*model_, chat_template_.get())) info.add_capabilities(word);
  info.set_context_trained(ContextTrained(*model_));
  info.set_load_ms(std::chrono::duration<double, std::milli>(clock_.Now() - begin).count());
  loaded_.store(true, std::memory_order_release);
  return info;
}

// ---- Generate ----

grpc::ServerWriteReactor<engine::v1::GenerateResponse>* WorkerService::Generate(
    grpc::CallbackServerContext*, const engine::v1::GenerateRequest* request) {
  const uint64_t id = next_id_++;
  const auto stream = TokenStream::Create([this, id](TokenStream::Event event) {
    if (event == TokenStream::Event::kCancelled) {
      loop_.Cancel(id);
    } else {
      loop_.Resume(id);
    }
  });
  if (const absl::Status status = StartAnswer(*request, id, stream); !status.ok()) stream->Fail(status);
  return stream.get();
}

absl::Status WorkerService::StartAnswer(const engine::v1::GenerateRequest& request, uint64_t id,
                                        const std::shared_ptr<TokenStream>& stream) {
  RUMBO_RETURN_IF_ERROR(RequireLoaded());
  GenerateRequest plain;
  plain.sampling = FromProto(request.sampling());
  plain.owner = request.owner();
  plain.priority = PriorityFromName(request.priority());
  for (const auto& adapter : request.adapters()) plain.adapters.emplace_back(adapter.name(), adapter.scale());
  switch (request.input_case()) {
    case engine::v1::GenerateRequest::kPrompt:
      plain.input.kind = GenerateInput::Kind::kPrompt;
      plain.input.prompt = request.prompt();
      break;
    case engine::v1::GenerateRequest::kTokens:
      plain.input.kind = GenerateInput::Kind::kTokens;
      plain.input.tokens.assign(request.tokens().ids().begin(), request.tokens().ids().end());
      break;
    case engine::v1::GenerateRequest::kChat:
      plain.input.kind = GenerateInput::Kind::kChat;
      plain.input.chat = FromProto(request.chat());
      break;
    case engine::v1::GenerateRequest::INPUT_NOT_SET:
      return InvalidArgument("input is missing: give a prompt, tokens or messages");
  }
  const Clock::TimePoint submitted = clock_.Now();
  RUMBO_ASSIGN_OR_RETURN(Job job, PrepareJob(*model_, chat_template_.get(), std::move(plain)));
  job.id = id;
  job.submitted = submitted;
  job.sink = std::make_shared<StreamSink>(stream);
  loop_.Submit(std::move(job));
  return absl::OkStatus();
}

// ---- The rest ----

grpc::ServerUnaryReactor* WorkerService::Tokenize(grpc::CallbackServerContext* context,
                                                  const engine::v1::TokenizeRequest* request,
                                                  engine::v1::TokenizeResponse* response) {
  if (absl::Status status = RequireLoaded(); !status.ok()) return Reply(context, status);
  auto tokens = EncodeText(*model_, request->text(), request->add_special(), request->parse_special());
  if (!tokens.ok()) return Reply(context, tokens.status());
  for (const TokenId token : *tokens) {
    response->add_ids(token);
    response->add_pieces(port_->Piece(token, true));
  }
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* WorkerService::Detokenize(grpc::CallbackServerContext* context,
                                                    const engine::v1::DetokenizeRequest* request,
                                                    engine::v1::DetokenizeResponse* response) {
  if (absl::Status status = RequireLoaded(); !status.ok()) return Reply(context, status);
  const std::vector<TokenId> tokens(request->ids().begin(), request->ids().end());
  auto text = DecodeTokens(*model_, tokens);
  if (!text.ok()) return Reply(context, text.status());
  response->set_raw(*std::move(text));
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* WorkerService::ApplyTemplate(grpc::CallbackServerContext* context,
                                                       const engine::v1::ApplyTemplateRequest* request,
                                                       engine::v1::ApplyTemplateResponse* response) {
  if (absl::Status status = RequireLoaded(); !status.ok()) return Reply(context, status);
  auto prompt = RenderPrompt(chat_template_.get(), FromProto(request->chat()));
  if (!prompt.ok()) return Reply(context, prompt.status());
  auto tokens = EncodeText(*model_, *prompt, true, true);
  if (!tokens.ok()) return Reply(context, tokens.status());
  response->set_prompt(SanitizeUtf8(*prompt));
  response->set_tokens(static_cast<uint32_t>(tokens->size()));
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* WorkerService::Embed(grpc::CallbackServerContext* context,
                                               const engine::v1::EmbedRequest*, engine::v1::EmbedResponse*) {
  return Reply(context, NotImplemented("Embed"));
}

grpc::ServerUnaryReactor* WorkerService::Rerank(grpc::CallbackServerContext* context,
                                                const engine::v1::RerankRequest*,
                                                engine::v1::RerankResponse*) {
  return Reply(context, NotImplemented("Rerank"));
}

grpc::ServerUnaryReactor* WorkerService::GetStats(grpc::CallbackServerContext* context,
                                                  const engine::v1::GetStatsRequest*,
                                                  engine::v1::GetStatsResponse* response) {
  if (absl::Status status = RequireLoaded(); !status.ok()) return Reply(context, status);
  ToProto(loop_.stats(), response);
  return Reply(context, absl::OkStatus());
}

}  // namespace rumbo
