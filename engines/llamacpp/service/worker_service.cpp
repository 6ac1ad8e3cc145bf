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
#include "llama.h"

namespace rumbo {
namespace {

// So long after the last answer, idle sequences go to the disk.
constexpr std::chrono::milliseconds kIdle(300);

// The scheduler's view of a client's stream.
class StreamSink final : public GenerateSink {
 public:
  StreamSink(std::shared_ptr<TokenStream> stream, IdleSaver* saver)
      : stream_(std::move(stream)), saver_(saver) {}

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
    if (saver_ != nullptr) saver_->Touch();
    if (finished != nullptr) {
      stream_->End(ToProto(*finished));
    } else {
      stream_->Fail(status);
    }
  }

 private:
  const std::shared_ptr<TokenStream> stream_;
  IdleSaver* const saver_;
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

absl::Status WorkerService::RequireVectors() const {
  RUMBO_RETURN_IF_ERROR(RequireLoaded());
  if (embeds_ != nullptr) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
               "the model is loaded to make answers, not vectors",
               "Unload it and load it with a pooling (`rumbo load NAME --pooling mean`).");
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
  spec.drafted_by_other = !request.draft_files().empty();
  spec.device_selectors.assign(request.device_selectors().begin(), request.device_selectors().end());
  RUMBO_ASSIGN_OR_RETURN(model_, LoadModel(spec, progress));
  RUMBO_ASSIGN_OR_RETURN(chat_template_, ChatTemplate::Make(model_->model, request.chat_template()));
  if (model_->embeds) {
    embeds_ = std::make_unique<EmbedService>(model_.get(), &loop_);
  } else {
    RUMBO_RETURN_IF_ERROR(MakeScheduler(request));
  }

