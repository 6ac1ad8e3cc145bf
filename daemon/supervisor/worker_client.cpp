#include "daemon/supervisor/worker_client.h"

#include <grpcpp/alarm.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <atomic>

#include "base/status.h"
#include "base/utf8.h"
#include "daemon/wire/convert.h"
#include "engines/worker_kit/grpc_status.h"
#include "rumbo/engine/v1/engine.grpc.pb.h"

namespace rumbo {
namespace {

using engine::v1::EngineService;

// A worker's failure as a client may see it. Statuses with our details pass; bare ones of the transport mean
// that the worker died or broke the protocol.
absl::Status FromWorker(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status out = FromGrpcStatus(status);
  if (ReasonOf(out) != Reason::kUnspecified) return out;
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
      return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the request was cancelled");
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded,
                   "the deadline passed before the answer was complete",
                   "Allow more time or ask for fewer tokens.");
    case grpc::StatusCode::UNAVAILABLE:
      return Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed,
                   "the engine ended during the request",
                   "Send the request again; `rumbo logs` shows the engine's last words.");
    case grpc::StatusCode::UNIMPLEMENTED:
      return Error(absl::StatusCode::kUnimplemented, Reason::kCapabilityMissing, "this engine cannot do that",
                   "`rumbo engines` shows what each engine can do.");
    default:
      return Error(absl::StatusCode::kUnavailable, Reason::kEngineProtocol,
                   "the engine broke its protocol: " + EscapeForLog(status.error_message(), 200),
                   "Send the request again; the engine is started anew.");
  }
}

// gRPC 1.51 runs callbacks of clients on a completion queue that all channels share, counted by reference;
// when the last channel goes while the queue's threads end, it may be counted down twice and abort. So one
// channel that reaches nothing stays for the life of the process.
void KeepCallbackQueueAlive() {
  static const std::unique_ptr<EngineService::Stub>* const kept = [] {
    auto* stub = new std::unique_ptr<EngineService::Stub>(EngineService::NewStub(
        grpc::CreateChannel("unix:/dev/null/rumbo", grpc::InsecureChannelCredentials())));
    struct Call {
      grpc::ClientContext context;
      engine::v1::GetStatsRequest request;
      engine::v1::GetStatsResponse response;
    };
    auto call = std::make_shared<Call>();
    call->context.TryCancel();
    (*stub)->async()->GetStats(&call->context, &call->request, &call->response, [call](grpc::Status) {});
    return stub;
  }();
  (void)kept;
}

// Keeps what a unary call needs until its callback has run.
template <typename Request, typename Response>
struct Unary {
  grpc::ClientContext context;
  Request request;
  Response response;
};

class GenerateStream final : public grpc::ClientReadReactor<engine::v1::GenerateResponse> {
 public:
  GenerateStream(std::shared_ptr<GenerateSink> sink, std::function<void(std::string)> on_violation)
      : sink_(std::move(sink)), on_violation_(std::move(on_violation)) {}

