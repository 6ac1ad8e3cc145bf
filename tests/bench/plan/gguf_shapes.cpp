#include "tests/bench/plan/gguf_shapes.h"

#include <functional>

#include "base/status.h"
#include "tests/bench/plan/shape_writer.h"

// Dimensions are those that the models' publishers give in config.json; tensor names are llama.cpp's.
namespace rumbo::bench {
namespace {

std::string B(uint32_t layer, const char* name) { return "blk." + std::to_string(layer) + "." + name; }

// What a transformer of the usual kind has.
struct Dims {
  uint32_t layers, embd, ff, heads, kv_heads, head, vocab, context;
  bool tied = false;
};

class Transformer {
 public:
  Transformer(const std::string& architecture, const Dims& d) : w(architecture), d(d) {
    w.U32("block_count", d.layers);
    w.U32("context_length", d.context);
    w.U32("embedding_length", d.embd);
    w.U32("vocab_size", d.vocab);
    w.F32("attention.layer_norm_rms_epsilon", 1e-6f);
    if (d.ff > 0) w.U32("feed_forward_length", d.ff);
    if (d.heads > 0) {
      w.U32("attention.head_count", d.heads);
      w.U32("attention.key_length", d.head);
      w.U32("attention.value_length", d.head);
      w.U32("rope.dimension_count", d.head);
      w.F32("rope.freq_base", 1e6f);
    }
  }
  void KvHeads() { w.U32("attention.head_count_kv", d.kv_heads); }

  void Ends(const char* norm = "output_norm.weight") {
    w.MatrixOf(GGML_TYPE_Q6_K, "token_embd.weight", {d.embd, d.vocab});
    w.Vector(norm, {d.embd});
    if (!d.tied) w.MatrixOf(GGML_TYPE_Q6_K, "output.weight", {d.embd, d.vocab});
  }
  void Norm(uint32_t i, const char* name, int64_t n = 0) { w.Vector(B(i, name), {n > 0 ? n : d.embd}); }
  void Qkv(uint32_t i, int64_t q_factor = 1) {
    QkvOf(i, int64_t{d.heads} * d.head, int64_t{d.kv_heads} * d.head, q_factor);
  }
  void QkvOf(uint32_t i, int64_t q, int64_t kv, int64_t q_factor = 1) {
    w.Matrix(B(i, "attn_q.weight"), {d.embd, q * q_factor});
    w.Matrix(B(i, "attn_k.weight"), {d.embd, kv});
    w.Matrix(B(i, "attn_v.weight"), {d.embd, kv});
    w.Matrix(B(i, "attn_output.weight"), {q, d.embd});
  }
  void QkNorm(uint32_t i, int64_t head = 0) {
    Norm(i, "attn_q_norm.weight", head > 0 ? head : d.head);
    Norm(i, "attn_k_norm.weight", head > 0 ? head : d.head);
  }
  void Ffn(uint32_t i) {
    w.Matrix(B(i, "ffn_gate.weight"), {d.embd, d.ff});
    w.Matrix(B(i, "ffn_down.weight"), {d.ff, d.embd});
    w.Matrix(B(i, "ffn_up.weight"), {d.embd, d.ff});
  }
  void Moe(uint32_t count, uint32_t used, uint32_t ff) {
    experts = count, expert_ff = ff;
    w.U32("expert_count", count);
    w.U32("expert_used_count", used);
    w.U32("expert_feed_forward_length", ff);
  }
  void Experts(uint32_t i) {
    w.Vector(B(i, "ffn_gate_inp.weight"), {d.embd, experts});
    w.Matrix(B(i, "ffn_gate_exps.weight"), {d.embd, expert_ff, experts});
    w.Matrix(B(i, "ffn_down_exps.weight"), {expert_ff, d.embd, experts});
    w.Matrix(B(i, "ffn_up_exps.weight"), {d.embd, expert_ff, experts});
  }
  void SharedExpert(uint32_t i, uint32_t ff) {
    w.Matrix(B(i, "ffn_gate_shexp.weight"), {d.embd, ff});
    w.Matrix(B(i, "ffn_down_shexp.weight"), {ff, d.embd});
    w.Matrix(B(i, "ffn_up_shexp.weight"), {d.embd, ff});
  }

