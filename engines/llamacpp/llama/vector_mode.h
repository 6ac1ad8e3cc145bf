#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engines/api/settings.h"

struct llama_model;

namespace rumbo {

// Whether a model is loaded for vectors (embeddings, scores) instead of answers, and how tokens are pooled
// where a request doesn't say.
struct VectorMode {
  bool on = false;
  std::string pooling;  // "mean", "cls", "last", "rank"; "" the model names none
};

// By settings.extra.pooling, else by what the file says of itself. kInvalidArgument for an unknown word;
// kFailedPrecondition (kCapabilityMissing) for "rank" with a model that scores nothing.
absl::StatusOr<VectorMode> VectorModeOf(const llama_model* model, const EngineSettings& settings);

// What a context for vectors needs of the settings: one pool of cells, batches that are computed in one go,
// a row for every token. `whole_inputs`: inputs are not divided, so a batch must hold the longest.
void AdjustForVectors(bool whole_inputs, bool ubatch_given, EngineSettings* settings);

// Inputs of one batch.
uint32_t VectorSequences(const llama_model* model, const EngineSettings& settings);

}  // namespace rumbo