  void Start(EngineService::Stub* stub, const GenerateRequest& request, Engine::Deadline deadline,
             std::shared_ptr<GenerateStream> self) {
    self_ = std::move(self);
    ToProto(request, &request_);
    if (deadline != Engine::Deadline::max()) {
      context_.set_deadline(std::chrono::system_clock::now() +
                            std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                deadline - std::chrono::steady_clock::now()));
    }
    stub->async()->Generate(&context_, &request_, this);
    // Resume() starts reads from other threads: the call must not end between them.
    AddHold();
    StartRead(&message_);
    StartCall();
  }

  void Cancel() {
    context_.TryCancel();
    // Where no read is under way, nobody else would notice.
    if (flow_.exchange(kCancelled) == kPaused) RemoveHold();
  }

  void Resume() {
    int expected = kPaused;
    if (flow_.compare_exchange_strong(expected, kReading)) {
      StartRead(&message_);
      return;
    }
    // The sink resumed before OnReadDone wrote kPaused.
    expected = kReading;
    flow_.compare_exchange_strong(expected, kResumedEarly);
  }

  void OnReadDone(bool ok) override {
    const Next next = ok ? Deliver() : Next::kEnd;
    if (!ok && !finished_seen_ && violation_.ok()) ExpectEnd();
    if (next == Next::kRead) StartRead(&message_);
    if (next == Next::kEnd) RemoveHold();
    // kPause: Resume() or Cancel() goes on, maybe already.
  }

  void OnDone(const grpc::Status& status) override {
    if (late_) late_->Cancel();
    absl::Status out = violation_.ok() ? FromWorker(status) : violation_;
    if (unreadable_ && violation_.ok()) out = Violation("a message that cannot be read");
    if (out.ok() && !finished_seen_) {
      out = Violation("it ended an answer without saying how");
    }
    if (!out.ok() && ReasonOf(out) == Reason::kEngineProtocol && on_violation_) on_violation_(MessageOf(out));
    if (ReasonOf(out) == Reason::kEngineCrashed || ReasonOf(out) == Reason::kEngineProtocol) {
      out = Annotate(out, "after " + std::to_string(tokens_) + " tokens");
    }
    sink_->OnEnd(out, out.ok() ? &finished_ : nullptr);
    self_.reset();
  }

 private:
  enum Flow : int { kReading, kPaused, kResumedEarly, kCancelled };
  enum class Next { kRead, kPause, kEnd };

  Next Deliver() {
    switch (message_.event_case()) {
      case engine::v1::GenerateResponse::kStarted:
        if (started_seen_ || finished_seen_) return Break("two beginnings");
        started_seen_ = true;
        sink_->OnStarted(FromProto(message_.started()));
        return Next::kRead;
      case engine::v1::GenerateResponse::kChunk: {
        if (!started_seen_ || finished_seen_) return Break("text outside an answer");
        MoveFromProto(message_.mutable_chunk(), &chunk_);
        tokens_ += chunk_.tokens;
        if (sink_->OnChunk(chunk_)) return Next::kRead;
        int expected = kReading;
        if (flow_.compare_exchange_strong(expected, kPaused)) return Next::kPause;
        expected = kResumedEarly;
        flow_.compare_exchange_strong(expected, kReading);
        return Next::kRead;
      }
      case engine::v1::GenerateResponse::kFinished:
        if (!started_seen_ || finished_seen_) return Break("two ends");
        finished_seen_ = true;
        finished_ = FromProto(message_.finished());
        return Next::kRead;
      default:
        return Break("an empty event");
    }
  }

  // No further message, and no `finished`: the stream ends now with its status, or it was a message that
  // cannot be read and gRPC would wait for the rest for ever.
  void ExpectEnd() {
    late_ = std::make_unique<grpc::Alarm>();
    late_->Set(std::chrono::system_clock::now() + std::chrono::milliseconds(300),
               [self = self_](bool expired) {
                 if (!expired) return;
                 self->unreadable_ = true;
                 self->context_.TryCancel();
               });
  }

  absl::Status Violation(const char* what) {
    return Error(absl::StatusCode::kUnavailable, Reason::kEngineProtocol,
                 std::string("the engine broke its protocol: ") + what,
                 "Send the request again; the engine is started anew.");
  }

  Next Break(const char* what) {
    violation_ = Violation(what);
    context_.TryCancel();
    return Next::kEnd;
  }

  const std::shared_ptr<GenerateSink> sink_;
  const std::function<void(std::string)> on_violation_;
  grpc::ClientContext context_;
  engine::v1::GenerateRequest request_;
  engine::v1::GenerateResponse message_;
  ChunkEvent chunk_;
  FinishedEvent finished_;
  absl::Status violation_;
  std::unique_ptr<grpc::Alarm> late_;
  std::atomic<bool> unreadable_{false};
  uint64_t tokens_ = 0;
  bool started_seen_ = false;
  bool finished_seen_ = false;
  std::atomic<int> flow_{kReading};
  std::shared_ptr<GenerateStream> self_;  // until OnDone
};

class StreamCall final : public GenerateCall {
 public:
  explicit StreamCall(std::shared_ptr<GenerateStream> stream) : stream_(std::move(stream)) {}
  ~StreamCall() override { stream_->Cancel(); }
  void Cancel() override { stream_->Cancel(); }
  void Resume() override { stream_->Resume(); }

 private:
  const std::shared_ptr<GenerateStream> stream_;
};

class LoadStream final : public grpc::ClientReadReactor<engine::v1::LoadResponse> {
 public:
  std::function<void(double, const std::string&)> progress;
  Engine::Callback<EngineInfo> done;
  grpc::ClientContext context;
  engine::v1::LoadRequest request;

