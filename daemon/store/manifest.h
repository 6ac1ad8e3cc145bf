#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

// What a hub says it has, read from its JSON by rumbo-fetch and again from rumbo-fetch's by the daemon.
// Nothing in it is trusted: names pass CheckRemotePath, digests IsSha256, sizes stay below 16 TiB, lists
// below 20,000 entries. Pure.
namespace rumbo {

struct RemoteFile {
  std::string path;               // in the repository; an OCI layer's media type word ("model", "template")
  std::optional<uint64_t> bytes;  // nullopt: the server has not said
  std::string sha256;             // "" unknown
  std::string git_sha1;           // of a small file that is not in large-file storage; "" unknown
  std::string url;                // where it is; "" as told by the kind of hub
  friend bool operator==(const RemoteFile&, const RemoteFile&) = default;
};

struct RemoteModel {
  std::string revision;  // 40 hex digits of the commit; the manifest's digest; "" for a plain address
  std::string licence;   // "" unknown
  bool gated = false;
  std::vector<RemoteFile> files;
};

// GET /api/models/ORG/REPO/revision/REV?blobs=true of a Hugging Face hub.
absl::StatusOr<RemoteModel> ParseHubModel(std::string_view json);

// An OCI image manifest with Ollama's layers; `files` are its layers, `path` being "model", "projector",
// "template", "system", "params", "license", "adapter" (a second of a kind gets "-2").
absl::StatusOr<RemoteModel> ParseOciManifest(std::string_view json);

// As rumbo-fetch prints it, and back.
std::string RemoteModelToJson(const RemoteModel& model);
absl::StatusOr<RemoteModel> RemoteModelFromJson(std::string_view json);

// One file set of a repository that could be run.
struct RemoteVariant {
  std::string id;                 // "q4_k_m", "bf16", "safetensors"; unique in the answer
  std::string format;             // "gguf", "safetensors", "onnx"
  std::vector<RemoteFile> files;  // a split set in order; else what the format needs
  uint64_t bytes = 0;             // of all; 0 where one is unknown
  std::string problem;            // "" usable; else why not ("part 3 of 4 is missing")
};

// The file sets of a repository: one per GGUF (a split set is one; mmproj files are left out), one for all
// safetensors with their configuration, one for ONNX. Pickles (.bin, .pt, .pth, .ckpt, .pkl) are never part
// of one.
std::vector<RemoteVariant> VariantsOf(const RemoteModel& model);

// Of these, what the reference's selector means: `file` exactly, or `quantization` without regard to case, or
// all of them where both are empty. Errors: kNotFound listing what there is; kFailedPrecondition
// (kModelInvalid) where the choice has a problem.
absl::StatusOr<std::vector<RemoteVariant>> SelectVariants(const RemoteModel& model, const std::string& file,
                                                          const std::string& quantization);

// "-00002-of-00005.gguf" at the end of a name: its number, the count, and what stands before.
struct SplitName {
  std::string stem;
  uint32_t index = 0;
  uint32_t count = 0;
};
std::optional<SplitName> ParseSplitName(std::string_view name);

}  // namespace rumbo
