#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>

#include "engines/llamacpp/core/decode_loop.h"
#include "engines/llamacpp/core/embed_queue.h"
#include "engines/llamacpp/llama/llama_embedder.h"
#include "rumbo/engine/v1/engine.grpc.pb.h"

namespace rumbo {

// Embed and Rerank of a model that was loaded for vectors. Texts are tokenised on gRPC's threads; vectors are
// computed on the decode loop's thread, batch by batch, between its other tasks.
//
// Ownership: borrows the model and the loop; both outlive it.
class EmbedService {
 public:
  EmbedService(LoadedModel* model, DecodeLoop* loop);

  grpc::ServerUnaryReactor* Embed(const engine::v1::EmbedRequest& request,
                                  engine::v1::EmbedResponse* response);
  grpc::ServerUnaryReactor* Rerank(const engine::v1::RerankRequest& request,
                                   engine::v1::RerankResponse* response);

  uint64_t tokens() const { return queue_.tokens(); }

 private:
  class Call;

  void Submit(EmbedJob job);
  void Cancel(uint64_t id);
  void StepLater();

  LoadedModel* const model_;
  DecodeLoop* const loop_;
  LlamaEmbedder embedder_;
  EmbedQueue queue_;
  std::atomic<uint64_t> next_id_{1};
  bool stepping_ = false;  // the loop's thread only: a step is posted
};

}  // namespace rumbo
