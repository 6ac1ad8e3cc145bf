#include "engines/llamacpp/inspect/gguf_tensors.h"

#include <ggml.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/bytes.h"
#include "engines/llamacpp/inspect/errors.h"

namespace rumbo {
namespace {

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string TypeName(ggml_type type) {
  std::string name = ggml_type_name(type);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

uint64_t Elements(const gguf_context* table, int64_t i) {
  const int64_t* ne = gguf_get_tensor_ne(table, i);
  uint64_t n = 1;
  for (int d = 0; d < GGML_MAX_DIMS; ++d)
    n = SaturatingMul(n, static_cast<uint64_t>(std::max<int64_t>(ne[d], 0)));
  return n;
}

// "blk.12.attn_q.weight" is layer 12; nullopt for tensors outside the layers; SIZE_MAX for a number that is
// none.
std::optional<size_t> LayerOf(std::string_view name) {
  if (name.substr(0, 4) != "blk.") return std::nullopt;
  const std::string digits(name.substr(4, name.find('.', 4) - 4));
  if (digits.empty() || digits.size() > 6 || !std::all_of(digits.begin(), digits.end(), ::isdigit)) {
    return std::numeric_limits<size_t>::max();
  }
  return static_cast<size_t>(std::strtoul(digits.c_str(), nullptr, 10));
}

class TensorSum {
 public:
  TensorSum(GgufView& view, ModelDescriptor& out) : view_(view), out_(out) {}

  absl::Status Add(const gguf_context* table, int64_t i) {
    const std::string_view name = gguf_get_tensor_name(table, i);
    const Bytes bytes = gguf_get_tensor_size(table, i);
    const uint64_t elements = Elements(table, i);
    out_.tensor_bytes = SaturatingAdd(out_.tensor_bytes, bytes);
    out_.parameters = SaturatingAdd(out_.parameters, elements);
    Bytes& by_type = out_.bytes_by_type[TypeName(gguf_get_tensor_type(table, i))];
    by_type = SaturatingAdd(by_type, bytes);
    const auto layer = out_.layers.empty() ? std::nullopt : LayerOf(name);
    if (!layer) {
      Outside(name, bytes, elements);
      return absl::OkStatus();
    }
    if (*layer >= out_.layers.size()) {
      return ModelInvalid("tensor '" + std::string(name) + "' names a layer that a model of " +
                          std::to_string(out_.layers.size()) + " layers does not have");
    }
    Inside(name, bytes, elements, out_.layers[*layer]);
    Widths(name.substr(name.find('.', 4) + 1), gguf_get_tensor_ne(table, i), out_.layers[*layer]);
    return absl::OkStatus();
  }

  void Finish() {
    const uint64_t used = out_.experts > 0 ? out_.experts_used : 0;
    const uint64_t all = std::max<uint64_t>(out_.experts, 1);
    const auto active = static_cast<uint64_t>(static_cast<double>(expert_parameters_) *
                                              static_cast<double>(used) / static_cast<double>(all));
    out_.active_parameters = out_.experts > 0
                                 ? SaturatingAdd(SaturatingSub(out_.parameters, expert_parameters_), active)
                                 : out_.parameters;
    if (out_.experts > 0) out_.active_parameters = SaturatingSub(out_.active_parameters, table_parameters_);
  }

 private:
  void Outside(std::string_view name, Bytes bytes, uint64_t elements) {
    if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") {
      out_.token_embedding_bytes = SaturatingAdd(out_.token_embedding_bytes, bytes);
      if (name[0] == 'p') out_.second_embedding_bytes = bytes;
      // A look-up reads one row, so the table costs nothing per token, unless it is the output projection
      // too.
      embedding_parameters_ = elements;
    } else if (name == "output.weight") {
      out_.output_bytes = SaturatingAdd(out_.output_bytes, bytes);
      table_parameters_ = embedding_parameters_;
    } else {
      out_.other_bytes = SaturatingAdd(out_.other_bytes, bytes);
    }
  }

  void Inside(std::string_view name, Bytes bytes, uint64_t elements, LayerDescriptor& layer) {
    Bytes* sum = &layer.attention_bytes;
    if (Contains(name, "_exps")) {
      sum = &layer.expert_bytes;
      expert_parameters_ = SaturatingAdd(expert_parameters_, elements);
    } else if (Contains(name, "ffn_") || Contains(name, "exp_probs")) {
      sum = &layer.dense_ffn_bytes;
    }
    *sum = SaturatingAdd(*sum, bytes);
  }

  static uint32_t Width(int64_t n) { return static_cast<uint32_t>(std::clamp<int64_t>(n, 0, 1 << 30)); }

  static void Widths(std::string_view name, const int64_t* ne, LayerDescriptor& layer) {
    if (name == "attn_q.weight" || name == "attn_q_b.weight") layer.query_width = Width(ne[1]);
    if (name == "attn_output.weight") layer.attention_width = Width(ne[0]);
    if (name == "attn_qkv.weight" && !layer.recurrent) layer.fused_qkv = true;
    if (name == "ffn_down.weight" || name == "ffn_down_shexp.weight") layer.feed_forward = Width(ne[0]);
    if (name == "ffn_gate.weight" || name == "ffn_gate_shexp.weight") layer.gated = true;
    if (name == "ffn_up.weight" && ne[1] == 2 * int64_t{layer.feed_forward}) layer.gated = true;
    if (name == "ffn_down_exps.weight") layer.expert_feed_forward = Width(ne[0]);
    if (layer.recurrent && name == "ssm_conv1d.weight") layer.mixer_conv_width = Width(ne[1]);
  }

  GgufView& view_;
  ModelDescriptor& out_;
  uint64_t expert_parameters_ = 0, embedding_parameters_ = 0, table_parameters_ = 0;
};

// What depends on several tensors, in whatever order the file has them.
void FinishWidths(ModelDescriptor& out) {
  const bool encoder =
      out.output_bytes == 0 && std::none_of(out.layers.begin(), out.layers.end(),
                                            [](const auto& l) { return l.kv_heads > 0 || l.recurrent; });
  out.output_length = encoder ? 0 : out.vocabulary;
  for (LayerDescriptor& layer : out.layers) {
    if (layer.query_width == 0) layer.query_width = layer.attention_width;
  }
}

// The words of llama.cpp's file types, where the file names one; else the type that most bytes have.
std::string Quantization(GgufView& view, const ModelDescriptor& out) {
  static constexpr const char* kWords[] = {
      "F32",   "F16",     "Q4_0",   "Q4_1",   "",       "",        "",       "Q8_0",   "Q5_0",
      "Q5_1",  "Q2_K",    "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S",  "Q4_K_M", "Q5_K_S", "Q5_K_M",
      "Q6_K",  "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S",  "IQ4_NL", "IQ3_S",
      "IQ3_M", "IQ2_S",   "IQ2_M",  "IQ4_XS", "IQ1_M",  "BF16",    "",       "",       "",
      "TQ1_0", "TQ2_0",   "MXFP4",  "NVFP4",  "Q1_0",   "Q2_0"};
  const int64_t id = gguf_find_key(view.context(), "general.file_type");
  if (id >= 0 && gguf_get_kv_type(view.context(), id) == GGUF_TYPE_UINT32) {
    const uint32_t type = gguf_get_val_u32(view.context(), id) & 0x3ff;  // 1024 marks a guess by the loader
    if (type < std::size(kWords) && kWords[type][0] != '\0') return kWords[type];
  }
  for (const auto& [type, bytes] : out.bytes_by_type) {
    if (bytes > out.tensor_bytes - bytes) return type;
  }
  return "mixed";
}

}  // namespace

absl::Status DescribeTensors(const std::vector<const gguf_context*>& tables, GgufView& view,
                             ModelDescriptor& out) {
  TensorSum sum(view, out);
  int64_t count = 0;
  for (const gguf_context* table : tables) {
    const int64_t n = gguf_get_n_tensors(table);
    count += n;
    for (int64_t i = 0; i < n; ++i) RUMBO_RETURN_IF_ERROR(sum.Add(table, i));
  }
  if (count == 0)
    return ModelInvalid("the file has no tensors", "Give the model itself, not a vocabulary or an index.");
  sum.Finish();
  FinishWidths(out);
  out.quantization = Quantization(view, out);
  return view.error();
}

}  // namespace rumbo
