#include "engines/llamacpp/llama/settings_check.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

#include "base/status.h"

namespace rumbo {
namespace {

constexpr uint32_t kMaxSequences = 256;  // of libllama
constexpr uint32_t kDefaultContext = 4096;
constexpr Bytes kDefaultHostCache = 256 * kMiB;

const std::set<std::string, std::less<>>& KnownExtras() {
  static const std::set<std::string, std::less<>> known = {
      "disk_cache_bytes", "draft_always",  "draft_optional",   "experts_on_host", "ngram_draft", "outputs",
      "pooling",          "prefill_chunk", "prefix_sequences", "share_prefixes",  "tensor_split"};
  return known;
}

absl::Status CheckRange(const char* name, const std::optional<uint32_t>& value, uint32_t low, uint32_t high) {
  if (!value || (*value >= low && *value <= high)) return absl::OkStatus();
  return InvalidArgument("settings." + std::string(name) + " is " + std::to_string(*value) + ", must be " +
                         std::to_string(low) + " to " + std::to_string(high));
}

absl::Status CheckWord(const char* name, const std::string& value, std::initializer_list<const char*> words) {
  std::string list;
  for (const char* word : words) {
    if (value == word) return absl::OkStatus();
    list += list.empty() ? word : std::string(", ") + word;
  }
  return InvalidArgument("settings." + std::string(name) + " is \"" + value + "\", must be one of " + list);
}

absl::Status CheckContext(EngineSettings* s, const ModelLimits& limits) {
  const uint32_t trained = limits.context_trained == 0 ? UINT32_MAX : limits.context_trained;
  if (!s->context_per_session) {
    s->context_per_session =
        s->context_total ? *s->context_total / *s->sessions : std::min(trained, kDefaultContext);
  }
  RUMBO_RETURN_IF_ERROR(CheckRange("context_per_session", s->context_per_session, 16, 1u << 24));
  if (*s->context_per_session > trained) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kContextTooLarge,
                 "settings.context_per_session is " + std::to_string(*s->context_per_session) +
                     ", but the model was trained for " + std::to_string(trained) + " tokens",
                 "Ask for at most " + std::to_string(trained) + ".");
  }
  const uint64_t total = uint64_t{*s->context_per_session} * *s->sessions;
  if (total > UINT32_MAX) return InvalidArgument("settings.context_per_session times sessions is too large");
  if (!s->context_total) s->context_total = static_cast<uint32_t>(total);
  if (*s->context_total < total) {
    return InvalidArgument("settings.context_total is " + std::to_string(*s->context_total) + ", less than " +
                           std::to_string(*s->sessions) + " sessions of " +
                           std::to_string(*s->context_per_session));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint32_t> ExtraNumber(const EngineSettings& settings, const char* key, uint32_t fallback,
                                     uint32_t low, uint32_t high) {
  const auto it = settings.extra.find(key);
  if (it == settings.extra.end()) return fallback;
  uint32_t value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto [stop, error] = std::from_chars(it->second.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    return InvalidArgument("settings.extra." + std::string(key) + " is \"" + it->second + "\", must be " +
                           std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

absl::StatusOr<Bytes> ExtraBytes(const EngineSettings& settings, const char* key) {
  const auto it = settings.extra.find(key);
  if (it == settings.extra.end()) return 0;
  Bytes value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto [stop, error] = std::from_chars(it->second.data(), end, value);
  if (error != std::errc() || stop != end) {
    return InvalidArgument("settings.extra." + std::string(key) + " is \"" + it->second +
                           "\", must be a number of bytes");
  }
  return value;
}

absl::StatusOr<EngineSettings> CompleteSettings(const EngineSettings& asked, const ModelLimits& limits) {
  EngineSettings s = asked;
  for (const auto& [key, value] : s.extra) {
    if (!KnownExtras().contains(key)) {
      return InvalidArgument("settings.extra." + key + " is no setting of the llama.cpp engine");
    }
  }
  RUMBO_RETURN_IF_ERROR(CheckRange("sessions", s.sessions, 1, kMaxSequences));
  if (!s.sessions) s.sessions = 1;
  RUMBO_RETURN_IF_ERROR(CheckContext(&s, limits));

  RUMBO_RETURN_IF_ERROR(CheckRange("threads", s.threads, 1, 512));
  if (!s.threads) s.threads = limits.usable_cpus;
  RUMBO_RETURN_IF_ERROR(CheckRange("threads_batch", s.threads_batch, 1, 512));
  if (!s.threads_batch) s.threads_batch = s.threads;
  RUMBO_RETURN_IF_ERROR(CheckRange("ubatch", s.ubatch, 1, 16384));
  if (!s.ubatch) s.ubatch = 512;
  RUMBO_RETURN_IF_ERROR(CheckRange("batch", s.batch, 1, 65536));
  if (!s.batch) s.batch = std::max(2048u, *s.ubatch);
  // One token for every session and a prompt token beside them must fit.
  s.batch = std::max(*s.batch, *s.sessions + 1);
  RUMBO_RETURN_IF_ERROR(CheckRange("poll", s.poll, 0, 100));
  if (!s.poll) s.poll = 50;
  RUMBO_RETURN_IF_ERROR(CheckRange("gpu_layers", s.gpu_layers, 0, 100000));

  for (std::string* type : {&s.kv_type_k, &s.kv_type_v}) {
    if (type->empty()) *type = "f16";
  }
  const auto types = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"};
  RUMBO_RETURN_IF_ERROR(CheckWord("kv_type_k", s.kv_type_k, types));
  RUMBO_RETURN_IF_ERROR(CheckWord("kv_type_v", s.kv_type_v, types));
  if (s.flash_attention.empty()) s.flash_attention = "auto";
  RUMBO_RETURN_IF_ERROR(CheckWord("flash_attention", s.flash_attention, {"on", "off", "auto"}));
  if (!s.mmap) s.mmap = true;
  if (!s.kv_unified) s.kv_unified = false;
  if (!s.swa_full) s.swa_full = false;
  if (!s.host_cache_bytes) s.host_cache_bytes = kDefaultHostCache;
  RUMBO_RETURN_IF_ERROR(CheckRange("draft_tokens", s.draft_tokens, 0, 64));
  if (!s.draft_tokens) s.draft_tokens = 0;

  RUMBO_RETURN_IF_ERROR(ExtraBytes(s, "disk_cache_bytes").status());

  for (const auto& [key, fallback, low, high] :
       {std::tuple{"prefill_chunk", 512u, 1u, *s.batch},
        std::tuple{"prefix_sequences", 0u, 0u, kMaxSequences - *s.sessions},
        std::tuple{"share_prefixes", 1u, 0u, 1u}, std::tuple{"ngram_draft", 0u, 0u, 64u}}) {
    RUMBO_ASSIGN_OR_RETURN(const uint32_t value, ExtraNumber(s, key, fallback, low, high));
    s.extra[key] = std::to_string(value);
  }
  // Logits for one token of each sequence and for one answer's guesses: the compute buffer grows with it.
  RUMBO_ASSIGN_OR_RETURN(const uint32_t looked_up, ExtraNumber(s, "ngram_draft", 0, 0, 64));
  const uint32_t guesses = std::max(looked_up, *s.draft_tokens);
  RUMBO_ASSIGN_OR_RETURN(const uint32_t prefixes, ExtraNumber(s, "prefix_sequences", 0, 0, kMaxSequences));
  const uint32_t least = std::min(*s.sessions + prefixes + guesses, *s.batch);
  RUMBO_ASSIGN_OR_RETURN(const uint32_t outputs, ExtraNumber(s, "outputs", least, 1, 65536));
  s.extra["outputs"] = std::to_string(std::max(outputs, least));
  return s;
}

}  // namespace rumbo
