// rumbo-tiny-models DIR [SOURCE.gguf]: writes small models with random weights for tests, and from SOURCE a
// draft of its first layers. Same bytes every time.
//   bert-mean.gguf, bert-none.gguf   encoders with a tiny WordPiece vocabulary
//   bert-rank.gguf                   the same with a head that scores
// With SOURCE (a llama-type model):
//   draft.gguf       its embedding, first layers and output
//   moe.gguf         a mixture of experts with its vocabulary
//   lora.gguf        an adapter for it; lora-width.gguf, lora-kind.gguf: for models of another width or kind
//   mtp.gguf         a recurrent and attention hybrid with a head that guesses the token after next, mostly
//   right
#include <ggml.h>
#include <gguf.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

class Writer {
 public:
  explicit Writer(const std::string& architecture, uint32_t seed = 1)
      : gguf(gguf_init_empty()), architecture_(architecture), random_(seed) {
    tensors_ = ggml_init({.mem_size = size_t{256} << 20, .mem_buffer = nullptr, .no_alloc = false});
    Text("general.architecture", architecture);
  }
  ~Writer() {
    ggml_free(tensors_);
    gguf_free(gguf);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Text(const std::string& key, const std::string& value) {
    gguf_set_val_str(gguf, key.c_str(), value.c_str());
  }
  void U32(const std::string& key, uint32_t value) { gguf_set_val_u32(gguf, Own(key).c_str(), value); }
  void F32(const std::string& key, float value) { gguf_set_val_f32(gguf, Own(key).c_str(), value); }
  void Bool(const std::string& key, bool value) { gguf_set_val_bool(gguf, Own(key).c_str(), value); }

  // Random values around `mean`.
  void Tensor(const std::string& name, std::vector<int64_t> dims, float spread, float mean = 0) {
    ggml_tensor* tensor =
        ggml_new_tensor(tensors_, GGML_TYPE_F32, static_cast<int>(dims.size()), dims.data());
    ggml_set_name(tensor, name.c_str());
    auto* values = static_cast<float*>(tensor->data);
    for (int64_t i = 0; i < ggml_nelements(tensor); ++i) {
      // Twelve uniform numbers: the same everywhere, unlike the library's normal distribution.
      float sum = -6;
      for (int k = 0; k < 12; ++k) sum += static_cast<float>(random_()) / 4294967296.0f;
      values[i] = mean + spread * sum;
    }
    gguf_add_tensor(gguf, tensor);
  }
  void Matrix(const std::string& name, std::vector<int64_t> dims) { Tensor(name, std::move(dims), 0.08f); }
  void Norm(const std::string& name, int64_t n) { Tensor(name, {n}, 0.05f, 1); }
  void Bias(const std::string& name, int64_t n) { Tensor(name, {n}, 0.02f); }

  void Ones(const std::string& name, std::vector<int64_t> dims, float value) {
    Tensor(name, std::move(dims), 0, value);
  }
  // Passes the first `rows` of its inputs on, the others hardly.
  void Passing(const std::string& name, int64_t columns, int64_t rows) {
    Tensor(name, {columns, rows}, 0.01f);
    auto* values = static_cast<float*>(ggml_get_tensor(tensors_, name.c_str())->data);
    for (int64_t r = 0; r < rows; ++r) values[r * columns + r] = 1;
  }
  void I32s(const std::string& key, const std::vector<int32_t>& values) {
    gguf_set_arr_data(gguf, Own(key).c_str(), GGUF_TYPE_INT32, values.data(), values.size());
  }
  // The vocabulary of another file.
  void Tokenizer(const gguf_context* source) {
    gguf_set_kv(gguf, source);
    Text("general.architecture", architecture_);
  }

  bool Write(const std::string& path) { return gguf_write_to_file(gguf, path.c_str(), false); }

  gguf_context* gguf;

 private:
  std::string Own(const std::string& key) const {
    return key.starts_with("tokenizer.") || key.starts_with("general.") || key.starts_with("adapter.")
               ? key
               : architecture_ + "." + key;
  }

  std::string architecture_;
  std::mt19937 random_;
  ggml_context* tensors_;
};

std::string Block(int layer, const char* name) { return "blk." + std::to_string(layer) + "." + name; }

// Letters, their continuations and some words.
void WordPieces(Writer* w) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char c = 'a'; c <= 'z'; ++c) tokens.push_back(std::string("\xe2\x96\x81") + c);
  for (char c = 'a'; c <= 'z'; ++c) tokens.push_back(std::string(1, c));
  for (const char* word : {"the", "sea", "ship", "sails", "is", "blue", "wind", "course"})
    tokens.push_back(std::string("\xe2\x96\x81") + word);
  std::vector<const char*> words;
  for (const std::string& token : tokens) words.push_back(token.c_str());
  std::vector<int32_t> types(tokens.size(), 1);
  for (size_t i = 0; i < 5; ++i) types[i] = 3;
  w->Text("tokenizer.ggml.model", "bert");
  gguf_set_arr_str(w->gguf, "tokenizer.ggml.tokens", words.data(), words.size());
  gguf_set_arr_data(w->gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  w->U32("tokenizer.ggml.token_type_count", 2);
  w->U32("tokenizer.ggml.bos_token_id", 2);
  w->U32("tokenizer.ggml.eos_token_id", 3);
  w->U32("tokenizer.ggml.unknown_token_id", 1);
  w->U32("tokenizer.ggml.seperator_token_id", 3);
  w->U32("tokenizer.ggml.padding_token_id", 0);
  w->U32("tokenizer.ggml.cls_token_id", 2);
  w->U32("tokenizer.ggml.mask_token_id", 4);
  // A pair of texts is [CLS] one [SEP] other [SEP].
  w->Bool("tokenizer.ggml.add_bos_token", true);
  w->Bool("tokenizer.ggml.add_eos_token", true);
  w->Bool("tokenizer.ggml.add_sep_token", false);
  w->U32("vocab_size", static_cast<uint32_t>(tokens.size()));
}