  ShapeWriter w;
  Dims d;
  uint32_t experts = 0, expert_ff = 0;
};

using Made = std::unique_ptr<Transformer>;

Made Start(const std::string& architecture, const Dims& d) {
  auto t = std::make_unique<Transformer>(architecture, d);
  if (d.kv_heads > 0) t->KvHeads();
  return t;
}

Made Dense(const std::string& architecture, const Dims& d, bool qk_norm = false) {
  Made t = Start(architecture, d);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->Qkv(i);
    if (qk_norm) t->QkNorm(i);
    t->Norm(i, "ffn_norm.weight");
    t->Ffn(i);
  }
  return t;
}

Made Pooled(Made t, uint32_t pooling) {
  t->w.U32("pooling_type", pooling);
  if (pooling == 4) t->w.Vector("cls.output.weight", {t->d.embd, 1});
  return t;
}

Made SparseMoe(const Dims& d, uint32_t experts, uint32_t used, uint32_t ff) {
  Made t = Start("qwen3moe", d);
  t->Moe(experts, used, ff);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->Qkv(i);
    t->QkNorm(i);
    t->Norm(i, "ffn_norm.weight");
    t->Experts(i);
  }
  return t;
}

struct Ssm {
  uint32_t conv, inner, state, rank, groups;
};

void SsmKeys(Transformer& t, const Ssm& s) {
  t.w.U32("ssm.conv_kernel", s.conv);
  t.w.U32("ssm.inner_size", s.inner);
  t.w.U32("ssm.state_size", s.state);
  t.w.U32("ssm.time_step_rank", s.rank);
  if (s.groups > 0) t.w.U32("ssm.group_count", s.groups);
}

void DeltaNet(Transformer& t, uint32_t i, const Ssm& s, bool fused_ba) {
  const int64_t keys = int64_t{s.state} * s.groups, values = int64_t{s.state} * s.rank;
  t.w.Matrix(B(i, "attn_qkv.weight"), {t.d.embd, 2 * keys + values});
  t.w.Matrix(B(i, "attn_gate.weight"), {t.d.embd, values});
  t.w.Vector(B(i, "ssm_conv1d.weight"), {s.conv, 2 * keys + values});
  t.w.Vector(B(i, "ssm_dt.bias"), {s.rank});
  t.w.Vector(B(i, "ssm_a"), {s.rank});
  if (fused_ba) {
    t.w.Matrix(B(i, "ssm_ba.weight"), {t.d.embd, 2 * int64_t{s.rank}});
  } else {
    t.w.Matrix(B(i, "ssm_beta.weight"), {t.d.embd, s.rank});
    t.w.Matrix(B(i, "ssm_alpha.weight"), {t.d.embd, s.rank});
  }
  t.w.Vector(B(i, "ssm_norm.weight"), {s.state});
  t.w.Matrix(B(i, "ssm_out.weight"), {values, t.d.embd});
}

void Nextn(Transformer& t, uint32_t i) {
  t.w.Matrix(B(i, "nextn.eh_proj.weight"), {2 * int64_t{t.d.embd}, t.d.embd});
  t.Norm(i, "nextn.enorm.weight");
  t.Norm(i, "nextn.hnorm.weight");
  t.Norm(i, "nextn.shared_head_norm.weight");
}

