#include <algorithm>
#include <mutex>

#include "base/status.h"
#include "base/utf8.h"
#include "daemon/rpc/services.h"
#include "daemon/wire/convert.h"
#include "engines/api/vectors.h"
#include "engines/worker_kit/grpc_status.h"
#include "engines/worker_kit/token_stream.h"
#include "rumbo/v1/inference.grpc.pb.h"

namespace rumbo {
namespace {

using grpc::CallbackServerContext;

// Writes one answer to one client. The core and the engine push into it, gRPC pulls.
template <typename Response>
class Answer final : public AnswerSink, public std::enable_shared_from_this<Answer<Response>> {
 public:
  using Stream = BasicTokenStream<Response>;

  static std::pair<std::shared_ptr<Answer>, Stream*> Create() {
    auto answer = std::make_shared<Answer>();
    answer->stream_ = Stream::Create([weak = std::weak_ptr<Answer>(answer)](typename Stream::Event event) {
      if (auto self = weak.lock()) self->OnEvent(event);
    });
    return {answer, answer->stream_.get()};
  }

  // The core's handle, which may come after the first events.
  void SetCall(std::unique_ptr<GenerateCall> call) {
    bool cancelled, resume;
    std::shared_ptr<GenerateCall> shared = std::move(call);
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      call_ = shared;
      cancelled = cancelled_;
      resume = std::exchange(resume_, false);
    }
    if (resume) shared->Resume();
    if (cancelled) shared->Cancel();
  }

  void OnPlaced(const Placement& placement) override {
    started_.set_request_id(placement.request_id);
    started_.set_instance_id(placement.instance_id);
    started_.set_engine(placement.engine);
    started_.set_backend(placement.backend);
    for (const std::string& device : placement.devices) started_.add_devices(device);
    started_.set_placement_reason(placement.reason);
  }

  void OnStarted(const StartedEvent& event) override {
    started_.set_prompt_tokens(event.prompt_tokens);
    started_.set_cached_tokens(event.cached_tokens);
    stream_->PushStarted(std::move(started_));
  }

  bool OnChunk(ChunkEvent& chunk) override {
    if (chunk.reasoning.empty() && chunk.logprobs.empty() && chunk.tool_calls.empty()) {
      return stream_->PushText(chunk.text, chunk.tokens);
    }
    v1::Chunk out;
    MoveToProto(&chunk, &out);
    return stream_->PushChunk(std::move(out));
  }

  void OnEnd(const absl::Status& status, const FinishedEvent* finished) override {
    std::shared_ptr<GenerateCall> call;
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      call = std::move(call_);
    }
    if (finished == nullptr) return stream_->Fail(status);
    v1::Finished out;
    ToProto(*finished, &out);
    stream_->End(std::move(out));
  }

 private:
  void OnEvent(typename Stream::Event event) {
    std::shared_ptr<GenerateCall> call;
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      call = call_;
      if (event == Stream::Event::kCancelled) cancelled_ = true;
      if (event == Stream::Event::kDrained && !call) resume_ = true;
    }
    if (!call) return;
    if (event == Stream::Event::kCancelled) {
      call->Cancel();
    } else {
      call->Resume();
    }
  }

  std::shared_ptr<Stream> stream_;
  v1::Started started_;
  std::mutex mutex_;
  std::shared_ptr<GenerateCall> call_;  // until OnEnd
  bool cancelled_ = false, resume_ = false, ended_ = false;
};

class InferenceService final : public v1::InferenceService::CallbackService {
 public:
  explicit InferenceService(const ServiceContext& context) : context_(context) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(CallbackServerContext* call,
                                                           const v1::GenerateRequest* request) override {
    InferenceRequest out = Common(*call, request->model(), request->options());
    if (request->has_tokens()) {
      out.generate.input.kind = GenerateInput::Kind::kTokens;
      out.generate.input.tokens.assign(request->tokens().ids().begin(), request->tokens().ids().end());
    } else {
      out.generate.input.prompt = request->prompt();
    }
    out.generate.sampling = FromProto(request->sampling());
    return Run<v1::GenerateResponse>(std::move(out), request->options());
  }

