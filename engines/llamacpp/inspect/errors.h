#pragma once

#include "absl/status/status.h"
#include "base/status.h"

namespace rumbo {

// A file that is no usable model: kInvalidArgument, kModelInvalid.
inline absl::Status ModelInvalid(std::string_view message,
                                 std::string_view next_step = "Use another copy of the model.") {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid, message, next_step);
}

inline absl::Status NotAModelFile() {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kNotAFile, "the model is not a regular file",
               "Name a .gguf file, or a folder with config.json and *.safetensors.");
}

}  // namespace rumbo