  const EngineSettings& s = model_->settings;
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

// Null where there is no folder, no quota, or no use of the folder; a cache is never a reason not to load.
std::unique_ptr<DiskCache> WorkerService::OpenDisk(const engine::v1::LoadRequest& request) const {
  const EngineSettings& s = model_->settings;
  const auto quota = ExtraBytes(s, "disk_cache_bytes");
  if (request.cache_dir().empty() || request.model_sha256().empty() || !quota.ok() || *quota == 0)
    return nullptr;
  DiskCache::Options options;
  options.folder = request.cache_dir();
  options.max_bytes = *quota;
  // Whatever makes the state of one engine unreadable, or wrong, for another.
  options.fingerprint = request.model_sha256() + "|" + model_->engine_version + "|" + s.kv_type_k + "|" +
                        s.kv_type_v + "|" + s.flash_attention + "|" + (*s.swa_full ? "full" : "window");
  auto disk = DiskCache::Open(std::move(options));
  if (disk.ok()) return *std::move(disk);
  std::fprintf(stderr, "no cache on disk: %s\n", MessageOf(disk.status()).c_str());
  return nullptr;
}

absl::Status WorkerService::MakeScheduler(const engine::v1::LoadRequest& request) {
  const EngineSettings& s = model_->settings;
  std::vector<Adapters::File> files;
  for (const auto& file : request.adapters()) files.push_back({file.name(), file.file(), file.sha256()});
  adapters_ = std::make_unique<Adapters>(model_.get(), std::move(files));
  uint32_t drafts = s.draft_tokens.value_or(0);
  if (drafts > 0) {
    const std::vector<std::string> draft(request.draft_files().begin(), request.draft_files().end());
    auto made = Speculation::Make(model_.get(), draft, drafts);
    const bool optional = s.extra.contains("draft_optional");
    if (!made.ok() && !optional) return made.status();
    if (made.ok()) {
      speculation_ = *std::move(made);
      for (const MemoryItem& item : speculation_->memory()) model_->memory.push_back(item);
    } else {
      std::fprintf(stderr, "no guesses ahead: %s\n", MessageOf(made.status()).c_str());
      model_->settings.draft_tokens = drafts = 0;
    }
  }
  port_ = std::make_unique<LlamaPort>(model_.get(), adapters_.get(), speculation_.get());
  SchedulerOptions options;
  options.sessions = *s.sessions;
  options.context_per_session = *s.context_per_session;
  RUMBO_ASSIGN_OR_RETURN(options.prefill_chunk, ExtraNumber(s, "prefill_chunk", 512, 1, *s.batch));
  RUMBO_ASSIGN_OR_RETURN(const uint32_t share, ExtraNumber(s, "share_prefixes", 1, 0, 1));
  options.share_prefixes = share != 0;
  RUMBO_ASSIGN_OR_RETURN(options.draft_tokens, ExtraNumber(s, "ngram_draft", 0, 0, 64));
  options.draft_tokens = std::max(options.draft_tokens, drafts);
  RUMBO_ASSIGN_OR_RETURN(const uint32_t always, ExtraNumber(s, "draft_always", 0, 0, 1));
  options.draft_always = always != 0;
  options.host_cache_bytes = *s.host_cache_bytes;
  disk_ = OpenDisk(request);
  options.disk = disk_.get();
  if (disk_) saver_ = std::make_unique<IdleSaver>(&loop_, kIdle);
  loop_.Adopt(std::make_unique<Scheduler>(port_.get(), &clock_, options));
  return absl::OkStatus();
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
  Adapters::Wanted wanted = plain.adapters;
  std::string adapter_key;
  if (!wanted.empty() && adapters_ != nullptr) {
    RUMBO_ASSIGN_OR_RETURN(adapter_key, adapters_->KeyOf(wanted));
  }
  RUMBO_ASSIGN_OR_RETURN(Job job, PrepareJob(*model_, chat_template_.get(), std::move(plain)));
  if (!adapter_key.empty()) job.cache_key += "\x1f" + adapter_key;
  job.id = id;
  job.submitted = submitted;
  job.sink = std::make_shared<StreamSink>(stream, saver_.get());
  if (wanted.empty()) {
    loop_.Submit(std::move(job));
  } else {
    SubmitWithAdapters(std::move(job), std::move(wanted));
  }
  return absl::OkStatus();
}

// Adapters are read on the loop's thread, where a first use blocks for as long as that takes.
void WorkerService::SubmitWithAdapters(Job job, Adapters::Wanted wanted) {
  loop_.Run([this, wanted = std::move(wanted), moved = std::make_shared<Job>(std::move(job))] {
    const absl::StatusOr<uint32_t> set = adapters_->SetOf(wanted);
    if (!set.ok()) return moved->sink->OnEnd(set.status(), nullptr);
    moved->adapters = *set;
    loop_.scheduler()->Submit(std::move(*moved));
  });
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
    response->add_pieces(TokenPiece(llama_model_get_vocab(model_->model), token, true));
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
                                               const engine::v1::EmbedRequest* request,
                                               engine::v1::EmbedResponse* response) {
  if (absl::Status status = RequireVectors(); !status.ok()) return Reply(context, status);
  return embeds_->Embed(*request, response);
}

grpc::ServerUnaryReactor* WorkerService::Rerank(grpc::CallbackServerContext* context,
                                                const engine::v1::RerankRequest* request,
                                                engine::v1::RerankResponse* response) {
  if (absl::Status status = RequireVectors(); !status.ok()) return Reply(context, status);
  return embeds_->Rerank(*request, response);
}

grpc::ServerUnaryReactor* WorkerService::GetStats(grpc::CallbackServerContext* context,
                                                  const engine::v1::GetStatsRequest*,
                                                  engine::v1::GetStatsResponse* response) {
  if (absl::Status status = RequireLoaded(); !status.ok()) return Reply(context, status);
  EngineStats stats = loop_.stats();
  if (embeds_ != nullptr) stats.prompt_tokens = embeds_->tokens();
  ToProto(stats, response);
  if (disk_) {
    const DiskCache::Stats disk = disk_->stats();
    response->set_disk_cache_bytes(disk.bytes);
    response->set_disk_cache_loads(disk.loaded);
    response->set_disk_cache_writes(disk.written);
    response->set_disk_cache_failures(disk.failed + disk.deleted);
  }
  return Reply(context, absl::OkStatus());
}

}  // namespace rumbo
