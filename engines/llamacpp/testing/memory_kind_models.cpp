#include "engines/llamacpp/testing/memory_kind_models.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <vector>

namespace rumbo {
namespace {

// Types of GGUF values.
enum : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kString = 8, kArray = 9 };

constexpr uint32_t kAlignment = 32;
constexpr uint32_t kEmbedding = 64, kHeads = 4, kKvHeads = 2, kFeedForward = 128, kLayers = 2;
constexpr uint32_t kHead = kEmbedding / kHeads, kKv = kHead * kKvHeads;

class TinyWriter {
 public:
  explicit TinyWriter(const std::string& architecture) : architecture_(architecture) {
    Text("general.architecture", architecture);
    U32("context_length", 2048);
    U32("embedding_length", kEmbedding);
    U32("block_count", kLayers);
    U32("feed_forward_length", kFeedForward);
    F32("attention.layer_norm_rms_epsilon", 1e-5f);
    Vocabulary();
  }

  void U32(const std::string& key, uint32_t value) { Scalar(architecture_ + "." + key, kU32, value); }
  void F32(const std::string& key, float value) { Scalar(architecture_ + "." + key, kF32, value); }
  void I32s(const std::string& key, const std::vector<int32_t>& values) {
    Array(architecture_ + "." + key, kI32, values.size());
    for (const int32_t v : values) Raw(&keys_, v);
  }

  // Random numbers of the given spread about `mean`.
  void Tensor(const std::string& name, std::vector<uint64_t> dims, float spread, float mean = 0) {
    String(&infos_, name);
    Raw(&infos_, static_cast<uint32_t>(dims.size()));
    uint64_t count = 1;
    for (const uint64_t d : dims) {
      Raw(&infos_, d);
      count *= d;
    }
    Raw(&infos_, uint32_t{0});  // F32
    while (data_.size() % kAlignment != 0) data_.push_back(0);
    Raw(&infos_, static_cast<uint64_t>(data_.size()));
    std::normal_distribution<float> numbers(mean, spread);
    for (uint64_t i = 0; i < count; ++i) Raw(&data_, numbers(random_));
    ++tensors_;
  }
  // Rows that keep the size of what goes through them.
  void Matrix(const std::string& name, uint64_t in, uint64_t out) {
    Tensor(name, {in, out}, 1 / std::sqrt(static_cast<float>(in)));
  }
  void Norm(const std::string& name, uint64_t size) { Tensor(name, {size}, 0.1f, 1); }

  bool Write(const std::string& path) {
    std::vector<char> head;
    Raw(&head, uint32_t{0x46554747});
    Raw(&head, uint32_t{3});
    Raw(&head, tensors_);
    Raw(&head, values_);
    head.insert(head.end(), keys_.begin(), keys_.end());
    head.insert(head.end(), infos_.begin(), infos_.end());
    while (head.size() % kAlignment != 0) head.push_back(0);
    std::ofstream out(path, std::ios::binary);
    out.write(head.data(), static_cast<std::streamsize>(head.size()));
    out.write(data_.data(), static_cast<std::streamsize>(data_.size()));
    return out.good();
  }

 private:
  template <typename T>
  static void Raw(std::vector<char>* to, T value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    to->insert(to->end(), bytes, bytes + sizeof(value));
  }
  static void String(std::vector<char>* to, const std::string& text) {
    Raw(to, static_cast<uint64_t>(text.size()));
    to->insert(to->end(), text.begin(), text.end());
  }
  template <typename T>
  void Scalar(const std::string& key, uint32_t type, T value) {
    String(&keys_, key);
    Raw(&keys_, type);
    Raw(&keys_, value);
    ++values_;
  }
  void Text(const std::string& key, const std::string& value) {
    String(&keys_, key);
    Raw(&keys_, uint32_t{kString});
    String(&keys_, value);
    ++values_;
  }
  void Array(const std::string& key, uint32_t type, size_t size) {
    String(&keys_, key);
    Raw(&keys_, uint32_t{kArray});
    Raw(&keys_, type);
    Raw(&keys_, static_cast<uint64_t>(size));
    ++values_;
  }
  void Vocabulary() {
    Text("tokenizer.ggml.model", "llama");
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    char name[8];
    for (int i = 0; i < 256; ++i) {
      std::snprintf(name, sizeof(name), "<0x%02X>", i);
      tokens.emplace_back(name);
    }
    Array("tokenizer.ggml.tokens", kString, tokens.size());
    for (const std::string& token : tokens) String(&keys_, token);
    Array("tokenizer.ggml.scores", kF32, tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) Raw(&keys_, 0.0f);
    Array("tokenizer.ggml.token_type", kI32, tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i)
      Raw(&keys_, i == 0 ? 2 : i < 3 ? 3 : 6);  // unknown, control, byte
    Scalar("tokenizer.ggml.bos_token_id", kU32, uint32_t{1});
    Scalar("tokenizer.ggml.eos_token_id", kU32, uint32_t{2});
  }

