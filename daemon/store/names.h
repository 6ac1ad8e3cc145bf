#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/check.h"

namespace rumbo {

// One way to get a model that a short name stands for.
struct NamedVariant {
  std::string id;         // "q4_k_m"
  std::string reference;  // what ParseReference takes
};

// An entry of engines/models.yaml.
struct NamedModel {
  std::string name;  // "qwen3:8b"
  std::string title;
  std::string licence;
  std::vector<std::string> tasks;
  std::vector<NamedVariant> variants;  // best first
  std::string source, checked;         // where the facts are from, and the day somebody looked
};

struct ModelNames {
  std::vector<NamedModel> models;
  std::vector<KnownProblem> problems;

  // The entry of that name; nullptr where there is none. "qwen3" is the first whose name begins with
  // "qwen3:".
  const NamedModel* Find(std::string_view name) const;
  // Entries whose name or title holds every word of `query`.
  std::vector<const NamedModel*> Search(std::string_view query) const;
};

// Strict: unknown keys, missing sources and references that do not parse are errors naming the line.
absl::StatusOr<ModelNames> ParseModelNames(std::string_view yaml);

// engines/models.yaml as it was built in. Aborts where that is wrong: a test reads it.
const ModelNames& BuiltInModelNames();
std::string_view BuiltInModelNamesYaml();

}  // namespace rumbo
