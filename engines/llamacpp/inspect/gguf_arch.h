#pragma once

#include <string_view>

#include "engines/api/model_descriptor.h"
#include "engines/llamacpp/inspect/gguf_view.h"

namespace rumbo {

// True for a value of general.architecture that the pinned llama.cpp can load.
bool IsKnownArchitecture(std::string_view architecture);

// Fills what each layer keeps per token or per sequence (heads, window, recurrent state), as llama.cpp lays
// its caches out for this architecture, and notes every default that the file left open. `descriptor` has its
// layers already, with MTP layers marked. Errors end up in view.error().
void DescribeLayers(GgufView& view, ModelDescriptor& descriptor);

}  // namespace rumbo