  const std::string architecture_;
  std::vector<char> keys_, infos_, data_;
  uint64_t values_ = 0, tensors_ = 0;
  std::mt19937 random_{7};
};

std::string Block(uint32_t layer, const char* name) { return "blk." + std::to_string(layer) + "." + name; }

void Attention(TinyWriter* w, uint32_t layer) {
  w->Matrix(Block(layer, "attn_q.weight"), kEmbedding, kEmbedding);
  w->Matrix(Block(layer, "attn_k.weight"), kEmbedding, kKv);
  w->Matrix(Block(layer, "attn_v.weight"), kEmbedding, kKv);
  w->Matrix(Block(layer, "attn_output.weight"), kEmbedding, kEmbedding);
}

void FeedForward(TinyWriter* w, uint32_t layer) {
  w->Norm(Block(layer, "ffn_norm.weight"), kEmbedding);
  w->Matrix(Block(layer, "ffn_gate.weight"), kEmbedding, kFeedForward);
  w->Matrix(Block(layer, "ffn_up.weight"), kEmbedding, kFeedForward);
  w->Matrix(Block(layer, "ffn_down.weight"), kFeedForward, kEmbedding);
}

bool WriteAttention(const std::string& path, bool window) {
  TinyWriter w(window ? "gemma2" : "llama");
  w.U32("attention.head_count", kHeads);
  w.U32("attention.head_count_kv", kKvHeads);
  w.U32("attention.key_length", kHead);
  w.U32("attention.value_length", kHead);
  if (window) w.U32("attention.sliding_window", kTinyWindow);
  w.Matrix("token_embd.weight", kEmbedding, kTinyVocabulary);
  w.Norm("output_norm.weight", kEmbedding);
  if (!window) w.Matrix("output.weight", kEmbedding, kTinyVocabulary);
  for (uint32_t i = 0; i < kLayers; ++i) {
    w.Norm(Block(i, "attn_norm.weight"), kEmbedding);
    Attention(&w, i);
    FeedForward(&w, i);
    if (!window) continue;
    w.Norm(Block(i, "post_attention_norm.weight"), kEmbedding);
    w.Norm(Block(i, "post_ffw_norm.weight"), kEmbedding);
  }
  return w.Write(path);
}

bool WriteRecurrent(const std::string& path) {
  constexpr uint32_t kInner = 2 * kEmbedding, kState = 16, kRank = 4, kConv = 4;
  TinyWriter w("mamba");
  w.U32("ssm.conv_kernel", kConv);
  w.U32("ssm.inner_size", kInner);
  w.U32("ssm.state_size", kState);
  w.U32("ssm.time_step_rank", kRank);
  w.Matrix("token_embd.weight", kEmbedding, kTinyVocabulary);
  w.Norm("output_norm.weight", kEmbedding);
  w.Matrix("output.weight", kEmbedding, kTinyVocabulary);
  for (uint32_t i = 0; i < kLayers; ++i) {
    w.Norm(Block(i, "attn_norm.weight"), kEmbedding);
    w.Matrix(Block(i, "ssm_in.weight"), kEmbedding, 2 * kInner);
    w.Tensor(Block(i, "ssm_conv1d.weight"), {kConv, kInner}, 0.5f);
    w.Tensor(Block(i, "ssm_conv1d.bias"), {kInner}, 0.1f);
    w.Matrix(Block(i, "ssm_x.weight"), kInner, kRank + 2 * kState);
    w.Matrix(Block(i, "ssm_dt.weight"), kRank, kInner);
    w.Tensor(Block(i, "ssm_dt.bias"), {kInner}, 0.1f, -2);  // small steps: the state remembers long
    w.Tensor(Block(i, "ssm_a"), {kState, kInner}, 0.05f, -0.3f);
    w.Tensor(Block(i, "ssm_d"), {kInner}, 0.1f, 1);
    w.Matrix(Block(i, "ssm_out.weight"), kInner, kEmbedding);
  }
  return w.Write(path);
}

// One layer with a short convolution, one with attention.
bool WriteHybrid(const std::string& path) {
  constexpr uint32_t kConv = 3;
  TinyWriter w("lfm2");
  w.U32("shortconv.l_cache", kConv);
  w.U32("attention.head_count", kHeads);
  w.I32s("attention.head_count_kv", {0, static_cast<int32_t>(kKvHeads)});
  w.Matrix("token_embd.weight", kEmbedding, kTinyVocabulary);
  w.Norm("token_embd_norm.weight", kEmbedding);
  for (uint32_t i = 0; i < kLayers; ++i) {
    w.Norm(Block(i, "attn_norm.weight"), kEmbedding);
    FeedForward(&w, i);
    if (i == 0) {
      w.Tensor(Block(i, "shortconv.conv.weight"), {kConv, kEmbedding}, 0.5f);
      w.Matrix(Block(i, "shortconv.in_proj.weight"), kEmbedding, 3 * kEmbedding);
      w.Matrix(Block(i, "shortconv.out_proj.weight"), kEmbedding, kEmbedding);
    } else {
      Attention(&w, i);
      w.Norm(Block(i, "attn_q_norm.weight"), kHead);
      w.Norm(Block(i, "attn_k_norm.weight"), kHead);
    }
  }
  return w.Write(path);
}

}  // namespace

bool WriteTinyModel(const std::string& kind, const std::string& path) {
  if (kind == "full" || kind == "window") return WriteAttention(path, kind == "window");
  if (kind == "recurrent") return WriteRecurrent(path);
  return kind == "hybrid" && WriteHybrid(path);
}

}  // namespace rumbo