bool Bert(const std::string& path, uint32_t pooling) {
  constexpr int64_t kWidth = 32, kInner = 64, kContext = 128, kVocab = 5 + 26 + 26 + 8;
  Writer w("bert");
  w.Text("general.name", "tiny encoder");
  w.U32("block_count", 2);
  w.U32("context_length", kContext);
  w.U32("embedding_length", kWidth);
  w.U32("feed_forward_length", kInner);
  w.U32("attention.head_count", 4);
  w.F32("attention.layer_norm_epsilon", 1e-12f);
  w.Bool("attention.causal", false);
  if (pooling > 0) w.U32("pooling_type", pooling);
  WordPieces(&w);
  w.Matrix("token_embd.weight", {kWidth, kVocab});
  w.Matrix("token_types.weight", {kWidth, 2});
  w.Matrix("position_embd.weight", {kWidth, kContext});
  w.Norm("token_embd_norm.weight", kWidth);
  w.Bias("token_embd_norm.bias", kWidth);
  if (pooling == 4) {
    w.Matrix("cls.weight", {kWidth, kWidth});
    w.Bias("cls.bias", kWidth);
    w.Matrix("cls.output.weight", {kWidth, 1});
    w.Bias("cls.output.bias", 1);
  }
  for (int i = 0; i < 2; ++i) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      w.Matrix(Block(i, (std::string(name) + ".weight").c_str()), {kWidth, kWidth});
      w.Bias(Block(i, (std::string(name) + ".bias").c_str()), kWidth);
    }
    for (const char* name : {"attn_output_norm", "layer_output_norm"}) {
      w.Norm(Block(i, (std::string(name) + ".weight").c_str()), kWidth);
      w.Bias(Block(i, (std::string(name) + ".bias").c_str()), kWidth);
    }
    w.Matrix(Block(i, "ffn_up.weight"), {kWidth, kInner});
    w.Bias(Block(i, "ffn_up.bias"), kInner);
    w.Matrix(Block(i, "ffn_down.weight"), {kInner, kWidth});
    w.Bias(Block(i, "ffn_down.bias"), kWidth);
  }
  return w.Write(path);
}

