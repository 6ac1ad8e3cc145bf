#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/api/model_descriptor.h"

namespace rumbo {

// The descriptor of a GGUF model whose files are open as `fds`, first the one an engine opens; `names` are
// their paths as given, for the descriptor only. Every file passes PrecheckGguf first, then ggml's reader.
// Errors: kInvalidArgument with kModelInvalid (damaged, contradictory, impossible sizes) or kNotAFile.
absl::StatusOr<ModelDescriptor> DescribeGguf(const std::vector<int>& fds,
                                             const std::vector<std::string>& names);

}  // namespace rumbo