  void Start(EngineService::Stub* stub) {
    stub->async()->Load(&context, &request, this);
    StartRead(&message_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (message_.has_progress())
      progress(message_.progress().fraction(), SanitizeUtf8(message_.progress().step()));
    if (message_.has_loaded()) loaded_ = message_.loaded();
    StartRead(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status out = FromWorker(status);
    if (out.ok() && !loaded_) {
      out = Error(absl::StatusCode::kUnavailable, Reason::kEngineProtocol,
                  "the engine loaded without saying what");
    }
    if (out.ok()) {
      done(Info());
    } else {
      done(out);
    }
    delete this;
  }

 private:
  EngineInfo Info() const {
    EngineInfo info;
    info.version = SanitizeUtf8(loaded_->engine_version());
    for (const auto& item : loaded_->memory()) info.memory.push_back(FromProto(item));
    info.settings = FromProto(loaded_->settings());
    info.capabilities.assign(loaded_->capabilities().begin(), loaded_->capabilities().end());
    info.has_chat_template = loaded_->has_chat_template();
    info.context_trained = loaded_->context_trained();
    info.load_ms = loaded_->load_ms();
    info.backend_variant = loaded_->backend_variant();
    return info;
  }

  engine::v1::LoadResponse message_;
  std::optional<engine::v1::LoadedInfo> loaded_;
};

// Names the callback form of an overloaded method.
#define RUMBO_METHOD(name)                                                  \
  [](auto* stub, auto* context, auto* request, auto* response, auto done) { \
    stub->name(context, request, response, std::move(done));                \
  }

class WorkerClientOverGrpc final : public WorkerClient {
 public:
  WorkerClientOverGrpc(UniqueFd socket, std::function<void(std::string)> on_violation)
      : on_violation_(std::move(on_violation)) {
    grpc::ChannelArguments args;
    // Windows that grow with the bandwidth-delay product would let a worker run far ahead of a paused sink.
    args.SetInt("grpc.http2.bdp_probe", 0);
    args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65535);
    args.SetMaxReceiveMessageSize(64 << 20);  // embeddings of a whole batch
    args.SetMaxSendMessageSize(64 << 20);
    args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    args.SetInt(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1 << 20);
    channel_ = grpc::CreateCustomInsecureChannelFromFd("worker", socket.release(), args);
    stub_ = EngineService::NewStub(channel_);
  }

  void Load(const LaunchSpec& spec, std::function<void(double, const std::string&)> progress,
            Callback<EngineInfo> done) override {
    auto* load = new LoadStream;
    load->progress = std::move(progress);
    load->done = std::move(done);
    for (const std::string& file : spec.files) load->request.add_files(file);
    ToProto(spec.settings, load->request.mutable_settings());
    load->request.set_backend(spec.backend);
    for (const std::string& selector : spec.device_selectors) load->request.add_device_selectors(selector);
    load->request.set_cache_dir(spec.cache_dir);
    load->request.set_model_sha256(spec.model_sha256);
    load->request.set_chat_template(spec.chat_template);
    for (const LaunchSpec::Adapter& adapter : spec.adapters) {
      engine::v1::AdapterFile* out = load->request.add_adapters();
      out->set_name(adapter.name);
      out->set_file(adapter.file);
      out->set_sha256(adapter.sha256);
    }
    for (const std::string& file : spec.draft_files) load->request.add_draft_files(file);
    load->Start(stub_.get());
  }

  std::unique_ptr<GenerateCall> Generate(const GenerateRequest& request, Deadline deadline,
                                         std::shared_ptr<GenerateSink> sink) override {
    auto stream = std::make_shared<GenerateStream>(std::move(sink), on_violation_);
    stream->Start(stub_.get(), request, deadline, stream);
    return std::make_unique<StreamCall>(std::move(stream));
  }

  void Embed(std::vector<std::string> inputs, std::string pooling, bool normalize, Deadline deadline,
             Callback<EmbeddingResult> done) override {
    auto call = std::make_shared<Unary<engine::v1::EmbedRequest, engine::v1::EmbedResponse>>();
    for (std::string& input : inputs) call->request.add_inputs(std::move(input));
    call->request.set_pooling(pooling);
    call->request.set_normalize(normalize);
    Run(call, deadline, RUMBO_METHOD(Embed), std::move(done), [](auto& response) {
      EmbeddingResult result;
      for (const auto& embedding : response.embeddings()) {
        result.embeddings.emplace_back(embedding.values().begin(), embedding.values().end());
      }
      result.prompt_tokens = response.prompt_tokens();
      return result;
    });
  }

  void Rerank(std::string query, std::vector<std::string> documents, Deadline deadline,
              Callback<RerankScores> done) override {
    auto call = std::make_shared<Unary<engine::v1::RerankRequest, engine::v1::RerankResponse>>();
    call->request.set_query(std::move(query));
    for (std::string& document : documents) call->request.add_documents(std::move(document));
    Run(call, deadline, RUMBO_METHOD(Rerank), std::move(done), [](auto& response) {
      return RerankScores{{response.scores().begin(), response.scores().end()}, response.prompt_tokens()};
    });
  }

  void Tokenize(std::string text, bool add_special, bool parse_special, Deadline deadline,
                Callback<TokenizeResult> done) override {
    auto call = std::make_shared<Unary<engine::v1::TokenizeRequest, engine::v1::TokenizeResponse>>();
    call->request.set_text(std::move(text));
    call->request.set_add_special(add_special);
    call->request.set_parse_special(parse_special);
    Run(call, deadline, RUMBO_METHOD(Tokenize), std::move(done), [](auto& response) {
      TokenizeResult result;
      result.ids.assign(response.ids().begin(), response.ids().end());
      result.pieces.assign(response.pieces().begin(), response.pieces().end());
      return result;
    });
  }

  void Detokenize(std::vector<int32_t> ids, Deadline deadline, Callback<std::string> done) override {
    auto call = std::make_shared<Unary<engine::v1::DetokenizeRequest, engine::v1::DetokenizeResponse>>();
    call->request.mutable_ids()->Add(ids.begin(), ids.end());
    Run(call, deadline, RUMBO_METHOD(Detokenize), std::move(done),
        [](auto& response) { return response.raw(); });
  }

  void ApplyTemplate(const ChatInput& chat, Deadline deadline, Callback<TemplateResult> done) override {
    auto call =
        std::make_shared<Unary<engine::v1::ApplyTemplateRequest, engine::v1::ApplyTemplateResponse>>();
    ToProto(chat, call->request.mutable_chat());
    Run(call, deadline, RUMBO_METHOD(ApplyTemplate), std::move(done), [](auto& response) {
      return TemplateResult{response.prompt(), response.tokens()};
    });
  }

  void GetStats(Deadline deadline, Callback<EngineStats> done) override {
    auto call = std::make_shared<Unary<engine::v1::GetStatsRequest, engine::v1::GetStatsResponse>>();
    Run(call, deadline, RUMBO_METHOD(GetStats), std::move(done), [](auto& response) {
      EngineStats stats;
      stats.running = response.running();
      stats.waiting = response.waiting();
      stats.kv_used = response.kv_used();
      stats.kv_total = response.kv_total();
      stats.prompt_tokens = response.prompt_tokens();
      stats.cached_tokens = response.cached_tokens();
      stats.generated_tokens = response.generated_tokens();
      stats.step_ms = response.step_ms();
      stats.prompt_tok_s = response.prompt_tok_s();
      stats.decode_tok_s = response.decode_tok_s();
      stats.drafted_tokens = response.drafted_tokens();
      stats.accepted_tokens = response.accepted_tokens();
      stats.disk_cache_bytes = response.disk_cache_bytes();
      stats.disk_cache_loads = response.disk_cache_loads();
      stats.disk_cache_writes = response.disk_cache_writes();
      stats.disk_cache_failures = response.disk_cache_failures();
      return stats;
    });
  }

 private:
  template <typename Call, typename Start, typename Done, typename Convert>
  void Run(std::shared_ptr<Call> call, Deadline deadline, Start start, Done done, Convert convert) {
    if (deadline != Deadline::max()) {
      call->context.set_deadline(std::chrono::system_clock::now() +
                                 std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                     deadline - std::chrono::steady_clock::now()));
    }
    start(stub_->async(), &call->context, &call->request, &call->response,
          std::function<void(grpc::Status)>([call, done = std::move(done), convert](grpc::Status status) {
            if (status.ok()) {
              done(convert(call->response));
            } else {
              done(FromWorker(status));
            }
          }));
  }

  const std::function<void(std::string)> on_violation_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<EngineService::Stub> stub_;
};

}  // namespace

std::shared_ptr<WorkerClient> WorkerClient::Create(UniqueFd socket,
                                                   std::function<void(std::string)> on_violation) {
  KeepCallbackQueueAlive();
  return std::make_shared<WorkerClientOverGrpc>(std::move(socket), std::move(on_violation));
}

}  // namespace rumbo
