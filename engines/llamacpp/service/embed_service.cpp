#include "engines/llamacpp/service/embed_service.h"

#include "base/status.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {

// One unary call; cancelling it (or its deadline) takes the job out of the queue.
class EmbedService::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(EmbedService* service, uint64_t id) : service_(service), id_(id) {}
  void OnCancel() override { service_->Cancel(id_); }
  void OnDone() override { delete this; }

 private:
  EmbedService* const service_;
  const uint64_t id_;
};

namespace {

uint32_t CountTokens(const std::vector<std::vector<TokenId>>& inputs) {
  size_t sum = 0;
  for (const auto& input : inputs) sum += input.size();
  return static_cast<uint32_t>(sum);
}

absl::StatusOr<EmbedJob> PrepareEmbed(const LoadedModel& model, uint32_t most,
                                      const engine::v1::EmbedRequest& request) {
  EmbedJob job;
  if (model.pooling == "rank") {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                 "the model scores pairs of texts and makes no embeddings", "Use Rerank, or another model.");
  }
  const std::string& word = request.pooling().empty() ? model.pooling : request.pooling();
  if (word.empty()) {
    return InvalidArgument("the model names no pooling", "Ask for one: mean, cls or last.");
  }
  const auto pooling = PoolingByName(word);
  if (!pooling || *pooling == Pooling::kRank) {
    return InvalidArgument("pooling is \"" + word.substr(0, 32) + "\", must be one of mean, cls, last");
  }
  job.pooling = *pooling;
  job.normalize = request.normalize();
  RUMBO_ASSIGN_OR_RETURN(job.inputs,
                         EmbedInputs(model, {request.inputs().begin(), request.inputs().end()}, most));
  return job;
}

absl::StatusOr<EmbedJob> PrepareRerank(const LoadedModel& model, uint32_t most,
                                       const engine::v1::RerankRequest& request) {
  if (model.pooling != "rank") {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                 "the model has no head that scores pairs of texts", "Use a reranking model.");
  }
  EmbedJob job;
  job.pooling = Pooling::kRank;
  RUMBO_ASSIGN_OR_RETURN(
      job.inputs,
      RerankInputs(model, request.query(), {request.documents().begin(), request.documents().end()}, most));
  return job;
}

}  // namespace

EmbedService::EmbedService(LoadedModel* model, DecodeLoop* loop)
    : model_(model), loop_(loop), embedder_(model), queue_(&embedder_) {}

void EmbedService::StepLater() {
  if (stepping_) return;
  stepping_ = true;
  loop_->Run([this] {
    stepping_ = false;
    if (queue_.Step()) StepLater();
  });
}

void EmbedService::Submit(EmbedJob job) {
  loop_->Run([this, moved = std::make_shared<EmbedJob>(std::move(job))] {
    queue_.Submit(std::move(*moved));
    StepLater();
  });
}

void EmbedService::Cancel(uint64_t id) {
  loop_->Run([this, id] { queue_.Cancel(id); });
}

grpc::ServerUnaryReactor* EmbedService::Embed(const engine::v1::EmbedRequest& request,
                                              engine::v1::EmbedResponse* response) {
  const uint64_t id = next_id_++;
  auto* call = new Call(this, id);
  auto job = PrepareEmbed(*model_, embedder_.traits().input_tokens, request);
  if (!job.ok()) {
    call->Finish(ToGrpcStatus(job.status()));
    return call;
  }
  job->id = id;
  const uint32_t tokens = CountTokens(job->inputs);
  job->done = [call, response, tokens](absl::StatusOr<std::vector<std::vector<float>>> vectors) {
    if (!vectors.ok()) return call->Finish(ToGrpcStatus(vectors.status()));
    for (const auto& vector : *vectors) {
      response->add_embeddings()->mutable_values()->Add(vector.begin(), vector.end());
    }
    response->set_prompt_tokens(tokens);
    call->Finish(grpc::Status::OK);
  };
  Submit(*std::move(job));
  return call;
}

grpc::ServerUnaryReactor* EmbedService::Rerank(const engine::v1::RerankRequest& request,
                                               engine::v1::RerankResponse* response) {
  const uint64_t id = next_id_++;
  auto* call = new Call(this, id);
  auto job = PrepareRerank(*model_, embedder_.traits().input_tokens, request);
  if (!job.ok()) {
    call->Finish(ToGrpcStatus(job.status()));
    return call;
  }
  job->id = id;
  const uint32_t tokens = CountTokens(job->inputs);
  job->done = [call, response, tokens](absl::StatusOr<std::vector<std::vector<float>>> scores) {
    if (!scores.ok()) return call->Finish(ToGrpcStatus(scores.status()));
    for (const auto& row : *scores) response->add_scores(row.front());
    response->set_prompt_tokens(tokens);
    call->Finish(grpc::Status::OK);
  };
  Submit(*std::move(job));
  return call;
}

}  // namespace rumbo