constexpr int64_t kVocab = 49152, kWidth = 64, kHeads = 4, kHead = 16, kInner = 128;

void Attention(Writer* w, int i, int64_t gated) {
  w->Matrix(Block(i, "attn_q.weight"), {kWidth, kHeads * kHead * gated});
  w->Matrix(Block(i, "attn_k.weight"), {kWidth, 2 * kHead});
  w->Matrix(Block(i, "attn_v.weight"), {kWidth, 2 * kHead});
  w->Matrix(Block(i, "attn_output.weight"), {kHeads * kHead, kWidth});
}

void Common(Writer* w, uint32_t layers) {
  w->U32("block_count", layers);
  w->U32("context_length", 4096);
  w->U32("embedding_length", kWidth);
  w->U32("feed_forward_length", kInner);
  w->U32("attention.head_count", kHeads);
  w->U32("attention.head_count_kv", 2);
  w->U32("attention.key_length", kHead);
  w->U32("attention.value_length", kHead);
  w->U32("rope.dimension_count", kHead);
  w->F32("attention.layer_norm_rms_epsilon", 1e-6f);
  w->U32("vocab_size", kVocab);
  w->Tensor("token_embd.weight", {kWidth, kVocab}, 0.3f);
  w->Norm("output_norm.weight", kWidth);
}

bool Moe(const gguf_context* source, const std::string& path) {
  Writer w("llama");
  w.Tokenizer(source);
  Common(&w, 2);
  w.U32("expert_count", 4);
  w.U32("expert_used_count", 2);
  for (int i = 0; i < 2; ++i) {
    w.Norm(Block(i, "attn_norm.weight"), kWidth);
    w.Norm(Block(i, "ffn_norm.weight"), kWidth);
    Attention(&w, i, 1);
    w.Matrix(Block(i, "ffn_gate_inp.weight"), {kWidth, 4});
    w.Matrix(Block(i, "ffn_gate_exps.weight"), {kWidth, kInner, 4});
    w.Matrix(Block(i, "ffn_up_exps.weight"), {kWidth, kInner, 4});
    w.Matrix(Block(i, "ffn_down_exps.weight"), {kInner, kWidth, 4});
  }
  return w.Write(path);
}

// One layer with a state, one with attention, then the head. Tied embeddings make such a model say a token
// again and again, and the head passes the token's embedding on, so that it mostly guesses right.
bool Mtp(const gguf_context* source, const std::string& path) {
  constexpr int64_t kState = 16, kValueHeads = 4, kKeyHeads = 2, kConv = 4;
  constexpr int64_t kChannels = kState * (2 * kKeyHeads + kValueHeads);
  Writer w("qwen35");
  w.Tokenizer(source);
  Common(&w, 3);
  w.U32("nextn_predict_layers", 1);
  w.U32("full_attention_interval", 2);
  w.I32s("rope.dimension_sections", {4, 2, 2, 0});
  w.U32("ssm.conv_kernel", kConv);
  w.U32("ssm.inner_size", kState * kValueHeads);
  w.U32("ssm.state_size", kState);
  w.U32("ssm.time_step_rank", kValueHeads);
  w.U32("ssm.group_count", kKeyHeads);
  for (int i = 0; i < 3; ++i) {
    w.Norm(Block(i, "attn_norm.weight"), kWidth);
    w.Norm(Block(i, "post_attention_norm.weight"), kWidth);
    if (i == 0) {
      w.Matrix(Block(i, "attn_qkv.weight"), {kWidth, kChannels});
      w.Matrix(Block(i, "attn_gate.weight"), {kWidth, kState * kValueHeads});
      w.Tensor(Block(i, "ssm_conv1d.weight"), {kConv, kChannels}, 0.2f);
      w.Bias(Block(i, "ssm_dt.bias"), kValueHeads);
      w.Ones(Block(i, "ssm_a"), {kValueHeads}, -0.5f);
      w.Matrix(Block(i, "ssm_beta.weight"), {kWidth, kValueHeads});
      w.Matrix(Block(i, "ssm_alpha.weight"), {kWidth, kValueHeads});
      w.Norm(Block(i, "ssm_norm.weight"), kState);
      w.Matrix(Block(i, "ssm_out.weight"), {kState * kValueHeads, kWidth});
    } else {
      Attention(&w, i, 2);
      w.Norm(Block(i, "attn_q_norm.weight"), kHead);
      w.Norm(Block(i, "attn_k_norm.weight"), kHead);
    }
    w.Matrix(Block(i, "ffn_gate.weight"), {kWidth, kInner});
    w.Matrix(Block(i, "ffn_up.weight"), {kWidth, kInner});
    w.Matrix(Block(i, "ffn_down.weight"), {kInner, kWidth});
  }
  w.Passing(Block(2, "nextn.eh_proj.weight"), 2 * kWidth, kWidth);
  w.Norm(Block(2, "nextn.enorm.weight"), kWidth);
  w.Norm(Block(2, "nextn.hnorm.weight"), kWidth);
  w.Norm(Block(2, "nextn.shared_head_norm.weight"), kWidth);
  return w.Write(path);
}

