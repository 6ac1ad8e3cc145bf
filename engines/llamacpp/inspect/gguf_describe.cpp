#include "engines/llamacpp/inspect/gguf_describe.h"

#include <ggml.h>
#include <gguf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/status.h"
#include "base/utf8.h"
#include "engines/llamacpp/inspect/errors.h"
#include "engines/llamacpp/inspect/gguf_arch.h"
#include "engines/llamacpp/inspect/gguf_precheck.h"
#include "engines/llamacpp/inspect/gguf_tensors.h"
#include "engines/llamacpp/inspect/gguf_view.h"

namespace rumbo {
namespace {

constexpr uint32_t kMaxLayers = 4096;
constexpr size_t kMaxTemplate = 1 << 20;
constexpr size_t kMaxValue = 1024;

using Gguf = std::unique_ptr<gguf_context, void (*)(gguf_context*)>;

absl::StatusOr<Gguf> Open(int fd, GgufFacts* facts) {
  RUMBO_RETURN_IF_ERROR(PrecheckGguf(fd, facts));
  const int copy = ::dup(fd);
  FILE* file = copy >= 0 ? ::fdopen(copy, "rb") : nullptr;
  if (file == nullptr) return Internal("no descriptor left for the model file");
  std::rewind(file);
  gguf_init_params params{};
  params.no_alloc = true;
  Gguf gguf(gguf_init_from_file_ptr(file, params), gguf_free);
  std::fclose(file);
  if (gguf == nullptr)
    return ModelInvalid("ggml's reader refuses the file: its tensor table contradicts itself");
  return gguf;
}

// Short facts that people and the store look at. Values are cut; nothing here steers the planner.
constexpr const char* kKept[] = {"general.license",
                                 "general.license.link",
                                 "general.author",
                                 "general.organization",
                                 "general.url",
                                 "general.version",
                                 "general.finetune",
                                 "general.basename",
                                 "general.size_label",
                                 "general.quantized_by",
                                 "general.file_type",
                                 "general.type",
                                 "general.source.url",
                                 "general.source.repo_url",
                                 "tokenizer.ggml.pre",
                                 "tokenizer.ggml.bos_token_id",
                                 "tokenizer.ggml.eos_token_id",
                                 "tokenizer.ggml.eot_token_id",
                                 "tokenizer.ggml.padding_token_id",
                                 "tokenizer.ggml.add_bos_token",
                                 "split.count",
                                 "clip.projector_type"};
constexpr const char* kKeptOfArchitecture[] = {"rope.freq_base",
                                               "rope.dimension_count",
                                               "rope.scaling.type",
                                               "rope.scaling.factor",
                                               "rope.scaling.original_context_length",
                                               "attention.sliding_window",
                                               "attention.causal",
                                               "final_logit_softcapping",
                                               "attn_logit_softcapping",
                                               "nextn_predict_layers"};

std::string ValueText(const gguf_context* g, int64_t id) {
  char number[64] = "";
  switch (gguf_get_kv_type(g, id)) {
    case GGUF_TYPE_STRING: {
      std::string text = SanitizeUtf8(gguf_get_val_str(g, id));
      text.resize(CompleteUtf8Prefix(std::string_view(text).substr(0, kMaxValue)));
      return text;
    }
    case GGUF_TYPE_BOOL:
      return gguf_get_val_bool(g, id) ? "true" : "false";
    case GGUF_TYPE_FLOAT32:
      std::snprintf(number, sizeof number, "%g", static_cast<double>(gguf_get_val_f32(g, id)));
      return number;
    case GGUF_TYPE_FLOAT64:
      std::snprintf(number, sizeof number, "%g", gguf_get_val_f64(g, id));
      return number;
    case GGUF_TYPE_UINT8:
      return std::to_string(gguf_get_val_u8(g, id));
    case GGUF_TYPE_INT8:
      return std::to_string(gguf_get_val_i8(g, id));
    case GGUF_TYPE_UINT16:
      return std::to_string(gguf_get_val_u16(g, id));
    case GGUF_TYPE_INT16:
      return std::to_string(gguf_get_val_i16(g, id));
    case GGUF_TYPE_UINT32:
      return std::to_string(gguf_get_val_u32(g, id));
    case GGUF_TYPE_INT32:
      return std::to_string(gguf_get_val_i32(g, id));
    case GGUF_TYPE_UINT64:
      return std::to_string(gguf_get_val_u64(g, id));
    case GGUF_TYPE_INT64:
      return std::to_string(gguf_get_val_i64(g, id));
    default:
      return "";
  }
}

void Keep(GgufView& view, const std::string& key, ModelDescriptor& out) {
  const int64_t id = gguf_find_key(view.context(), key.c_str());
  if (id < 0) return;
  std::string text = ValueText(view.context(), id);
  if (!text.empty()) out.metadata[key] = std::move(text);
}

void Metadata(GgufView& view, ModelDescriptor& out) {
  for (const char* key : kKept) Keep(view, key, out);
  for (const char* key : kKeptOfArchitecture) Keep(view, view.Arch(key), out);
}

absl::Status Names(GgufView& view, ModelDescriptor& out) {
  if (view.architecture().empty()) return ModelInvalid("general.architecture is missing");
  out.architecture = EscapeForLog(SanitizeUtf8(view.architecture()), 64);
  out.unknown_architecture = !IsKnownArchitecture(view.architecture());
  const std::string name = view.String("general.name").value_or("");
  if (!IsValidUtf8(name)) return ModelInvalid("general.name is no valid UTF-8");
  out.name = EscapeForLog(name, 200);
  return view.error();
}

void Tokenizer(GgufView& view, ModelDescriptor& out) {
  out.tokenizer_model = EscapeForLog(view.String("tokenizer.ggml.model").value_or(""), 64);
  const uint64_t tokens = view.ArraySize("tokenizer.ggml.tokens");
  out.has_tokenizer = tokens > 0 && out.tokenizer_model != "none" && !out.tokenizer_model.empty();
  out.vocabulary = static_cast<uint32_t>(std::min<uint64_t>(tokens, 1u << 30));
  if (out.vocabulary == 0) out.vocabulary = view.Count(view.Arch("vocab_size"));
  const std::string text = view.String("tokenizer.chat_template").value_or("");
  if (text.size() > kMaxTemplate) {
    out.notes.push_back("the chat template is longer than 1 MiB and was left out");
  } else if (!text.empty()) {
    out.has_chat_template = true;
    out.chat_template = SanitizeUtf8(text);
  }
}

void Pooling(GgufView& view, ModelDescriptor& out) {
  static constexpr const char* kWords[] = {"none", "mean", "cls", "last", "rank"};
  const auto value = view.Unsigned(view.Arch("pooling_type"));
  if (value && *value < std::size(kWords)) out.pooling = kWords[*value];
}

absl::Status Shape(GgufView& view, ModelDescriptor& out) {
  const uint32_t layers = view.Count(view.Arch("block_count"));
  RUMBO_RETURN_IF_ERROR(view.error());
  if (layers == 0 || layers > kMaxLayers) {
    return ModelInvalid("'" + out.architecture + ".block_count' is " + std::to_string(layers) +
                        ", models have 1 to " + std::to_string(kMaxLayers) + " layers");
  }
  out.context_trained = view.Count(view.Arch("context_length"));
  out.embedding_length = view.Count(view.Arch("embedding_length"));
  out.experts = view.Count(view.Arch("expert_count"));
  out.mtp_layers = std::min(view.Count(view.Arch("nextn_predict_layers")), layers - 1);
  if (const auto ff = view.PerLayer(view.Arch("feed_forward_length"), layers)) {
    out.feed_forward_length = *std::max_element(ff->begin(), ff->end());
  }
  if (const auto used = view.PerLayer(view.Arch("expert_used_count"), layers)) {
    out.experts_used = *std::max_element(used->begin(), used->end());
  }
  RUMBO_RETURN_IF_ERROR(view.error());
  if (out.embedding_length == 0)
    return ModelInvalid("'" + out.architecture + ".embedding_length' is missing or 0");
  if (out.experts_used > out.experts) {
    return ModelInvalid("the model uses " + std::to_string(out.experts_used) + " of " +
                        std::to_string(out.experts) + " experts");
  }
  out.layers.resize(layers);
  for (uint32_t i = layers - out.mtp_layers; i < layers; ++i) out.layers[i].mtp = true;
  return absl::OkStatus();
}

constexpr std::string_view kEncoders[] = {
    "bert",     "jina-bert-v2", "jina-bert-v3",    "nomic-bert",  "nomic-bert-moe", "neo-bert",
    "eurobert", "modern-bert",  "gemma-embedding", "llama-embed", "t5encoder"};

void Capabilities(ModelDescriptor& out) {
  const bool encoder =
      std::find(std::begin(kEncoders), std::end(kEncoders), out.architecture) != std::end(kEncoders);
  if (out.pooling == "rank") {
    out.capabilities.push_back("rerank");
  } else if (encoder || (!out.pooling.empty() && out.pooling != "none")) {
    out.capabilities.push_back("embed");
  } else {
    out.capabilities.push_back("generate");
    if (out.has_chat_template) out.capabilities.push_back("chat");
  }
}

absl::Status Model(GgufView& view, ModelDescriptor& out) {
  RUMBO_RETURN_IF_ERROR(Shape(view, out));
  Tokenizer(view, out);
  Pooling(view, out);
  DescribeLayers(view, out);
  Capabilities(out);
  return view.error();
}

}  // namespace

absl::StatusOr<ModelDescriptor> DescribeGguf(const std::vector<int>& fds,
                                             const std::vector<std::string>& names) {
  ModelDescriptor out;
  out.format = "gguf";
  out.files = names;
  std::vector<Gguf> parts;
  for (const int fd : fds) {
    GgufFacts facts;
    RUMBO_ASSIGN_OR_RETURN(Gguf gguf, Open(fd, &facts));
    out.file_bytes = SaturatingAdd(out.file_bytes, facts.file_bytes);
    parts.push_back(std::move(gguf));
  }
  if (parts.empty()) return InvalidArgument("no model file was given");
  GgufView view(parts[0].get());
  RUMBO_RETURN_IF_ERROR(Names(view, out));
  const uint32_t split = view.Count("split.count", 1);
  if (split > 1 && split != parts.size()) {
    return ModelInvalid("the model is split into " + std::to_string(split) + " files, " +
                            std::to_string(parts.size()) + " of them are there",
                        "Put all parts into one folder and name the first.");
  }
  if (out.architecture == "clip") {
    out.capabilities = {"projector"};
  } else if (view.String("general.type").value_or("") == "adapter") {
    out.capabilities = {"adapter"};
  } else {
    RUMBO_RETURN_IF_ERROR(Model(view, out));
  }
  Metadata(view, out);
  std::vector<const gguf_context*> tables;
  for (const Gguf& part : parts) tables.push_back(part.get());
  RUMBO_RETURN_IF_ERROR(DescribeTensors(tables, view, out));
  return out;
}

}  // namespace rumbo
