#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/llamacpp/llama/model_loader.h"

struct llama_adapter_lora;

namespace rumbo {

// LoRA adapters of one model: read when first asked for, applied by sets of (adapter, scale).
//
// Threading: KeyOf from any thread, the rest on the thread that decodes. Ownership: borrows the model, with
// which the adapters go.
class Adapters {
 public:
  struct File {
    std::string name;
    std::string file;
    std::string sha256;
  };
  using Wanted = std::vector<std::pair<std::string, float>>;

  Adapters(LoadedModel* model, std::vector<File> files);

  // What keeps cached prompts of different sets apart; "" for none. Errors: kNotFound (kModelNotFound) for a
  // name that is no adapter, kInvalidArgument for a name twice, a scale that is no number, or too many.
  absl::StatusOr<std::string> KeyOf(const Wanted& wanted) const;

  // The number of the set; 0 is the model alone. Reads files where needed, which blocks. Errors as KeyOf;
  // kFailedPrecondition: kModelInvalid where a file is no adapter of this model, kCapabilityMissing where it
  // is a kind that cannot be applied. kResourceExhausted (kQueueFull) for too many different sets.
  absl::StatusOr<uint32_t> SetOf(const Wanted& wanted);

  // Makes the set the one that the next computation uses.
  void Apply(uint32_t set);

 private:
  struct Set {
    std::string key;
    std::vector<llama_adapter_lora*> adapters;
    std::vector<float> scales;
  };

  const File* Find(const std::string& name) const;
  absl::StatusOr<llama_adapter_lora*> Load(const File& file);

  LoadedModel* const model_;
  const std::vector<File> files_;
  std::map<std::string, llama_adapter_lora*> loaded_;  // by name
  std::vector<Set> sets_;                              // [0] is empty
  uint32_t applied_ = 0;
};

}  // namespace rumbo
