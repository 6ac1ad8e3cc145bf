#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "engines/fake/fake_options.h"
#include "engines/fake/fake_tokenizer.h"
#include "rumbo/engine/v1/engine.grpc.pb.h"

namespace rumbo {

// The fake engine: answers every prompt with "1 2 3 ...", one number a token, and misbehaves where told to.
// Deterministic: the same request gives the same events. No model file is read.
//
// Threading: gRPC's; no thread per stream. `raw_fd` is the engine's own socket, for garbage=wire; -1: none.
class FakeService final : public engine::v1::EngineService::CallbackService {
 public:
  explicit FakeService(int raw_fd);

  grpc::ServerWriteReactor<engine::v1::LoadResponse>* Load(grpc::CallbackServerContext* context,
                                                           const engine::v1::LoadRequest* request) override;
  grpc::ServerWriteReactor<engine::v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const engine::v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const engine::v1::EmbedRequest* request,
                                  engine::v1::EmbedResponse* response) override;
  grpc::ServerUnaryReactor* Rerank(grpc::CallbackServerContext* context,
                                   const engine::v1::RerankRequest* request,
                                   engine::v1::RerankResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const engine::v1::TokenizeRequest* request,
                                     engine::v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const engine::v1::DetokenizeRequest* request,
                                       engine::v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* ApplyTemplate(grpc::CallbackServerContext* context,
                                          const engine::v1::ApplyTemplateRequest* request,
                                          engine::v1::ApplyTemplateResponse* response) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const engine::v1::GetStatsRequest* request,
                                     engine::v1::GetStatsResponse* response) override;

 private:
  friend class FakeLoad;
  friend class FakeAnswer;

  struct Counters {
    std::atomic<uint32_t> running{0};
    std::atomic<uint64_t> prompt_tokens{0};
    std::atomic<uint64_t> generated_tokens{0};
    std::atomic<uint64_t> kv_used{0};
  };

  // Options of the load, or FAILED_PRECONDITION before it.
  absl::StatusOr<FakeOptions> Loaded() const;
  uint32_t ContextPerSession() const { return context_per_session_; }

  const int raw_fd_;
  Counters counters_;
  FakeTokenizer tokenizer_;
  std::atomic<bool> load_started_{false};
  std::atomic<bool> loaded_{false};
  // Written before loaded_ becomes true, constant after.
  FakeOptions options_;
  v1::Settings settings_;
  uint32_t context_per_session_ = 4096;
};

// The text the fake's template makes of a conversation, and what it counts.
std::string RenderFakeChat(const engine::v1::ChatInput& chat);

}  // namespace rumbo
