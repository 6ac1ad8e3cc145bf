#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/llamacpp/core/embed_queue.h"
#include "engines/llamacpp/llama/model_loader.h"

namespace rumbo {

// EmbedPort over a model that was loaded for vectors (LoadedModel::embeds).
class LlamaEmbedder final : public EmbedPort {
 public:
  // Borrows `loaded`, which outlives the embedder.
  explicit LlamaEmbedder(LoadedModel* loaded);

  const EmbedTraits& traits() const override { return traits_; }
  bool Compute(std::span<const BatchToken> batch) override;
  const float* TokenRow(size_t batch_index) override;
  const float* InputRow(SequenceId sequence) override;
  void Clear() override;

 private:
  LoadedModel* const loaded_;
  EmbedTraits traits_;
  bool encode_ = false;
};

// The tokens of texts to be embedded. Errors, naming the input: kInvalidArgument where a text has no tokens,
// kPromptTooLong where it has more than `most`; as EncodeText.
absl::StatusOr<std::vector<std::vector<TokenId>>> EmbedInputs(const LoadedModel& model,
                                                              const std::vector<std::string>& texts,
                                                              uint32_t most);

// Query and each document as the model was trained to see the pair. Errors likewise.
absl::StatusOr<std::vector<std::vector<TokenId>>> RerankInputs(const LoadedModel& model,
                                                               const std::string& query,
                                                               const std::vector<std::string>& documents,
                                                               uint32_t most);

}  // namespace rumbo
