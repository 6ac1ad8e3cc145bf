#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rumbo {

// Where a model comes from, taken apart:
//   hf:org/repo[:file-or-quantisation][@revision]    a repository of a Hugging Face hub
//   ollama:[host[:port]/][namespace/]name[:tag]      a model of an OCI registry that speaks Ollama's way
//   https://host/path[#sha256=HEX]                   one file (http only to a loopback address or name)
//   file:/absolute/path                              a file or folder on this machine
//   name[:variant]                                   anything else: a short name of engines/models.yaml
struct ModelReference {
  enum class Kind { kHub, kRegistry, kUrl, kFile, kShortName };
  Kind kind = Kind::kShortName;
  std::string repository;         // kHub "org/repo"; kRegistry "namespace/name"
  std::string host;               // kRegistry: host[:port]; "" the configured one
  std::string file;               // kHub: a path in the repository; kFile: the absolute path
  std::string quantization;       // kHub: "Q4_K_M"; kShortName: the part after ':'
  std::string revision = "main";  // kHub: branch, tag or commit
  std::string tag = "latest";     // kRegistry
  std::string url;                // kUrl, without the fragment
  std::string sha256;             // kUrl, lower-case hex; "" not given
  std::string name;               // kShortName, without the variant
};

// Errors: kInvalidArgument naming the part. Pure; O(n). Never accepts "..", NUL, backslashes, control or
// non-ASCII characters, Windows device names, or more than 2,048 bytes.
absl::StatusOr<ModelReference> ParseReference(std::string_view text);

// One way of writing each reference: ParseReference(FormatReference(r)) gives r.
std::string FormatReference(const ModelReference& reference);

// What the model is called where the user gives no name: "repo", "repo:q4_k_m", "name:tag", the file's stem.
// Passes CheckModelName.
std::string NameFor(const ModelReference& reference);

// A relative path that a stranger gave (a hub's file list): parts of letters, digits and ._-+@()[]{}, =~ and
// blanks, none "." or "..", none a Windows device, none ending with a dot or blank, at most 255 bytes each
// and 1,024 in all.
absl::Status CheckRemotePath(std::string_view path);

// 64 lower-case hex digits.
bool IsSha256(std::string_view text);

// kInvalidArgument unless `name` can be a model's: 1 to 200 bytes of letters, digits and ._:/@+- , beginning
// with a letter or digit, without "..", "//" or a trailing slash, no part a Windows device name.
absl::Status CheckModelName(const std::string& name);

}  // namespace rumbo
