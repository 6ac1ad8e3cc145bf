#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/api/settings.h"
#include "llama.h"

namespace rumbo {

// Where the plan wants tensors, in the form libllama takes. Must outlive the load it is used for.
class TensorPlacement {
 public:
  // From settings.extra: "experts_on_host" (of the first so many layers) and "tensor_split" (one share per
  // device, "0.6,0.4"). kInvalidArgument where they are malformed or do not match the devices.
  static absl::StatusOr<TensorPlacement> Make(const EngineSettings& settings, size_t devices);

  // Points `params` at what is kept here.
  void Apply(llama_model_params* params) const;

 private:
  std::vector<std::string> patterns_;
  std::vector<llama_model_tensor_buft_override> overrides_;  // ended by an empty one
  std::vector<float> split_;                                 // empty: libllama's own choice
};

}  // namespace rumbo
