#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "base/status.h"
#include "tests/bench/plan/gguf_shapes.h"

namespace rumbo::bench {
namespace {

// A sparse .safetensors: tensors are named and sized, never written.
class TensorFile {
 public:
  void Add(const std::string& name, const std::string& dtype, uint64_t elements, uint64_t bytes) {
    header_ += (header_.size() > 1 ? "," : "") + std::string("\"") + name + "\":{\"dtype\":\"" + dtype +
               "\",\"shape\":[" + std::to_string(elements) + "],\"data_offsets\":[" + std::to_string(at_) +
               "," + std::to_string(at_ + bytes) + "]}";
    at_ += bytes;
  }
  absl::Status Write(const std::string& path) {
    header_ += "}";
    const uint64_t length = header_.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << header_;
    out.close();
    if (!out || ::truncate(path.c_str(), static_cast<off_t>(8 + length + at_)) != 0)
      return Internal("cannot write " + path);
    return absl::OkStatus();
  }

 private:
  std::string header_ = "{";
  uint64_t at_ = 0;
};

struct Hybrid {
  const char* name;
  uint32_t layers, embd, ff, heads, kv_heads, value_heads, vocab;
  const char* dtype;  // of the matrices
  double bits;
  const char* quantization;  // "" none
};

constexpr Hybrid kHybrids[] = {
    {"qwen3.8-27b-awq", 64, 5120, 17408, 24, 4, 48, 248320, "I32", 4.25, "awq"},
    {"qwen3.8-27b-fp8", 64, 5120, 17408, 24, 4, 48, 248320, "F8_E4M3", 8, "fp8"},
    {"qwen3.5-9b-bf16", 32, 4096, 12288, 16, 4, 32, 248320, "BF16", 16, ""},
    {"qwen3.5-9b-fp8", 32, 4096, 12288, 16, 4, 32, 248320, "F8_E4M3", 8, "fp8"},
};

std::string Config(const Hybrid& h) {
  std::string kinds;
  for (uint32_t i = 0; i < h.layers; ++i) {
    kinds +=
        std::string(i > 0 ? "," : "") + ((i + 1) % 4 == 0 ? "\"full_attention\"" : "\"linear_attention\"");
  }
  const auto n = [](const char* key, uint64_t value) {
    return "\"" + std::string(key) + "\":" + std::to_string(value) + ",";
  };
  return "{\"model_type\":\"qwen3_5\",\"architectures\":[\"Qwen3_5ForCausalLM\"]," +
         n("num_hidden_layers", h.layers) + n("hidden_size", h.embd) + n("intermediate_size", h.ff) +
         n("num_attention_heads", h.heads) + n("num_key_value_heads", h.kv_heads) + n("head_dim", 256) +
         n("vocab_size", h.vocab) + n("max_position_embeddings", 262144) +
         n("linear_num_value_heads", h.value_heads) + n("linear_num_key_heads", 16) +
         n("linear_key_head_dim", 128) + n("linear_value_head_dim", 128) + n("linear_conv_kernel_dim", 4) +
         (h.quantization[0] != 0
              ? "\"quantization_config\":{\"quant_method\":\"" + std::string(h.quantization) + "\"},"
              : "") +
         "\"layer_types\":[" + kinds + "]}";
}

absl::Status WriteHybrid(const Hybrid& h, const std::string& folder) {
  std::ofstream(folder + "/config.json") << Config(h);
  TensorFile file;
  // Packed words hold several values each: the element count is of words.
  const auto matrix = [&](const std::string& name, uint64_t elements) {
    const auto bytes = static_cast<uint64_t>(static_cast<double>(elements) * h.bits / 8) / 4 * 4;
    const uint64_t word = h.dtype == std::string("I32") ? 4 : h.dtype == std::string("BF16") ? 2 : 1;
    file.Add(name, h.dtype, bytes / word, bytes);
  };
  const uint64_t e = h.embd, table = e * h.vocab;
  file.Add("model.embed_tokens.weight", "BF16", table, table * 2);
  file.Add("lm_head.weight", "BF16", table, table * 2);
  const uint64_t values = uint64_t{h.value_heads} * 128, keys = 2048;
  for (uint32_t i = 0; i < h.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const bool full = (i + 1) % 4 == 0;
    const uint64_t q = uint64_t{h.heads} * 256, kv = uint64_t{h.kv_heads} * 256;
    matrix(layer + "self_attn.weight",
           full ? e * (3 * q + 2 * kv) : e * (2 * keys + 2 * values) + values * e);
    matrix(layer + "mlp.weight", 3 * e * h.ff);
  }
  return file.Write(folder + "/model.safetensors");
}

absl::Status WriteVoice(const std::string& folder) {
  std::ofstream(folder + "/config.json") << "{\"model_type\":\"kokoro\",\"hidden_size\":512,\"num_hidden_"
                                            "layers\":12,\"num_attention_heads\":12,\"head_dim\":64}";
  TensorFile file;
  for (int i = 0; i < 12; ++i)
    file.Add("encoder.layers." + std::to_string(i) + ".weight", "F32", 6833333, 6833333ull * 4);
  return file.Write(folder + "/model.safetensors");
}

}  // namespace

std::vector<ShapeInfo> FolderShapes() {
  std::vector<ShapeInfo> list;
  for (const Hybrid& h : kHybrids) list.push_back({h.name, "hybrid"});
  list.push_back({"kokoro-82m", "speech"});
  return list;
}

absl::Status WriteFolderShape(const std::string& name, const std::string& folder) {
  ::mkdir(folder.c_str(), 0755);
  if (name == "kokoro-82m") return WriteVoice(folder);
  for (const Hybrid& h : kHybrids) {
    if (name == h.name) return WriteHybrid(h, folder);
  }
  return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound,
               "there is no folder shape '" + name + "'");
}

}  // namespace rumbo::bench
