#include "daemon/store/names.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "base/check.h"
#include "base/nearest.h"
#include "base/status.h"
#include "daemon/store/reference.h"

namespace rumbo {
namespace {

absl::Status Bad(const YAML::Node& node, const std::string& what) {
  return InvalidArgument("models.yaml:" + std::to_string(node.Mark().line + 1) + ": " + what);
}

absl::Status CheckKeys(const YAML::Node& node, const std::set<std::string>& known) {
  if (!node.IsMap()) return Bad(node, "an entry is no map");
  for (const auto& item : node) {
    if (known.count(item.first.as<std::string>()) == 0)
      return Bad(item.first, "unknown key " + item.first.as<std::string>());
  }
  return absl::OkStatus();
}

std::string Text(const YAML::Node& node, const char* key) {
  return node[key] ? node[key].as<std::string>() : "";
}

absl::StatusOr<NamedModel> ParseModel(const YAML::Node& node) {
  RUMBO_RETURN_IF_ERROR(
      CheckKeys(node, {"name", "title", "licence", "tasks", "variants", "source", "checked"}));
  NamedModel model{Text(node, "name"),   Text(node, "title"),  Text(node, "licence"), {}, {},
                   Text(node, "source"), Text(node, "checked")};
  const auto name = ParseReference(model.name);
  if (!name.ok() || name->kind != ModelReference::Kind::kShortName)
    return Bad(node, "its name is no short name");
  if (model.source.empty() || model.checked.empty() || model.licence.empty())
    return Bad(node, model.name + " lacks its licence, source or date");
  for (const YAML::Node& task : node["tasks"]) model.tasks.push_back(task.as<std::string>());
  for (const auto& item : node["variants"]) {
    NamedVariant variant{item.first.as<std::string>(), item.second.as<std::string>()};
    const auto reference = ParseReference(variant.reference);
    if (!reference.ok() || reference->kind == ModelReference::Kind::kShortName)
      return Bad(item.second, variant.reference + " is no reference");
    model.variants.push_back(std::move(variant));
  }
  if (model.variants.empty()) return Bad(node, model.name + " has no variants");
  return model;
}

absl::StatusOr<KnownProblem> ParseProblem(const YAML::Node& node) {
  RUMBO_RETURN_IF_ERROR(CheckKeys(node, {"id", "engine", "versions", "when", "architecture", "quantization",
                                         "backend", "needs", "text", "remedy", "source", "checked"}));
  KnownProblem p;
  p.id = Text(node, "id");
  p.engine = Text(node, "engine");
  p.versions = Text(node, "versions");
  p.when = Text(node, "when");
  p.architecture = Text(node, "architecture");
  p.quantization = Text(node, "quantization");
  p.backend = Text(node, "backend");
  p.needs = Text(node, "needs");
  p.text = Text(node, "text");
  p.remedy = Text(node, "remedy");
  p.source = Text(node, "source");
  p.checked = Text(node, "checked");
  if (p.id.empty() || p.engine.empty() || p.text.empty() || p.source.empty() || p.checked.empty())
    return Bad(node, "a problem lacks id, engine, text, source or date");
  return p;
}

}  // namespace

const NamedModel* ModelNames::Find(std::string_view name) const {
  for (const NamedModel& model : models) {
    if (model.name == name) return &model;
  }
  for (const NamedModel& model : models) {
    if (model.name.size() > name.size() && model.name.compare(0, name.size(), name) == 0 &&
        model.name[name.size()] == ':')
      return &model;
  }
  return nullptr;
}

std::vector<const NamedModel*> ModelNames::Search(std::string_view query) const {
  const auto lower = [](std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return out;
  };
  const std::string words = lower(query);
  std::vector<const NamedModel*> out;
  for (const NamedModel& model : models) {
    std::string text = model.name + " " + model.title;
    for (const std::string& task : model.tasks) text += " " + task;
    text = lower(text);
    bool all = true;
    for (size_t at = 0; at < words.size();) {
      const size_t blank = std::min(words.find(' ', at), words.size());
      all = all && text.find(words.substr(at, blank - at)) != std::string::npos;
      at = blank + 1;
    }
    if (all) out.push_back(&model);
  }
  return out;
}

absl::StatusOr<ModelNames> ParseModelNames(std::string_view yaml) {
  try {
    const YAML::Node root = YAML::Load(std::string(yaml));
    RUMBO_RETURN_IF_ERROR(CheckKeys(root, {"schema", "models", "problems"}));
    ModelNames names;
    std::set<std::string> seen;
    for (const YAML::Node& node : root["models"]) {
      RUMBO_ASSIGN_OR_RETURN(NamedModel model, ParseModel(node));
      if (!seen.insert(model.name).second) return Bad(node, model.name + " is there twice");
      names.models.push_back(std::move(model));
    }
    for (const YAML::Node& node : root["problems"]) {
      RUMBO_ASSIGN_OR_RETURN(KnownProblem problem, ParseProblem(node));
      names.problems.push_back(std::move(problem));
    }
    return names;
  } catch (const YAML::Exception& e) {
    return InvalidArgument(std::string("models.yaml: ") + e.what());
  }
}

const ModelNames& BuiltInModelNames() {
  static const ModelNames* names = [] {
    auto parsed = ParseModelNames(BuiltInModelNamesYaml());
    RUMBO_CHECK(parsed.ok());
    return new ModelNames(std::move(*parsed));
  }();
  return *names;
}

}  // namespace rumbo
