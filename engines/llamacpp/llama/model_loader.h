#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/api/engine.h"
#include "engines/api/settings.h"

struct llama_model;
struct llama_context;
struct ggml_threadpool;

namespace rumbo {

struct LoadSpec {
  std::vector<std::string> files;
  EngineSettings settings;
  std::string backend;  // "cpu", "vulkan", ...; "": cpu
  // For backends other than cpu: names of ggml ("Vulkan0"), or numbers and UUIDs of a runtime whose
  // environment shows these devices alone, in this order. Memory is reported under the same words.
  std::vector<std::string> device_selectors;
  bool drafted_by_other = false;  // a draft model guesses, not heads of this one
};

// A model with its context. Destroyed in the right order.
struct LoadedModel {
  LoadedModel() = default;
  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  llama_model* model = nullptr;
  llama_context* context = nullptr;
  ggml_threadpool* threadpool = nullptr;
  ggml_threadpool* threadpool_batch = nullptr;
  EngineSettings settings;  // in force
  std::vector<MemoryItem> memory;
  std::string engine_version;
  std::string backend_variant;
  std::vector<int32_t> end_of_text;  // tokens that end an answer
  uint32_t sequences = 0;            // sessions and sequences kept for shared prefixes
  bool embeds = false;               // loaded for vectors: makes no answers
  std::string pooling;               // then: "mean", "cls", "last", "rank"; "" the request must say
};

// Progress of a load: 0 to 1, and the step. Returns false to give the load up.
using LoadProgressFn = std::function<bool(double fraction, const char* step)>;

// Loads the model and makes its context. Blocks; call on the thread that will decode.
// Errors:
//   kInvalidArgument      a setting is out of range or unknown; the message names it. kContextTooLarge.
//   kNotFound, kPermissionDenied, kFailedPrecondition   the file: kFileNotFound, kFileNotReadable, kNotAFile,
//                         kModelInvalid, kUnsupportedArchitecture.
//   kFailedPrecondition   kBackendUnavailable, kDeviceNotUsable.
//   kResourceExhausted    kDoesNotFit: the memory could not be had.
//   kCancelled            progress returned false.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const LoadSpec& spec, const LoadProgressFn& progress);

// What a second context took beside the model's own, with the weights of its model or without, as "draft".
std::vector<MemoryItem> DraftMemory(const llama_context* context, bool with_weights);

// One token through the model, so that the first request does not pay for page faults and graph building. On
// the thread that decodes, before any request; leaves no trace in the cache.
void WarmUp(LoadedModel& loaded);

// The folder of the llama.cpp libraries this program runs with.
std::string LibraryDir();

}  // namespace rumbo