  grpc::ServerWriteReactor<v1::ChatResponse>* Chat(CallbackServerContext* call,
                                                   const v1::ChatRequest* request) override {
    InferenceRequest out = Common(*call, request->model(), request->options());
    out.generate.input.kind = GenerateInput::Kind::kChat;
    out.generate.input.chat = FromProto(*request);
    out.generate.sampling = FromProto(request->sampling());
    return Run<v1::ChatResponse>(std::move(out), request->options());
  }

  grpc::ServerUnaryReactor* Embed(CallbackServerContext* call, const v1::EmbedRequest* request,
                                  v1::EmbedResponse* response) override {
    auto* reactor = call->DefaultReactor();
    if (request->inputs().empty() || request->inputs_size() > 2048) {
      reactor->Finish(ToGrpcStatus(InvalidArgument("inputs must hold 1 to 2,048 texts")));
      return reactor;
    }
    std::vector<std::string> inputs(request->inputs().begin(), request->inputs().end());
    const bool normalize = !request->has_normalize() || request->normalize();
    const uint32_t dimensions = request->dimensions();
    const std::string pooling = request->pooling();
    const auto use = [=, inputs = std::move(inputs)](Core::ReadyEngine ready, TimePoint deadline) mutable {
      auto* engine = ready.engine.get();
      engine->Embed(
          std::move(inputs), pooling, normalize, deadline,
          [reactor, response, dimensions, normalize, ready](absl::StatusOr<EmbeddingResult> result) {
            if (!result.ok()) return reactor->Finish(ToGrpcStatus(result.status()));
            for (auto& values : result->embeddings) {
              if (const absl::Status cut = Shorten(dimensions, normalize, &values); !cut.ok())
                return reactor->Finish(ToGrpcStatus(cut));
              response->add_embeddings()->mutable_values()->Add(values.begin(), values.end());
            }
            response->mutable_usage()->set_prompt_tokens(result->prompt_tokens);
            reactor->Finish(grpc::Status::OK);
          });
    };
    // A pooling asks for an instance that makes vectors, also of a model that is made to answer.
    PlanOverrides overrides;
    overrides.pooling = pooling;
    WithEngine(*call, request->model(), request->options(), reactor, use, InstanceUse::kVectors,
               std::move(overrides));
    return reactor;
  }

