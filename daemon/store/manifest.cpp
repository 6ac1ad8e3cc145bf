#include "daemon/store/manifest.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "base/bytes.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/reference.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr size_t kMaxFiles = 20000;
constexpr uint64_t kMaxBytes = uint64_t{16} << 40;
constexpr size_t kMaxText = 32 << 20;

absl::Status Bad(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid,
               "the server's list of files makes no sense: " + std::string(what),
               "Try again later, or take the model from another place.");
}

absl::StatusOr<json::object> ParseObject(std::string_view text) {
  if (text.size() > kMaxText) return Bad("it is longer than 32 MiB");
  json::parse_options options;
  options.max_depth = 32;
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error || !value.is_object()) return Bad("it is no JSON object");
  return std::move(value.as_object());
}

std::string TextOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return "";
  return std::string(value->get_string().data(), value->get_string().size());
}

std::optional<uint64_t> CountOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_uint64()) return value->get_uint64();
  if (value->is_int64() && value->get_int64() >= 0) return static_cast<uint64_t>(value->get_int64());
  return std::nullopt;
}

bool IsHex(std::string_view text, size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

absl::Status CheckFile(const RemoteFile& file) {
  if (!CheckRemotePath(file.path).ok())
    return Bad("a file is called \"" + EscapeForLog(file.path, 80) + "\"");
  if (file.bytes && *file.bytes > kMaxBytes) return Bad("a file of more than 16 TiB");
  if (!file.sha256.empty() && !IsSha256(file.sha256)) return Bad("a digest that is no sha256");
  if (!file.git_sha1.empty() && !IsHex(file.git_sha1, 40)) return Bad("an object name that is no sha1");
  return absl::OkStatus();
}

absl::Status CheckFiles(const RemoteModel& model) {
  if (model.files.size() > kMaxFiles) return Bad("more than 20,000 files");
  std::set<std::string> seen;
  for (const RemoteFile& file : model.files) {
    RUMBO_RETURN_IF_ERROR(CheckFile(file));
    if (!seen.insert(Lower(file.path)).second)
      return Bad("two files are called \"" + EscapeForLog(file.path, 80) + "\"");
  }
  return absl::OkStatus();
}

// "Q4_K_M" out of "model-Q4_K_M.gguf"; lower case; "" where the name says nothing.
std::string QuantizationIn(std::string_view name) {
  const std::string text = Lower(name);
  static const std::vector<std::string> kWords = {
      "iq1_s",  "iq1_m",  "iq2_xxs", "iq2_xs",  "iq2_s",   "iq2_m",   "iq3_xxs", "iq3_xs",  "iq3_s",
      "iq3_m",  "iq4_xs", "iq4_nl",  "q2_k_xl", "q3_k_xl", "q4_k_xl", "q5_k_xl", "q6_k_xl", "q8_k_xl",
      "q2_k_s", "q2_k_l", "q3_k_s",  "q3_k_m",  "q3_k_l",  "q4_k_s",  "q4_k_m",  "q4_k_l",  "q5_k_s",
      "q5_k_m", "q5_k_l", "q6_k_l",  "q2_k",    "q3_k",    "q4_k",    "q5_k",    "q6_k",    "q8_k",
      "q4_0",   "q4_1",   "q5_0",    "q5_1",    "q8_0",    "tq1_0",   "tq2_0",   "mxfp4",   "bf16",
      "f16",    "fp16",   "f32",     "fp32"};
  const auto border = [&](size_t at) {
    return at >= text.size() ||
           !((text[at] >= 'a' && text[at] <= 'z') || (text[at] >= '0' && text[at] <= '9'));
  };
  std::string best;
  size_t where = 0;
  for (const std::string& word : kWords) {
    const size_t at = text.rfind(word);
    if (at == text.npos || (at > 0 && !border(at - 1)) || !border(at + word.size())) continue;
    if (best.empty() || word.size() > best.size() || (word.size() == best.size() && at > where)) {
      best = word;
      where = at;
    }
  }
  return best;
}

std::string BaseName(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

class Grouper {
 public:
  explicit Grouper(const RemoteModel& model) : model_(model) {}

  std::vector<RemoteVariant> Run() {
    for (const RemoteFile& file : model_.files) {
      const std::string name = Lower(BaseName(file.path));
      if (EndsWith(name, ".gguf") && name.find("mmproj") == name.npos) Gguf(file);
    }
    for (auto& [key, parts] : splits_) Split(key, parts);
    Folder("safetensors", ".safetensors");
    Folder("onnx", ".onnx");
    Name();
    return std::move(out_);
  }

 private:
  void Gguf(const RemoteFile& file) {
    if (const auto split = ParseSplitName(file.path)) {
      splits_[{split->stem, split->count}].push_back({split->index, file});
      return;
    }
    out_.push_back({QuantizationIn(BaseName(file.path)), "gguf", {file}, 0, ""});
  }

  void Split(const std::pair<std::string, uint32_t>& key,
             std::vector<std::pair<uint32_t, RemoteFile>>& parts) {
    std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    RemoteVariant variant;
    variant.format = "gguf";
    variant.id = QuantizationIn(BaseName(key.first));
    for (uint32_t i = 0; i < parts.size(); ++i) {
      if (parts[i].first != i + 1 && variant.problem.empty())
        variant.problem =
            "part " + std::to_string(i + 1) + " of " + std::to_string(key.second) + " is missing";
      variant.files.push_back(parts[i].second);
    }
    if (parts.size() < key.second && variant.problem.empty()) {
      variant.problem =
          "part " + std::to_string(parts.size() + 1) + " of " + std::to_string(key.second) + " is missing";
    }
    out_.push_back(std::move(variant));
  }

  // What transformers would load: weights at the top, with their configuration.
  void Folder(const std::string& format, std::string_view end) {
    RemoteVariant variant;
    variant.id = variant.format = format;
    bool weights = false;
    for (const RemoteFile& file : model_.files) {
      const std::string name = Lower(BaseName(file.path));
      const bool weight = EndsWith(name, end) &&
                          (format == "onnx" || file.path.find('/') == std::string::npos) &&
                          name.compare(0, 12, "consolidated") != 0;
      weights = weights || weight;
      if (weight || IsSetting(file.path)) variant.files.push_back(file);
    }
    if (weights) out_.push_back(std::move(variant));
  }

  static bool IsSetting(const std::string& path) {
    if (path.find('/') != std::string::npos) return false;
    static const std::set<std::string> kNames = {"config.json",
                                                 "generation_config.json",
                                                 "model.safetensors.index.json",
                                                 "tokenizer.json",
                                                 "tokenizer.model",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "vocab.txt",
                                                 "merges.txt",
                                                 "chat_template.jinja",
                                                 "preprocessor_config.json",
                                                 "processor_config.json",
                                                 "hf_quant_config.json",
                                                 "quantize_config.json",
                                                 "modules.json",
                                                 "LICENSE",
                                                 "LICENSE.txt"};
    return kNames.count(path) > 0;
  }

  // Ids are unique: a second of the same quantisation is called after its file.
  void Name() {
    std::map<std::string, int> count;
    for (RemoteVariant& variant : out_) ++count[variant.id];
    std::set<std::string> used;
    for (RemoteVariant& variant : out_) {
      variant.bytes = 0;
      bool known = true;
      for (const RemoteFile& file : variant.files) {
        known = known && file.bytes.has_value();
        variant.bytes = SaturatingAdd(variant.bytes, file.bytes.value_or(0));
      }
      if (!known) variant.bytes = 0;
      if (variant.id.empty() || count[variant.id] > 1) {
        std::string stem = Lower(BaseName(variant.files.front().path));
        if (const auto split = ParseSplitName(stem)) stem = split->stem;
        if (EndsWith(stem, ".gguf")) stem.resize(stem.size() - 5);
        variant.id = stem;
      }
      std::string id = variant.id;
      for (int n = 2; !used.insert(id).second; ++n) id = variant.id + "-" + std::to_string(n);
      variant.id = id;
    }
  }

  const RemoteModel& model_;
  std::map<std::pair<std::string, uint32_t>, std::vector<std::pair<uint32_t, RemoteFile>>> splits_;
  std::vector<RemoteVariant> out_;
};

}  // namespace

absl::StatusOr<RemoteModel> ParseHubModel(std::string_view text) {
  RUMBO_ASSIGN_OR_RETURN(const json::object root, ParseObject(text));
  RemoteModel model;
  model.revision = TextOf(root, "sha");
  if (!IsHex(model.revision, 40)) return Bad("no commit");
  if (const json::value* gated = root.if_contains("gated"))
    model.gated = gated->is_string() || (gated->is_bool() && gated->get_bool());
  if (const json::value* card = root.if_contains("cardData"); card != nullptr && card->is_object())
    model.licence = EscapeForLog(SanitizeUtf8(TextOf(card->get_object(), "license")), 80);
  const json::value* siblings = root.if_contains("siblings");
  if (siblings == nullptr || !siblings->is_array()) return Bad("no files");
  if (siblings->get_array().size() > kMaxFiles) return Bad("more than 20,000 files");
  for (const json::value& value : siblings->get_array()) {
    const json::object* entry = value.if_object();
    if (entry == nullptr) return Bad("an entry is no object");
    RemoteFile file;
    file.path = TextOf(*entry, "rfilename");
    file.bytes = CountOf(*entry, "size");
    const json::value* lfs = entry->if_contains("lfs");
    if (lfs != nullptr && lfs->is_object()) {
      file.sha256 = TextOf(lfs->get_object(), "sha256");
      if (const auto size = CountOf(lfs->get_object(), "size")) file.bytes = size;
    } else {
      file.git_sha1 = TextOf(*entry, "blobId");
    }
    // Files that a model never needs may be called anything (pictures, papers): they are only left out.
    if (!CheckRemotePath(file.path).ok() && file.path.find("..") == std::string::npos &&
        file.path.find('\\') == std::string::npos && (file.path.empty() || file.path[0] != '/')) {
      continue;
    }
    model.files.push_back(std::move(file));
  }
  RUMBO_RETURN_IF_ERROR(CheckFiles(model));
  return model;
}

absl::StatusOr<RemoteModel> ParseOciManifest(std::string_view text) {
  RUMBO_ASSIGN_OR_RETURN(const json::object root, ParseObject(text));
  if (CountOf(root, "schemaVersion").value_or(0) != 2) return Bad("it is no manifest of version 2");
  const json::value* layers = root.if_contains("layers");
  if (layers == nullptr || !layers->is_array() || layers->get_array().empty()) return Bad("no layers");
  if (layers->get_array().size() > 1000) return Bad("more than 1,000 layers");
  RemoteModel model;
  std::map<std::string, int> count;
  for (const json::value& value : layers->get_array()) {
    const json::object* layer = value.if_object();
    if (layer == nullptr) return Bad("a layer is no object");
    const std::string type = TextOf(*layer, "mediaType");
    static constexpr std::string_view kPrefix = "application/vnd.ollama.image.";
    RemoteFile file;
    file.path = type.compare(0, kPrefix.size(), kPrefix) == 0 ? type.substr(kPrefix.size()) : "other";
    const int n = ++count[file.path];
    if (n > 1) file.path += "-" + std::to_string(n);
    const std::string digest = TextOf(*layer, "digest");
    if (digest.compare(0, 7, "sha256:") != 0 || !IsSha256(digest.substr(7)))
      return Bad("a digest that is no sha256");
    file.sha256 = digest.substr(7);
    file.bytes = CountOf(*layer, "size");
    if (!file.bytes) return Bad("a layer without size");
    model.files.push_back(std::move(file));
  }
  RUMBO_RETURN_IF_ERROR(CheckFiles(model));
  return model;
}

std::string RemoteModelToJson(const RemoteModel& model) {
  json::array files;
  for (const RemoteFile& file : model.files) {
    json::object out{{"path", file.path}};
    if (file.bytes) out["bytes"] = *file.bytes;
    if (!file.sha256.empty()) out["sha256"] = file.sha256;
    if (!file.git_sha1.empty()) out["git_sha1"] = file.git_sha1;
    if (!file.url.empty()) out["url"] = file.url;
    files.push_back(std::move(out));
  }
  return json::serialize(json::object{{"revision", model.revision},
                                      {"licence", model.licence},
                                      {"gated", model.gated},
                                      {"files", std::move(files)}});
}

absl::StatusOr<RemoteModel> RemoteModelFromJson(std::string_view text) {
  RUMBO_ASSIGN_OR_RETURN(const json::object root, ParseObject(text));
  RemoteModel model;
  model.revision = TextOf(root, "revision");
  model.licence = EscapeForLog(SanitizeUtf8(TextOf(root, "licence")), 80);
  const json::value* gated = root.if_contains("gated");
  model.gated = gated != nullptr && gated->is_bool() && gated->get_bool();
  const json::value* files = root.if_contains("files");
  if (files == nullptr || !files->is_array()) return Bad("no files");
  for (const json::value& value : files->get_array()) {
    const json::object* entry = value.if_object();
    if (entry == nullptr) return Bad("an entry is no object");
    model.files.push_back({TextOf(*entry, "path"), CountOf(*entry, "bytes"), TextOf(*entry, "sha256"),
                           TextOf(*entry, "git_sha1"), TextOf(*entry, "url")});
  }
  RUMBO_RETURN_IF_ERROR(CheckFiles(model));
  return model;
}

std::vector<RemoteVariant> VariantsOf(const RemoteModel& model) { return Grouper(model).Run(); }

absl::StatusOr<std::vector<RemoteVariant>> SelectVariants(const RemoteModel& model, const std::string& file,
                                                          const std::string& quantization) {
  std::vector<RemoteVariant> all = VariantsOf(model), chosen;
  const std::string wanted = Lower(quantization);
  for (const RemoteVariant& variant : all) {
    bool match = file.empty() && quantization.empty();
    if (!quantization.empty()) match = variant.id == wanted || QuantizationIn(variant.id) == wanted;
    for (const RemoteFile& f : variant.files) match = match || (!file.empty() && f.path == file);
    if (match) chosen.push_back(variant);
  }
  if (chosen.empty()) {
    std::string there;
    for (const RemoteVariant& variant : all) {
      if (there.size() < 300) there += (there.empty() ? "" : ", ") + variant.id;
    }
    return Error(
        absl::StatusCode::kNotFound, Reason::kModelNotFound,
        file.empty() && quantization.empty()
            ? "the repository has no model that Rumbo knows how to run"
            : "the repository has nothing called " + EscapeForLog(file.empty() ? quantization : file, 80),
        there.empty() ? "Give another repository." : "It has: " + there + ".");
  }
  if (chosen.size() == 1 && !chosen[0].problem.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kModelInvalid,
                 chosen[0].id + " in the repository is not complete: " + chosen[0].problem,
                 "Choose another file, or tell its publisher.");
  }
  return chosen;
}

std::optional<SplitName> ParseSplitName(std::string_view name) {
  // -NNNNN-of-NNNNN.gguf
  constexpr size_t kSuffix = 20;
  if (name.size() <= kSuffix || Lower(name.substr(name.size() - 5)) != ".gguf") return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kSuffix);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = [](std::string_view digits) -> uint32_t {
    uint32_t n = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return 0;
      n = n * 10 + static_cast<uint32_t>(c - '0');
    }
    return n;
  };
  SplitName out{std::string(name.substr(0, name.size() - kSuffix)), number(tail.substr(1, 5)),
                number(tail.substr(10, 5))};
  if (out.index == 0 || out.count == 0 || out.index > out.count || out.count > 512) return std::nullopt;
  return out;
}

}  // namespace rumbo