// Three linear layers, then one with full attention; `mtp` prediction layers behind.
Made LinearHybrid(Dims d, const Ssm& s, uint32_t mtp, ggml_type type) {
  const uint32_t main = d.layers;
  d.layers += mtp;
  Made t = Start("qwen35", d);
  t->w.type = type;
  SsmKeys(*t, s);
  t->w.U32("full_attention_interval", 4);
  t->w.I32s("rope.dimension_sections", {11, 11, 10, 0});
  if (mtp > 0) t->w.U32("nextn_predict_layers", mtp);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->Norm(i, "post_attention_norm.weight");
    if (i >= main || (i + 1) % 4 == 0) {
      t->Qkv(i, 2);
      t->QkNorm(i);
    } else {
      DeltaNet(*t, i, s, false);
    }
    t->Ffn(i);
    if (i >= main) Nextn(*t, i);
  }
  return t;
}

Made LinearHybridMoe(const Dims& d, const Ssm& s) {
  Made t = Start("qwen3next", d);
  SsmKeys(*t, s);
  t->Moe(512, 10, 512);
  t->w.U32("expert_shared_feed_forward_length", 512);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->Norm(i, "post_attention_norm.weight");
    if ((i + 1) % 4 == 0) {
      t->Qkv(i, 2);
      t->QkNorm(i);
    } else {
      DeltaNet(*t, i, s, true);
    }
    t->Experts(i);
    t->Norm(i, "ffn_gate_inp_shexp.weight");
    t->SharedExpert(i, 512);
  }
  return t;
}

Made Windowed(const std::string& architecture, const Dims& d, uint32_t window) {
  Made t = Start(architecture, d);
  t->w.U32("attention.sliding_window", window);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->Qkv(i);
    t->Norm(i, "post_attention_norm.weight");
    if (architecture == "gemma3") t->QkNorm(i);
    t->Norm(i, "ffn_norm.weight");
    t->Ffn(i);
    t->Norm(i, "post_ffw_norm.weight");
  }
  return t;
}

// Two head sizes, windowed and full; experts or per-layer embeddings.
Made TwoHeads(const Dims& d, uint32_t window, uint32_t full_head, uint32_t full_kv, uint32_t experts,
              uint32_t shared, uint32_t per_layer) {
  auto t = std::make_unique<Transformer>("gemma4", d);
  std::vector<bool> windowed;
  std::vector<uint32_t> kv;
  for (uint32_t i = 0; i < d.layers; ++i) {
    windowed.push_back((i + 1) % 6 != 0);
    kv.push_back(windowed.back() ? d.kv_heads : full_kv);
  }
  t->w.Bools("attention.sliding_window_pattern", windowed);
  t->w.U32s("attention.head_count_kv", kv);
  t->w.U32("attention.key_length", full_head);
  t->w.U32("attention.value_length", full_head);
  t->w.U32("attention.key_length_swa", d.head);
  t->w.U32("attention.value_length_swa", d.head);
  t->w.U32("rope.dimension_count", full_head);
  t->w.U32("rope.dimension_count_swa", d.head);
  t->w.U32("attention.sliding_window", window);
  t->w.U32("attention.shared_kv_layers", shared);
  t->w.U32("embedding_length_per_layer_input", per_layer);
  if (experts > 0) t->Moe(experts, 8, 704);
  t->Ends();
  if (per_layer > 0) {
    t->w.MatrixOf(GGML_TYPE_Q6_K, "per_layer_token_embd.weight", {int64_t{per_layer} * d.layers, d.vocab});
    t->w.Matrix("per_layer_model_proj.weight", {d.embd, int64_t{per_layer} * d.layers});
    t->w.Vector("per_layer_proj_norm.weight", {per_layer});
  }
  for (uint32_t i = 0; i < d.layers; ++i) {
    const int64_t head = windowed[i] ? d.head : full_head;
    t->Norm(i, "attn_norm.weight");
    t->QkvOf(i, d.heads * head, kv[i] * head);
    t->QkNorm(i, head);
    t->Norm(i, "post_attention_norm.weight");
    if (!windowed[i] && i == 5) t->w.Vector("rope_freqs.weight", {head / 2});
    t->Norm(i, "ffn_norm.weight");
    t->Ffn(i);
    t->Norm(i, "post_ffw_norm.weight");
    if (experts > 0) {
      t->Experts(i);
      t->w.Vector(B(i, "ffn_gate_inp.scale"), {d.embd});
      for (const char* name : {"pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight"})
        t->Norm(i, name);
    }
    if (per_layer > 0) {
      t->w.Matrix(B(i, "inp_gate.weight"), {d.embd, per_layer});
      t->w.Matrix(B(i, "proj.weight"), {per_layer, d.embd});
      t->Norm(i, "post_norm.weight");
    }
  }
  return t;
}

