#pragma once

#include <gguf.h>

#include <vector>

#include "absl/status/status.h"
#include "engines/api/model_descriptor.h"
#include "engines/llamacpp/inspect/gguf_view.h"

namespace rumbo {

// Sums the tensor tables of all parts into `out`: bytes by layer and purpose, parameters, types. `out` has
// its layers and architecture already. Errors: kModelInvalid where there is no tensor, or one names a layer
// that the model does not have.
absl::Status DescribeTensors(const std::vector<const gguf_context*>& tables, GgufView& view,
                             ModelDescriptor& out);

}  // namespace rumbo
