#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/unique_fd.h"

namespace rumbo {

// The files of one model, open for reading.
struct ModelFiles {
  std::vector<UniqueFd> fds;
  std::vector<std::string> names;
  bool folder = false;  // a folder with config.json and *.safetensors
};

// Opens `path` and, where its name ends in -00001-of-0000N.gguf, the other N - 1 parts beside it; of a
// folder, the configuration, tokenizer and .safetensors files in it. Errors: kNotFound, kPermissionDenied,
// kInvalidArgument with kNotAFile.
absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& path);

}  // namespace rumbo