Made Sinks(const Dims& d, uint32_t experts, uint32_t used) {
  Made t = Start("gpt-oss", d);
  t->w.type = GGML_TYPE_MXFP4;
  t->w.U32("attention.sliding_window", 128);
  t->Moe(experts, used, 2880);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->Norm(i, "post_attention_norm.weight");
    t->Qkv(i);
    t->Norm(i, "attn_output.bias");
    t->w.Vector(B(i, "attn_sinks.weight"), {d.heads});
    t->Experts(i);
    t->w.Vector(B(i, "ffn_gate_inp.bias"), {experts});
    t->w.Vector(B(i, "ffn_gate_exps.bias"), {2880, experts});
    t->w.Vector(B(i, "ffn_down_exps.bias"), {d.embd, experts});
    t->w.Vector(B(i, "ffn_up_exps.bias"), {2880, experts});
  }
  return t;
}

struct Mla {
  uint32_t q_lora, kv_lora, rope, nope, value, dense_lead, experts, used, ff, shared;
};

Made Latent(const Dims& d, const Mla& m) {
  auto t = std::make_unique<Transformer>("deepseek2", d);
  t->w.U32("attention.head_count_kv", 1);
  if (m.q_lora > 0) t->w.U32("attention.q_lora_rank", m.q_lora);
  t->w.U32("attention.kv_lora_rank", m.kv_lora);
  t->w.U32("attention.key_length", m.kv_lora + m.rope);
  t->w.U32("attention.value_length", m.kv_lora);
  t->w.U32("attention.key_length_mla", m.nope + m.rope);
  t->w.U32("attention.value_length_mla", m.value);
  t->w.U32("rope.dimension_count", m.rope);
  t->w.U32("leading_dense_block_count", m.dense_lead);
  t->w.U32("expert_shared_count", m.shared);
  t->Moe(m.experts, m.used, m.ff);
  t->Ends();
  const int64_t q = int64_t{d.heads} * (m.nope + m.rope);
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    if (m.q_lora > 0) {
      t->Norm(i, "attn_q_a_norm.weight", m.q_lora);
      t->w.Matrix(B(i, "attn_q_a.weight"), {d.embd, m.q_lora});
      t->w.Matrix(B(i, "attn_q_b.weight"), {m.q_lora, q});
    } else {
      t->w.Matrix(B(i, "attn_q.weight"), {d.embd, q});
    }
    t->Norm(i, "attn_kv_a_norm.weight", m.kv_lora);
    t->w.Matrix(B(i, "attn_kv_a_mqa.weight"), {d.embd, m.kv_lora + m.rope});
    t->w.Matrix(B(i, "attn_k_b.weight"), {m.nope, m.kv_lora, d.heads});
    t->w.Matrix(B(i, "attn_v_b.weight"), {m.kv_lora, m.value, d.heads});
    t->w.Matrix(B(i, "attn_output.weight"), {int64_t{d.heads} * m.value, d.embd});
    t->Norm(i, "ffn_norm.weight");
    if (i < m.dense_lead) {
      t->Ffn(i);
    } else {
      t->Experts(i);
      t->SharedExpert(i, m.ff * m.shared);
    }
  }
  return t;
}

