#pragma once

#include <cstdint>

#include "absl/status/status.h"

// Walks the header of a GGUF file before ggml's reader sees it. ggml allocates what a file claims; this
// allocates nothing by a claim: every count and length is first compared with the bytes that are left.
namespace rumbo {

struct GgufFacts {
  uint64_t file_bytes = 0;
  uint64_t header_bytes = 0;  // before the tensor data
  uint64_t tensors = 0;
  uint64_t keys = 0;
};

// Checks the file behind `fd` (any offset; it is left unchanged). Reads the header only, never the tensors.
// Errors: kInvalidArgument with kModelInvalid and a sentence that names the key or tensor.
absl::Status PrecheckGguf(int fd, GgufFacts* facts);

}  // namespace rumbo
