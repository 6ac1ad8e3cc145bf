#include "engines/llamacpp/llama/vector_mode.h"

#include <algorithm>
#include <charconv>

#include "base/status.h"
#include "engines/llamacpp/core/embed_queue.h"
#include "llama.h"

namespace rumbo {
namespace {

constexpr uint32_t kSequences = 32;
constexpr uint32_t kMaxWhole = 8192;  // tokens of an input that is seen whole, unless asked for

std::string Metadata(const llama_model* model, const std::string& key) {
  char value[128];
  const int32_t length = llama_model_meta_val_str(model, key.c_str(), value, sizeof(value));
  return length > 0 ? std::string(value, std::min<size_t>(static_cast<size_t>(length), sizeof(value) - 1))
                    : "";
}

// The word of the file's pooling type; "" for none.
std::string OwnPooling(const llama_model* model) {
  const std::string text = Metadata(model, Metadata(model, "general.architecture") + ".pooling_type");
  int type = 0;
  std::from_chars(text.data(), text.data() + text.size(), type);
  switch (type) {
    case LLAMA_POOLING_TYPE_MEAN:
      return "mean";
    case LLAMA_POOLING_TYPE_CLS:
      return "cls";
    case LLAMA_POOLING_TYPE_LAST:
      return "last";
    case LLAMA_POOLING_TYPE_RANK:
      return "rank";
    default:
      return "";
  }
}

}  // namespace

absl::StatusOr<VectorMode> VectorModeOf(const llama_model* model, const EngineSettings& settings) {
  const std::string own = OwnPooling(model);
  const auto asked = settings.extra.find("pooling");
  if (asked == settings.extra.end()) return VectorMode{!own.empty(), own};
  if (!PoolingByName(asked->second)) {
    return InvalidArgument("settings.extra.pooling is \"" + asked->second +
                           "\", must be one of mean, cls, last, rank");
  }
  if (asked->second == "rank" && own != "rank") {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                 "the model has no head that scores", "Use a reranking model.");
  }
  return VectorMode{true, asked->second};
}

void AdjustForVectors(bool whole_inputs, bool ubatch_given, EngineSettings* settings) {
  EngineSettings& s = *settings;
  if (whole_inputs && !ubatch_given)
    s.ubatch = std::max(*s.ubatch, std::min(*s.context_per_session, kMaxWhole));
  s.batch = s.ubatch;
  s.kv_unified = true;
  s.host_cache_bytes = 0;
  s.extra["outputs"] = std::to_string(*s.ubatch);
  s.extra["prefix_sequences"] = "0";
  s.extra["ngram_draft"] = "0";
}

uint32_t VectorSequences(const llama_model* model, const EngineSettings& settings) {
  // Windows and states are kept per sequence, so more of them would take more memory than planned.
  const bool cheap =
      llama_model_n_swa(model) <= 0 && !llama_model_is_recurrent(model) && !llama_model_is_hybrid(model);
  return cheap ? std::max(*settings.sessions, kSequences) : *settings.sessions;
}

}  // namespace rumbo