Made SharedMoe(Dims d, uint32_t mtp) {
  const uint32_t main = d.layers;
  d.layers += mtp;
  Made t = Start("glm4moe", d);
  t->Moe(128, 8, 1408);
  t->w.U32("expert_shared_count", 1);
  t->w.U32("leading_dense_block_count", 1);
  t->w.U32("nextn_predict_layers", mtp);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->Norm(i, "post_attention_norm.weight");
    t->Qkv(i);
    if (i == 0) {
      t->Ffn(i);
    } else {
      t->Experts(i);
      t->w.Vector(B(i, "exp_probs_b.bias"), {128});
      t->SharedExpert(i, 1408);
    }
    if (i >= main) Nextn(*t, i);
  }
  return t;
}

void MambaMixer(Transformer& t, uint32_t i, const Ssm& s) {
  const int64_t conv = s.inner + 2 * int64_t{s.groups} * s.state;
  t.w.Matrix(B(i, "ssm_in.weight"), {t.d.embd, s.inner + conv + s.rank});
  t.w.Vector(B(i, "ssm_conv1d.weight"), {s.conv, conv});
  t.w.Vector(B(i, "ssm_conv1d.bias"), {conv});
  t.w.Vector(B(i, "ssm_dt.bias"), {s.rank});
  t.w.Vector(B(i, "ssm_a"), {1, s.rank});
  t.w.Vector(B(i, "ssm_d"), {1, s.rank});
  t.w.Vector(B(i, "ssm_norm.weight"), {s.inner / s.groups, s.groups});
  t.w.Matrix(B(i, "ssm_out.weight"), {s.inner, t.d.embd});
}

Made MambaHybridMoe(const Dims& d, const Ssm& s, const std::vector<uint32_t>& attention) {
  auto t = std::make_unique<Transformer>("granitehybrid", d);
  std::vector<uint32_t> kv(d.layers, 0);
  for (const uint32_t i : attention) kv[i] = d.kv_heads;
  t->w.U32s("attention.head_count_kv", kv);
  SsmKeys(*t, s);
  t->w.U32("expert_count", 72);
  t->w.U32("expert_used_count", 10);
  t->w.U32("expert_shared_feed_forward_length", 1536);
  t->experts = 72, t->expert_ff = d.ff;
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    if (kv[i] == 0) {
      MambaMixer(*t, i, s);
    } else {
      t->Qkv(i);
    }
    t->Norm(i, "ffn_norm.weight");
    t->Experts(i);
    t->SharedExpert(i, 1536);
  }
  return t;
}

Made Mamba1(const Dims& d, const Ssm& s) {
  Made t = Start("mamba", d);
  SsmKeys(*t, s);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->w.Matrix(B(i, "ssm_in.weight"), {d.embd, 2 * int64_t{s.inner}});
    t->w.Vector(B(i, "ssm_conv1d.weight"), {s.conv, s.inner});
    t->w.Vector(B(i, "ssm_conv1d.bias"), {s.inner});
    t->w.Matrix(B(i, "ssm_x.weight"), {s.inner, s.rank + 2 * int64_t{s.state}});
    t->w.Matrix(B(i, "ssm_dt.weight"), {s.rank, s.inner});
    t->w.Vector(B(i, "ssm_dt.bias"), {s.inner});
    t->w.Vector(B(i, "ssm_a"), {s.state, s.inner});
    t->w.Vector(B(i, "ssm_d"), {s.inner});
    t->w.Matrix(B(i, "ssm_out.weight"), {s.inner, d.embd});
  }
  return t;
}

Made Mamba2(const Dims& d, const Ssm& s) {
  Made t = Start("mamba2", d);
  SsmKeys(*t, s);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    MambaMixer(*t, i, s);
  }
  return t;
}

Made ShortConv(const Dims& d, const std::vector<uint32_t>& attention) {
  auto t = std::make_unique<Transformer>("lfm2", d);
  std::vector<uint32_t> kv(d.layers, 0);
  for (const uint32_t i : attention) kv[i] = d.kv_heads;
  t->w.U32s("attention.head_count_kv", kv);
  t->w.U32("shortconv.l_cache", 3);
  t->Ends("token_embd_norm.weight");
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->Norm(i, "ffn_norm.weight");
    t->Ffn(i);
    if (kv[i] > 0) {
      t->QkNorm(i);
      t->Qkv(i);
    } else {
      t->w.Vector(B(i, "shortconv.conv.weight"), {3, d.embd});
      t->w.Matrix(B(i, "shortconv.in_proj.weight"), {d.embd, 3 * int64_t{d.embd}});
      t->w.Matrix(B(i, "shortconv.out_proj.weight"), {d.embd, d.embd});
    }
  }
  return t;
}