  grpc::ServerUnaryReactor* Rerank(CallbackServerContext* call, const v1::RerankRequest* request,
                                   v1::RerankResponse* response) override {
    auto* reactor = call->DefaultReactor();
    std::vector<std::string> documents(request->documents().begin(), request->documents().end());
    const uint32_t top_n = request->top_n();
    WithEngine(*call, request->model(), request->options(), reactor,
               [=, documents = std::move(documents), query = request->query()](Core::ReadyEngine ready,
                                                                               TimePoint deadline) mutable {
                 auto* engine = ready.engine.get();
                 engine->Rerank(query, std::move(documents), deadline,
                                [reactor, response, top_n, ready](absl::StatusOr<RerankScores> result) {
                                  if (!result.ok()) return reactor->Finish(ToGrpcStatus(result.status()));
                                  std::vector<uint32_t> order(result->scores.size());
                                  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
                                  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
                                    return result->scores[a] > result->scores[b];
                                  });
                                  if (top_n > 0 && top_n < order.size()) order.resize(top_n);
                                  for (const uint32_t index : order) {
                                    v1::RerankResult* out = response->add_results();
                                    out->set_index(index);
                                    out->set_score(result->scores[index]);
                                  }
                                  response->mutable_usage()->set_prompt_tokens(result->prompt_tokens);
                                  reactor->Finish(grpc::Status::OK);
                                });
               });
    return reactor;
  }

  grpc::ServerUnaryReactor* Tokenize(CallbackServerContext* call, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    auto* reactor = call->DefaultReactor();
    const bool special = !request->has_add_special() || request->add_special();
    const bool parse = !request->has_parse_special() || request->parse_special();
    WithEngine(*call, request->model(), {}, reactor,
               [=, text = request->text()](Core::ReadyEngine ready, TimePoint deadline) {
                 auto* engine = ready.engine.get();
                 engine->Tokenize(text, special, parse, deadline,
                                  [reactor, response, ready](absl::StatusOr<TokenizeResult> result) {
                                    if (!result.ok()) return reactor->Finish(ToGrpcStatus(result.status()));
                                    response->mutable_ids()->Add(result->ids.begin(), result->ids.end());
                                    for (std::string& piece : result->pieces)
                                      response->add_pieces(std::move(piece));
                                    reactor->Finish(grpc::Status::OK);
                                  });
               });
    return reactor;
  }

  grpc::ServerUnaryReactor* Detokenize(CallbackServerContext* call, const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    auto* reactor = call->DefaultReactor();
    std::vector<int32_t> ids(request->ids().begin(), request->ids().end());
    WithEngine(*call, request->model(), {}, reactor,
               [=, ids = std::move(ids)](Core::ReadyEngine ready, TimePoint deadline) {
                 auto* engine = ready.engine.get();
                 engine->Detokenize(ids, deadline,
                                    [reactor, response, ready](absl::StatusOr<std::string> result) {
                                      if (!result.ok()) return reactor->Finish(ToGrpcStatus(result.status()));
                                      response->set_text(SanitizeUtf8(*result));
                                      response->set_raw(std::move(*result));
                                      reactor->Finish(grpc::Status::OK);
                                    });
               });
    return reactor;
  }

 private:
  InferenceRequest Common(const CallbackServerContext& call, const std::string& model,
                          const v1::RequestOptions& options) const {
    InferenceRequest out;
    out.model = model;
    out.workload = FromProto(options.workload());
    out.contract = FromProto(options.contract());
    if (options.has_keep_alive_s()) out.keep_alive_s = options.keep_alive_s();
    out.client = IdentityOf(call, *context_.peers, options.app());
    out.deadline = DeadlineOf(call);
    out.generate.owner = OwnerOf(call, out.client);
    if (options.priority() == "interactive") out.generate.priority = Priority::kInteractive;
    if (options.priority() == "batch") out.generate.priority = Priority::kBatch;
    for (const auto& adapter : options.adapters())
      out.generate.adapters.emplace_back(adapter.name(), adapter.scale());
    return out;
  }

  template <typename Response>
  grpc::ServerWriteReactor<Response>* Run(InferenceRequest request, const v1::RequestOptions& options) {
    auto [answer, stream] = Answer<Response>::Create();
    if (!options.priority().empty() && options.priority() != "normal" &&
        options.priority() != "interactive" && options.priority() != "batch") {
      answer->OnEnd(InvalidArgument("priority must be interactive, normal or batch"), nullptr);
    } else {
      request.idempotency_key = options.idempotency_key();
      answer->SetCall(context_.core->Generate(std::move(request), answer));
    }
    return stream;
  }

  template <typename Use>
  void WithEngine(const CallbackServerContext& call, const std::string& model,
                  const v1::RequestOptions& options, grpc::ServerUnaryReactor* reactor, Use use,
                  InstanceUse instance_use = InstanceUse::kAny, PlanOverrides overrides = {}) {
    LoadSpec spec;
    spec.model = model;
    spec.overrides = std::move(overrides);
    spec.use = instance_use;
    spec.workload = FromProto(options.workload());
    spec.contract = FromProto(options.contract());
    if (options.has_keep_alive_s()) spec.keep_alive_s = options.keep_alive_s();
    const TimePoint deadline = DeadlineOf(call);
    context_.core->WithEngine(
        spec, IdentityOf(call, *context_.peers, options.app()), deadline,
        [reactor, deadline, use = std::move(use)](absl::StatusOr<Core::ReadyEngine> ready) mutable {
          if (!ready.ok()) return reactor->Finish(ToGrpcStatus(ready.status()));
          use(std::move(*ready), deadline);
        });
  }

  const ServiceContext context_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewInferenceService(const ServiceContext& context) {
  return std::make_unique<InferenceService>(context);
}

TimePoint DeadlineOf(const CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return TimePoint::max();
  const auto left = deadline - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return TimePoint::max();
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(left);
}

}  // namespace rumbo