bool Lora(const std::string& path, const char* architecture, int64_t width) {
  Writer w(architecture, 7);
  w.Text("general.type", "adapter");
  w.Text("adapter.type", "lora");
  w.F32("adapter.lora.alpha", 8);
  for (int i = 0; i < 4; ++i) {
    w.Tensor(Block(i, "attn_q.weight.lora_a"), {width, 4}, 0.1f);
    w.Tensor(Block(i, "attn_q.weight.lora_b"), {4, width}, 0.1f);
  }
  return w.Write(path);
}

// The source with its first layers alone.
bool FirstLayers(const std::string& source, const std::string& path, uint32_t layers) {
  ggml_context* data = nullptr;
  gguf_context* from = gguf_init_from_file(source.c_str(), {.no_alloc = false, .ctx = &data});
  if (from == nullptr) return false;
  gguf_context* to = gguf_init_empty();
  gguf_set_kv(to, from);
  gguf_set_val_u32(to, "llama.block_count", layers);
  for (int64_t i = 0; i < gguf_get_n_tensors(from); ++i) {
    const std::string name = gguf_get_tensor_name(from, i);
    unsigned layer = 0;
    if (std::sscanf(name.c_str(), "blk.%u.", &layer) == 1 && layer >= layers) continue;
    gguf_add_tensor(to, ggml_get_tensor(data, name.c_str()));
  }
  const bool ok = gguf_write_to_file(to, path.c_str(), false);
  gguf_free(to);
  gguf_free(from);
  ggml_free(data);
  return ok;
}

bool FromSource(const std::string& source, const std::string& dir) {
  gguf_context* from = gguf_init_from_file(source.c_str(), {.no_alloc = true, .ctx = nullptr});
  if (from == nullptr) return false;
  bool ok = Moe(from, dir + "/moe.gguf") && Mtp(from, dir + "/mtp.gguf");
  ok = ok && Lora(dir + "/lora.gguf", "llama", 576) && Lora(dir + "/lora-width.gguf", "llama", 64) &&
       Lora(dir + "/lora-kind.gguf", "gemma3", 576);
  gguf_free(from);
  return ok && FirstLayers(source, dir + "/draft.gguf", 4);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: rumbo-tiny-models DIR [SOURCE.gguf]\n");
    return 2;
  }
  const std::string dir = argv[1];
  bool ok = Bert(dir + "/bert-mean.gguf", 1);
  ok = ok && Bert(dir + "/bert-none.gguf", 0);
  ok = ok && Bert(dir + "/bert-rank.gguf", 4);
  if (argc > 2) ok = ok && FromSource(argv[2], dir);
  return ok ? 0 : 1;
}