// Attention and a Mamba mixer side by side in every layer.
Made Parallel(const Dims& d, const Ssm& s) {
  Made t = Start("falcon-h1", d);
  SsmKeys(*t, s);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    MambaMixer(*t, i, s);
    t->Qkv(i);
    t->Norm(i, "attn_norm.weight");
    t->Norm(i, "ffn_norm");
    t->Ffn(i);
  }
  return t;
}

// One kind of block per layer: Mamba, attention or feed-forward.
Made OneKindPerLayer(const Dims& d, const Ssm& s, const std::string& pattern) {
  auto t = std::make_unique<Transformer>("nemotron_h", d);
  std::vector<uint32_t> kv, ff;
  for (const char c : pattern) {
    kv.push_back(c == '*' ? d.kv_heads : 0);
    ff.push_back(c == '-' ? d.ff : 0);
  }
  t->w.U32s("attention.head_count_kv", kv);
  t->w.U32s("feed_forward_length", ff);
  t->w.F32("attention.layer_norm_epsilon", 1e-5f);
  SsmKeys(*t, s);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    if (pattern[i] == 'M') {
      MambaMixer(*t, i, s);
    } else if (pattern[i] == '*') {
      t->Qkv(i);
    } else {
      t->w.Matrix(B(i, "ffn_down.weight"), {d.ff, d.embd});
      t->w.Matrix(B(i, "ffn_up.weight"), {d.embd, d.ff});
    }
  }
  return t;
}

Made Fused(const Dims& d) {
  Made t = Start("phi3", d);
  t->Ends();
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Norm(i, "attn_norm.weight");
    t->w.Matrix(B(i, "attn_qkv.weight"), {d.embd, int64_t{d.heads + 2 * d.kv_heads} * d.head});
    t->w.Matrix(B(i, "attn_output.weight"), {int64_t{d.heads} * d.head, d.embd});
    t->Norm(i, "ffn_norm.weight");
    t->w.Matrix(B(i, "ffn_down.weight"), {d.ff, d.embd});
    t->w.Matrix(B(i, "ffn_up.weight"), {d.embd, 2 * int64_t{d.ff}});
  }
  return t;
}

Made Encoder(const Dims& d, uint32_t pooling) {
  auto t = std::make_unique<Transformer>("bert", d);
  t->w.type = GGML_TYPE_F16;
  t->w.F32("attention.layer_norm_epsilon", 1e-12f);
  t->w.Bool("attention.causal", false);
  t->w.U32("pooling_type", pooling);
  t->w.Number("tokenizer.ggml.token_type_count", 2);
  t->w.Matrix("token_embd.weight", {d.embd, d.vocab});
  t->w.Vector("token_types.weight", {d.embd, 2});
  t->w.Vector("position_embd.weight", {d.embd, d.context});
  t->w.Vector("token_embd_norm.weight", {d.embd});
  t->w.Vector("token_embd_norm.bias", {d.embd});
  if (pooling == 4) {
    t->w.Matrix("cls.weight", {d.embd, d.embd});
    t->w.Vector("cls.bias", {d.embd});
    t->w.Matrix("cls.output.weight", {d.embd, 1});
    t->w.Vector("cls.output.bias", {1});
  }
  for (uint32_t i = 0; i < d.layers; ++i) {
    t->Qkv(i);
    for (const char* name :
         {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias", "attn_output_norm.weight",
          "attn_output_norm.bias", "layer_output_norm.weight", "layer_output_norm.bias", "ffn_down.bias"}) {
      t->Norm(i, name);
    }
    t->w.Matrix(B(i, "ffn_up.weight"), {d.embd, d.ff});
    t->Norm(i, "ffn_up.bias", d.ff);
    t->w.Matrix(B(i, "ffn_down.weight"), {d.ff, d.embd});
  }
  return t;
}

