#include "engines/llamacpp/llama/adapters.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/status.h"
#include "base/utf8.h"
#include "engines/llamacpp/llama/llama_log.h"
#include "llama.h"

namespace rumbo {
namespace {

constexpr size_t kMaxAtOnce = 16;
constexpr size_t kMaxSets = 256;

}  // namespace

Adapters::Adapters(LoadedModel* model, std::vector<File> files)
    : model_(model), files_(std::move(files)), sets_(1) {}

const Adapters::File* Adapters::Find(const std::string& name) const {
  const auto it = std::find_if(files_.begin(), files_.end(), [&](const File& f) { return f.name == name; });
  return it == files_.end() ? nullptr : &*it;
}

absl::StatusOr<std::string> Adapters::KeyOf(const Wanted& wanted) const {
  if (wanted.size() > kMaxAtOnce)
    return InvalidArgument("more than " + std::to_string(kMaxAtOnce) + " adapters at once");
  std::vector<std::string> words;
  for (const auto& [name, scale] : wanted) {
    const File* file = Find(name);
    if (file == nullptr) {
      return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound,
                   "the model has no adapter " + EscapeForLog(name, 64),
                   "Import the adapter before the model is loaded; `rumbo models` shows what is there.");
    }
    if (!std::isfinite(scale)) return InvalidArgument("the scale of an adapter is no number");
    if (scale != 0)
      words.push_back(name + "@" + file->sha256 + "*" +
                      std::to_string(std::bit_cast<uint32_t>(scale)));  // exact
  }
  std::sort(words.begin(), words.end());
  std::string key;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto name = [](const std::string& word) { return word.substr(0, word.find('@')); };
    if (i > 0 && name(words[i]) == name(words[i - 1])) return InvalidArgument("an adapter is named twice");
    key += words[i] + "\x1f";
  }
  return key;
}

absl::StatusOr<uint32_t> Adapters::SetOf(const Wanted& wanted) {
  RUMBO_ASSIGN_OR_RETURN(const std::string key, KeyOf(wanted));
  for (size_t i = 0; i < sets_.size(); ++i) {
    if (sets_[i].key == key) return static_cast<uint32_t>(i);
  }
  if (sets_.size() >= kMaxSets) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                 std::to_string(kMaxSets) + " combinations of adapters and scales were used already",
                 "Use fewer different scales, or load the model again.");
  }
  Set set{key, {}, {}};
  for (const auto& [name, scale] : wanted) {
    if (scale == 0) continue;
    RUMBO_ASSIGN_OR_RETURN(llama_adapter_lora* const adapter, Load(*Find(name)));
    set.adapters.push_back(adapter);
    set.scales.push_back(scale);
  }
  sets_.push_back(std::move(set));
  return static_cast<uint32_t>(sets_.size() - 1);
}

absl::StatusOr<llama_adapter_lora*> Adapters::Load(const File& file) {
  if (const auto it = loaded_.find(file.name); it != loaded_.end()) return it->second;
  TakeLogLines();
  llama_adapter_lora* adapter = llama_adapter_lora_init(model_->model, file.file.c_str());
  if (adapter == nullptr) {
    std::string lines = TakeLogLines();
    for (size_t at = lines.find(file.file); at != std::string::npos; at = lines.find(file.file, at))
      lines.replace(at, file.file.size(), "the file");
    while (!lines.empty() && lines.back() == '\n') lines.pop_back();
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kModelInvalid,
                 "the adapter " + EscapeForLog(file.name, 64) +
                     " does not belong to this model: " + EscapeForLog(lines, 400),
                 "Use it with the model it was trained on.");
  }
  if (llama_adapter_get_alora_n_invocation_tokens(adapter) > 0) {
    llama_adapter_lora_free(adapter);
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                 "the adapter " + EscapeForLog(file.name, 64) + " begins at a token of the prompt",
                 "Only adapters for the whole text can be applied.");
  }
  loaded_[file.name] = adapter;
  return adapter;
}

void Adapters::Apply(uint32_t set) {
  if (set == applied_) return;
  applied_ = set;
  Set& s = sets_[set];
  llama_set_adapters_lora(model_->context, s.adapters.data(), s.adapters.size(), s.scales.data());
}

}  // namespace rumbo
