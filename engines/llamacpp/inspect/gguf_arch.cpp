#include "engines/llamacpp/inspect/gguf_arch.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/bytes.h"

namespace rumbo {
namespace {

// Names that llama.cpp 0.5.0 knows (src/llama-arch.cpp).
constexpr std::string_view kArchitectures[] = {"clip",
                                               "llama",
                                               "llama4",
                                               "deci",
                                               "falcon",
                                               "grok",
                                               "gpt2",
                                               "gptj",
                                               "gptneox",
                                               "mpt",
                                               "baichuan",
                                               "starcoder",
                                               "refact",
                                               "bert",
                                               "modern-bert",
                                               "nomic-bert",
                                               "nomic-bert-moe",
                                               "neo-bert",
                                               "jina-bert-v2",
                                               "jina-bert-v3",
                                               "eurobert",
                                               "bloom",
                                               "stablelm",
                                               "qwen",
                                               "qwen2",
                                               "qwen2moe",
                                               "qwen2vl",
                                               "qwen3",
                                               "qwen3moe",
                                               "qwen3next",
                                               "qwen3vl",
                                               "qwen3vlmoe",
                                               "qwen35",
                                               "qwen35moe",
                                               "qwen4exp",
                                               "phi2",
                                               "phi3",
                                               "phimoe",
                                               "plamo",
                                               "plamo2",
                                               "plamo3",
                                               "codeshell",
                                               "orion",
                                               "internlm2",
                                               "minicpm",
                                               "minicpm3",
                                               "gemma",
                                               "gemma2",
                                               "gemma3",
                                               "gemma3n",
                                               "gemma4",
                                               "gemma4-assistant",
                                               "gemma-embedding",
                                               "starcoder2",
                                               "mamba",
                                               "mamba2",
                                               "maple",
                                               "jamba",
                                               "falcon-h1",
                                               "xverse",
                                               "command-r",
                                               "cohere2",
                                               "cohere2moe",
                                               "dbrx",
                                               "olmo",
                                               "olmo2",
                                               "olmoe",
                                               "muse-glimmer",
                                               "openelm",
                                               "arctic",
                                               "deepseek",
                                               "deepseek2",
                                               "deepseek2-ocr",
                                               "deepseek32",
                                               "deepseek4",
                                               "chatglm",
                                               "glm4",
                                               "glm4moe",
                                               "glm-dsa",
                                               "bitnet",
                                               "t5",
                                               "t5encoder",
                                               "jais",
                                               "jais2",
                                               "nemotron",
                                               "nemotron_h",
                                               "nemotron_h_moe",
                                               "exaone",
                                               "exaone4",
                                               "exaone-moe",
                                               "rwkv6",
                                               "rwkv6qwen2",
                                               "rwkv7",
                                               "arwkv7",
                                               "granite",
                                               "granitemoe",
                                               "granitehybrid",
                                               "graniteswitch",
                                               "granite_swa",
                                               "chameleon",
                                               "wavtokenizer-dec",
                                               "plm",
                                               "bailingmoe",
                                               "bailingmoe2",
                                               "bailingmoe3",
                                               "dots1",
                                               "dots3note",
                                               "arcee",
                                               "afmoe",
                                               "laguna",
                                               "ernie4_5",
                                               "ernie4_5-moe",
                                               "hunyuan-moe",
                                               "hunyuan-dense",
                                               "hunyuan_vl",
                                               "hy_v3",
                                               "hy_v4",
                                               "smollm3",
                                               "gpt-oss",
                                               "lfm2",
                                               "lfm2moe",
                                               "dream",
                                               "smallthinker",
                                               "llada",
                                               "llada-moe",
                                               "seed_oss",
                                               "grovemoe",
                                               "apertus",
                                               "minimax-01",
                                               "hrm_text",
                                               "minimax-m2",
                                               "minimax-m3",
                                               "cogvlm",
                                               "rnd1",
                                               "pangu-embedded",
                                               "mistral3",
                                               "eagle3",
                                               "dflash",
                                               "mistral4",
                                               "paddleocr",
                                               "mimo2",
                                               "step35",
                                               "spark2_5",
                                               "llama-embed",
                                               "maincoder",
                                               "kimi-linear",
                                               "kimi-k3",
                                               "glm5-next",
                                               "talkie",
                                               "mellum",
                                               "nanbeige",
                                               "qwen3tts",
                                               "pockettts"};

// Encoders: no cache at all.
constexpr std::string_view kNoCache[] = {
    "bert",     "jina-bert-v2", "jina-bert-v3",     "nomic-bert",  "nomic-bert-moe",
    "neo-bert", "eurobert",     "wavtokenizer-dec", "modern-bert", "gemma-embedding",
    "dream",    "llada",        "llada-moe",        "rnd1",        "t5encoder"};

constexpr std::string_view kAllRecurrent[] = {"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"};

// Hybrids where a layer is recurrent if it has no KV heads.
constexpr std::string_view kRecurrentWithoutKvHeads[] = {
    "jamba",          "plamo2",      "granitehybrid", "lfm2",    "lfm2moe",  "nemotron_h",
    "nemotron_h_moe", "kimi-linear", "bailingmoe3",   "kimi-k3", "glm5-next"};

// Hybrids where every n-th layer has full attention.
constexpr std::string_view kRecurrentByInterval[] = {"qwen3next", "qwen35", "qwen35moe", "qwen4exp",
                                                     "minimax-01"};

// What llama.cpp assumes where the file has a window but no pattern: every n-th layer full, counted from the
// end of a group or, `dense_first`, from its start. window: assumed where the file names none; 0: then there
// is none.
struct WindowRule {
  std::string_view architecture;
  uint32_t pattern;
  bool dense_first;
  uint32_t window;
};
constexpr WindowRule kWindowRules[] = {
    {"afmoe", 4, false, 0},        {"cohere2", 4, false, 0},      {"cohere2moe", 4, true, 0},
    {"exaone-moe", 4, false, 128}, {"exaone4", 4, false, 4096},   {"gemma-embedding", 6, false, 0},
    {"gemma2", 2, false, 4096},    {"gemma3", 6, false, 0},       {"gemma3n", 5, false, 0},
    {"laguna", 4, true, 0},        {"llama4", 4, false, 8192},    {"mellum", 4, false, 0},
    {"modern-bert", 3, true, 0},   {"muse-glimmer", 4, false, 0}, {"olmo2", 4, false, 0},
    {"gpt-oss", 2, false, 0},      {"plamo3", 8, false, 0},       {"smallthinker", 4, true, 4096},
    {"deepseek4", 0, false, 0}};

// Architectures that read a window only with an explicit pattern.
constexpr std::string_view kWindowByPattern[] = {
    "gemma4", "gemma4-assistant", "dots3note", "granite_swa", "maple", "mimo2", "spark2_5", "step35"};

template <typename List>
bool In(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

class LayerWriter {
 public:
  LayerWriter(GgufView& view, ModelDescriptor& out) : view_(view), out_(out), n_(out.layers.size()) {}

  void Run() {
    Heads();
    Windows();
    Recurrent();
    Latent();
    Index();
    Sharing();
    Rest();
    if (In(kNoCache, out_.architecture)) {
      for (LayerDescriptor& layer : out_.layers) layer.kv_heads = 0;
    }
  }

 private:
  std::string Key(const char* name) const { return view_.Arch(name); }
  bool Is(std::string_view name) const { return out_.architecture == name; }

  void Heads() {
    const auto heads = view_.PerLayer(Key("attention.head_count"), n_);
    const auto kv_heads = view_.PerLayer(Key("attention.head_count_kv"), n_);
    if (!heads) return;
    const uint32_t first = (*heads)[0];
    const uint32_t even = first > 0 ? out_.embedding_length / first : 0;
    const uint32_t key = view_.Count(Key("attention.key_length"), even);
    const uint32_t value = view_.Count(Key("attention.value_length"), even);
    for (size_t i = 0; i < n_; ++i) {
      LayerDescriptor& layer = out_.layers[i];
      layer.heads = (*heads)[i];
      layer.kv_heads = kv_heads ? (*kv_heads)[i] : layer.heads;
      if (layer.kv_heads == 0) continue;
      layer.key_length = key;
      layer.value_length = value;
    }
  }

  void Windows() {
    const auto rule = std::find_if(std::begin(kWindowRules), std::end(kWindowRules),
                                   [&](const WindowRule& r) { return r.architecture == out_.architecture; });
    const bool by_rule = rule != std::end(kWindowRules);
    const bool every = Is("lfm2");  // all its attention layers, where it has a window
    if (!by_rule && !every && !In(kWindowByPattern, out_.architecture)) {
      if (view_.Has(Key("attention.sliding_window")) && out_.unknown_architecture) {
        out_.notes.push_back("a sliding window is named but the architecture is unknown: planned without it");
      }
      return;
    }
    const uint32_t window = view_.Count(Key("attention.sliding_window"), by_rule ? rule->window : 0);
    if (window == 0) return;
    const std::vector<bool> windowed = WindowedLayers(by_rule ? &*rule : nullptr, every);
    const uint32_t key = view_.Count(Key("attention.key_length_swa"), 0);
    const uint32_t value = view_.Count(Key("attention.value_length_swa"), 0);
    for (size_t i = 0; i < n_ && i < windowed.size(); ++i) {
      LayerDescriptor& layer = out_.layers[i];
      if (!windowed[i]) continue;
      layer.window = window;
      if (layer.kv_heads == 0) continue;
      if (key != 0) layer.key_length = key;
      if (value != 0) layer.value_length = value;
    }
  }

  std::vector<bool> WindowedLayers(const WindowRule* rule, bool every) {
    const std::string key = Key("attention.sliding_window_pattern");
    std::vector<bool> windowed(n_, every);
    if (every) return windowed;
    if (view_.ArraySize(key) > 0) {
      const auto flags = view_.PerLayer(key, Main());
      for (size_t i = 0; flags && i < flags->size(); ++i) windowed[i] = (*flags)[i] != 0;
      return windowed;
    }
    if (rule == nullptr) {
      view_.Fail("'" + key + "' is missing");
      return windowed;
    }
    uint32_t pattern = rule->pattern;
    if (view_.Has(key)) {
      pattern = view_.Count(key);
    } else if (pattern > 0) {
      out_.notes.push_back("no sliding_window_pattern: every " + std::to_string(pattern) +
                           "th layer full, by architecture");
    }
    for (size_t i = 0; i < Main(); ++i) {
      windowed[i] = pattern == 0 || (rule->dense_first ? i % pattern != 0 : i % pattern < pattern - 1);
    }
    return windowed;
  }

  size_t Main() const { return n_ - std::min<size_t>(n_, out_.mtp_layers); }

  // What llama.cpp keeps per recurrent layer and sequence, 32-bit floats, and how wide its mixer is.
  void State(uint32_t heads, LayerDescriptor& layer) {
    const uint64_t embd = out_.embedding_length;
    uint64_t r = 0, s = 0;
    layer.mixer_width = view_.Count(Key("ssm.inner_size"));
    if (const uint64_t head = view_.Count(Key("wkv.head_size")); head != 0) {
      r = SaturatingMul(view_.Count(Key("token_shift_count"), 2), embd);
      s = SaturatingMul(embd, head);
      layer.mixer = "wkv";
    } else if (const uint64_t cache = view_.Count(Key("shortconv.l_cache")); cache != 0) {
      r = SaturatingMul(embd, cache - 1);
      layer.mixer = "conv";
    } else {
      const uint64_t conv = view_.Count(Key("ssm.conv_kernel"));
      const uint64_t inner = view_.Count(Key("ssm.inner_size"));
      const uint64_t state = view_.Count(Key("ssm.state_size"));
      const uint64_t group = view_.Count(Key("ssm.group_count"));
      layer.mixer = In(kRecurrentByInterval, out_.architecture) ? "linear" : "scan";
      if (const uint64_t kda = view_.Count(Key("kda.head_dim")); kda != 0) {
        layer.mixer = "linear";
        layer.mixer_width = static_cast<uint32_t>(std::min<uint64_t>(SaturatingMul(heads, kda), 1u << 30));
        r = SaturatingMul(3 * (conv > 0 ? conv - 1 : 3), SaturatingMul(heads, kda));
        s = SaturatingMul(SaturatingMul(kda, kda), heads);
      } else {
        r = SaturatingMul(conv > 0 ? conv - 1 : 0, SaturatingAdd(inner, SaturatingMul(2 * group, state)));
        s = SaturatingMul(state, inner);
      }
    }
    layer.conv_state_bytes = SaturatingMul(r, 4);
    layer.recurrent_state_bytes = SaturatingMul(SaturatingAdd(r, s), 4);
  }

  bool IsRecurrent(size_t i, const std::optional<std::vector<uint32_t>>& listed, uint32_t interval,
                   const std::optional<std::vector<uint32_t>>& ff) const {
    const LayerDescriptor& layer = out_.layers[i];
    if (In(kAllRecurrent, out_.architecture) || Is("falcon-h1")) return true;
    if (In(kRecurrentWithoutKvHeads, out_.architecture)) {
      const bool feed_forward_only = (Is("nemotron_h") || Is("nemotron_h_moe")) && ff && (*ff)[i] != 0;
      return i < Main() && layer.kv_heads == 0 && !feed_forward_only;
    }
    if (In(kRecurrentByInterval, out_.architecture)) {
      if (listed) return (*listed)[i] != 0;
      return i < Main() && interval != 0 && (i + 1) % interval != 0;
    }
    return false;
  }

  void Recurrent() {
    std::optional<std::vector<uint32_t>> listed, ff;
    uint32_t interval = 0;
    if (In(kRecurrentByInterval, out_.architecture)) {
      listed = view_.PerLayer(Key("attention.recurrent_layers"), n_);
      interval = view_.Count(Key("full_attention_interval"), 4);
    }
    if (Is("nemotron_h") || Is("nemotron_h_moe")) ff = view_.PerLayer(Key("feed_forward_length"), n_);
    const uint32_t heads = n_ > 0 ? out_.layers[0].heads : 0;
    for (size_t i = 0; i < n_; ++i) {
      LayerDescriptor& layer = out_.layers[i];
      layer.recurrent = IsRecurrent(i, listed, interval, ff);
      if (!layer.recurrent) continue;
      State(heads, layer);
      if (!Is("falcon-h1")) layer.kv_heads = layer.key_length = layer.value_length = 0;
    }
  }

  // Multi-head latent attention: K holds the compressed pair, there is no V.
  void Latent() {
    if (!view_.Has(Key("attention.key_length_mla")) || !view_.Has(Key("attention.value_length_mla"))) return;
    out_.mla = true;
    for (LayerDescriptor& layer : out_.layers) layer.value_length = 0;
  }

  // A second key cache, one head wide, that picks the tokens worth attending to.
  void Index() {
    static constexpr std::string_view kIndexed[] = {"deepseek32", "glm-dsa"};
    if (!In(kIndexed, out_.architecture)) return;
    const uint32_t length = view_.Count(Key("attention.indexer.key_length"));
    const auto own = view_.PerLayer(Key("attention.indexer.types"), Main());
    for (size_t i = 0; i < Main(); ++i) {
      if (!own || Is("deepseek32") || (*own)[i] != 0) out_.layers[i].index_length = length;
    }
  }

  void Rest() {
    out_.per_layer_embedding = view_.Count(Key("embedding_length_per_layer_input"));
    out_.tied_output_copied = Is("gemma4");
    if (Is("deepseek4")) {
      out_.notes.push_back("its compressed caches are planned as a plain latent cache: more than it takes");
    }
  }

  void Sharing() {
    size_t own = n_;
    if (Is("gemma3n")) own = 20;
    if (Is("gemma4")) own = n_ - std::min<size_t>(n_, view_.Count(Key("attention.shared_kv_layers")));
    for (size_t i = own; i < n_; ++i) out_.layers[i].kv_heads = 0;
    if (own < n_) {
      out_.notes.push_back(std::to_string(n_ - own) + " layers use the KV cache of earlier ones");
    }
  }

  GgufView& view_;
  ModelDescriptor& out_;
  const size_t n_;
};

}  // namespace

bool IsKnownArchitecture(std::string_view architecture) { return In(kArchitectures, architecture); }

void DescribeLayers(GgufView& view, ModelDescriptor& descriptor) {
  if (!descriptor.layers.empty()) LayerWriter(view, descriptor).Run();
}

}  // namespace rumbo