struct Shape {
  const char* name;
  const char* kind;
  std::function<Made()> make;
};

//                    layers, embd, ff, heads, kv, head, vocab, context, tied
const std::vector<Shape>& All() {
  static const std::vector<Shape> shapes = {
      {"llama3-8b", "dense",
       [] {
         return Dense("llama", {32, 4096, 14336, 32, 8, 128, 128256, 131072});
       }},
      {"llama3-70b", "dense",
       [] {
         return Dense("llama", {80, 8192, 28672, 64, 8, 128, 128256, 131072});
       }},
      {"llama3.2-1b", "dense",
       [] {
         return Dense("llama", {16, 2048, 8192, 32, 8, 64, 128256, 131072, true});
       }},
      {"mistral-small-24b", "dense",
       [] {
         return Dense("llama", {40, 5120, 32768, 32, 8, 128, 131072, 131072});
       }},
      {"minicpm-1b", "dense",
       [] {
         return Dense("minicpm", {24, 1536, 4608, 16, 2, 128, 73448, 131072, true});
       }},
      {"qwen3-0.6b", "dense",
       [] {
         return Dense("qwen3", {28, 1024, 3072, 16, 8, 128, 151936, 40960, true}, true);
       }},
      {"qwen3-8b", "dense",
       [] {
         return Dense("qwen3", {36, 4096, 12288, 32, 8, 128, 151936, 40960}, true);
       }},
      {"qwen3-32b", "dense",
       [] {
         return Dense("qwen3", {64, 5120, 25600, 64, 8, 128, 151936, 40960}, true);
       }},
      {"qwen3-4b", "dense",
       [] {
         return Dense("qwen3", {36, 2560, 9728, 32, 8, 128, 151936, 40960, true}, true);
       }},
      {"phi4-mini", "dense, fused",
       [] {
         return Fused({32, 3072, 8192, 24, 8, 128, 200064, 131072, true});
       }},
      {"qwen3-30b-a3b", "moe",
       [] {
         return SparseMoe({48, 2048, 6144, 32, 4, 128, 151936, 40960}, 128, 8, 768);
       }},
      {"glm4.5-air", "moe, shared expert, MTP",
       [] {
         return SharedMoe({46, 4096, 10944, 96, 8, 128, 151552, 131072}, 1);
       }},
      {"gpt-oss-20b", "moe, window, sinks",
       [] {
         return Sinks({24, 2880, 2880, 64, 8, 64, 201088, 131072}, 32, 4);
       }},
      {"gpt-oss-120b", "moe, window, sinks",
       [] {
         return Sinks({36, 2880, 2880, 64, 8, 64, 201088, 131072}, 128, 4);
       }},
      {"deepseek-v3", "mla, moe",
       [] {
         return Latent({61, 7168, 18432, 128, 1, 576, 129280, 163840},
                       {1536, 512, 64, 128, 128, 3, 256, 8, 2048, 1});
       }},
      {"deepseek-v2-lite", "mla, moe",
       [] {
         return Latent({27, 2048, 10944, 16, 1, 576, 102400, 163840},
                       {0, 512, 64, 128, 128, 1, 64, 6, 1408, 2});
       }},
      {"qwen3.5-9b", "hybrid",
       [] {
         return LinearHybrid({32, 4096, 12288, 16, 4, 256, 248320, 262144}, {4, 4096, 128, 32, 16}, 0,
                             GGML_TYPE_Q8_0);
       }},
      {"qwen3.8-27b", "hybrid, MTP",
       [] {
         return LinearHybrid({64, 5120, 17408, 24, 4, 256, 248320, 262144}, {4, 6144, 128, 48, 16}, 1,
                             GGML_TYPE_Q5_K);
       }},
      {"qwen3-next-80b", "hybrid, moe",
       [] {
         return LinearHybridMoe({48, 2048, 5120, 16, 2, 256, 151936, 262144}, {4, 4096, 128, 32, 16});
       }},
      {"gemma2-9b", "window",
       [] {
         return Windowed("gemma2", {42, 3584, 14336, 16, 8, 256, 256000, 8192, true}, 4096);
       }},
      {"gemma3-4b", "window",
       [] {
         return Windowed("gemma3", {34, 2560, 10240, 8, 4, 256, 262208, 131072, true}, 1024);
       }},
      {"gemma3-27b", "window",
       [] {
         return Windowed("gemma3", {62, 5376, 21504, 32, 16, 128, 262208, 131072, true}, 1024);
       }},
      {"gemma4-26b-a4b", "window, two head sizes, moe",
       [] {
         return TwoHeads({30, 2816, 2112, 16, 8, 256, 262144, 262144, true}, 1024, 512, 2, 128, 0, 0);
       }},
      {"gemma4-e4b", "window, shared cache, per-layer embedding",
       [] {
         return TwoHeads({42, 2560, 10240, 8, 2, 256, 262144, 131072, true}, 512, 512, 2, 0, 18, 256);
       }},
      {"granite-4-h-small", "hybrid, moe",
       [] {
         return MambaHybridMoe({40, 4096, 768, 32, 8, 128, 100352, 131072, true}, {4, 8192, 128, 128, 1},
                               {5, 15, 25, 35});
       }},
      {"nemotron-h-8b", "hybrid",
       [] {
         return OneKindPerLayer({52, 4096, 21504, 32, 8, 128, 131072, 8192}, {4, 8192, 128, 128, 8},
                                "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-");
       }},
      {"falcon-h1-7b", "hybrid, parallel",
       [] {
         return Parallel({44, 3072, 12288, 12, 2, 128, 130048, 262144}, {4, 3072, 256, 24, 1});
       }},
      {"mamba-2.8b", "recurrent",
       [] {
         return Mamba1({64, 2560, 0, 0, 0, 0, 50280, 1048576, true}, {4, 5120, 16, 160, 0});
       }},
      {"mamba2-2.7b", "recurrent",
       [] {
         return Mamba2({64, 2560, 0, 0, 0, 0, 50288, 1048576, true}, {4, 5120, 128, 80, 1});
       }},
      {"lfm2-1.2b", "hybrid, short convolution",
       [] {
         return ShortConv({16, 2048, 8192, 32, 8, 64, 65536, 128000, true}, {2, 5, 8, 10, 12, 14});
       }},
      {"bge-large", "embedding",
       [] {
         return Encoder({24, 1024, 4096, 16, 16, 64, 30522, 512}, 2);
       }},
      {"bge-reranker-m3", "reranker",
       [] {
         return Encoder({24, 1024, 4096, 16, 16, 64, 250002, 8192}, 4);
       }},
      {"qwen3-embedding-0.6b", "embedding",
       [] {
         return Pooled(Dense("qwen3", {28, 1024, 3072, 16, 8, 128, 151669, 32768, true}, true), 3);
       }},
      {"qwen3-reranker-4b", "reranker",
       [] {
         return Pooled(Dense("qwen3", {36, 2560, 9728, 32, 8, 128, 151669, 40960, true}, true), 4);
       }},
  };
  return shapes;
}

}  // namespace

std::vector<ShapeInfo> Shapes() {
  std::vector<ShapeInfo> list;
  for (const Shape& shape : All()) list.push_back({shape.name, shape.kind});
  return list;
}

absl::Status WriteShape(const std::string& name, const std::string& path) {
  for (const Shape& shape : All()) {
    if (name != shape.name) continue;
    Made made = shape.make();
    made->w.Text("general.name", name);
    return made->w.Write(path);
  }
  return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound, "there is no shape '" + name + "'");
}

}  // namespace rumbo::bench
