#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engines/api/model_descriptor.h"
#include "engines/llamacpp/inspect/model_files.h"

namespace rumbo {

// The descriptor of a model folder as Hugging Face lays it out: config.json, one or several .safetensors with
// their headers, tokenizer files. Reads configuration files of at most 4 MiB and headers of at most 64 MiB;
// never the tensors. Errors: kInvalidArgument with kModelInvalid where a file is damaged, a size impossible,
// or config.json contradicts itself or the tensors.
absl::StatusOr<ModelDescriptor> DescribeSafetensors(const ModelFiles& files);

// What the descriptor sums up, one by one, for the preflight: {"config": text of config.json, "tensors":
// [[name, type], ...]} as JSON. The same checks, the same errors.
absl::StatusOr<std::string> ListSafetensors(const ModelFiles& files);

}  // namespace rumbo
