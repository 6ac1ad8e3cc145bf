#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "engines/llamacpp/core/decode_loop.h"
#include "engines/llamacpp/llama/adapters.h"
#include "engines/llamacpp/llama/chat_template.h"
#include "engines/llamacpp/llama/model_loader.h"
#include "engines/llamacpp/llama/speculation.h"
#include "engines/llamacpp/service/embed_service.h"
#include "engines/llamacpp/service/idle_saver.h"
#include "engines/worker_kit/token_stream.h"
#include "rumbo/engine/v1/engine.grpc.pb.h"

namespace rumbo {

// rumbo.engine.v1 over one llama.cpp model.
//
// Threading: calls arrive on gRPC's threads; requests are prepared there (validated, rendered, tokenised) and
// posted to the decode loop, the only thread that touches the context.
class WorkerService final : public engine::v1::EngineService::CallbackService {
 public:
  WorkerService();
  ~WorkerService() override;

  grpc::ServerWriteReactor<engine::v1::LoadResponse>* Load(grpc::CallbackServerContext* context,
                                                           const engine::v1::LoadRequest* request) override;
  grpc::ServerWriteReactor<engine::v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const engine::v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const engine::v1::TokenizeRequest* request,
                                     engine::v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const engine::v1::DetokenizeRequest* request,
                                       engine::v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* ApplyTemplate(grpc::CallbackServerContext* context,
                                          const engine::v1::ApplyTemplateRequest* request,
                                          engine::v1::ApplyTemplateResponse* response) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const engine::v1::EmbedRequest* request,
                                  engine::v1::EmbedResponse* response) override;
  grpc::ServerUnaryReactor* Rerank(grpc::CallbackServerContext* context,
                                   const engine::v1::RerankRequest* request,
                                   engine::v1::RerankResponse* response) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const engine::v1::GetStatsRequest* request,
                                     engine::v1::GetStatsResponse* response) override;

 private:
  friend class LoadCall;

  // On the decode loop's thread.
  absl::StatusOr<engine::v1::LoadedInfo> DoLoad(const engine::v1::LoadRequest& request,
                                                const LoadProgressFn& progress);
  absl::Status MakeScheduler(const engine::v1::LoadRequest& request);
  std::unique_ptr<DiskCache> OpenDisk(const engine::v1::LoadRequest& request) const;
  absl::Status RequireLoaded() const;
  absl::Status RequireVectors() const;
  void SubmitWithAdapters(Job job, Adapters::Wanted wanted);
  absl::Status StartAnswer(const engine::v1::GenerateRequest& request, uint64_t id,
                           const std::shared_ptr<TokenStream>& stream);

  std::atomic<bool> load_started_{false};
  std::atomic<bool> loaded_{false};
  std::atomic<uint64_t> next_id_{1};
  // Written before loaded_ becomes true, constant after.
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Adapters> adapters_;
  std::unique_ptr<Speculation> speculation_;
  std::unique_ptr<ModelPort> port_;       // answers
  std::unique_ptr<EmbedService> embeds_;  // or vectors; one of the two
  std::unique_ptr<ChatTemplate> chat_template_;
  std::unique_ptr<DiskCache> disk_;
  std::unique_ptr<IdleSaver> saver_;  // with disk_
  SteadyClock clock_;
  DecodeLoop loop_;  // last: stops before the model goes
};

}  // namespace rumbo
