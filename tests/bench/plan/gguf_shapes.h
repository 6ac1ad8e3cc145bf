#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

// GGUF files with the metadata and tensor tables of real models but no weights: sparse, so that a model of
// any size takes a few KiB on disk. For planning without the weights and for comparing predictions with
// libllama's own figures.
namespace rumbo::bench {

struct ShapeInfo {
  std::string name;  // "qwen3-8b"
  std::string kind;  // what it stands for: "dense", "moe", "mla", "hybrid", ...
};

// Every shape there is, in a fixed order.
std::vector<ShapeInfo> Shapes();

// Writes the shape to `path`. kNotFound for an unknown name.
absl::Status WriteShape(const std::string& name, const std::string& path);

// The same as folders with config.json and a sparse .safetensors, for servers that take those: names of
// FolderShapes().
std::vector<ShapeInfo> FolderShapes();
absl::Status WriteFolderShape(const std::string& name, const std::string& folder);

}  // namespace rumbo::bench
