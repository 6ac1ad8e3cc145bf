#include "daemon/core/memory_model.h"

#include <algorithm>
#include <cmath>

namespace rumbo {
namespace {

struct CacheType {
  std::string_view name;
  uint32_t block;
  uint32_t block_bytes;
};
constexpr CacheType kCacheTypes[] = {{"f32", 1, 4},      {"f16", 1, 2},    {"bf16", 1, 2},   {"q8_0", 32, 34},
                                     {"q5_0", 32, 22},   {"q5_1", 32, 24}, {"q4_0", 32, 18}, {"q4_1", 32, 20},
                                     {"iq4_nl", 32, 18}, {"fp8", 1, 1},    {"int8", 1, 1}};

const CacheType* FindType(std::string_view name) {
  for (const CacheType& type : kCacheTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

constexpr uint32_t kCellPad = 256;

uint32_t Clamp32(uint64_t value) { return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX)); }

uint64_t Mul(uint64_t a, uint64_t b) { return SaturatingMul(a, b); }
uint64_t Add(uint64_t a, uint64_t b) { return SaturatingAdd(a, b); }

}  // namespace

std::optional<Bytes> CacheBytes(std::string_view type, uint64_t elements) {
  const CacheType* t = FindType(type);
  if (t == nullptr) return std::nullopt;
  return Mul((elements + t->block - 1) / t->block, t->block_bytes);
}

bool IsCacheType(std::string_view type) { return FindType(type) != nullptr; }

uint32_t CacheBlock(std::string_view type) {
  const CacheType* t = FindType(type);
  return t == nullptr ? 0 : t->block;
}

bool IsQuantizedCacheType(std::string_view type) { return CacheBlock(type) > 1; }

uint32_t Streams(const CacheShape& shape) { return shape.unified ? 1 : std::max(shape.sessions, 1u); }

uint32_t CellsPerStream(const CacheShape& shape) {
  const uint64_t total = RoundUp(std::max(shape.context_total, 1u), kCellPad);
  return Clamp32(RoundUp(std::max<uint64_t>(total / Streams(shape), 1), kCellPad));
}

uint32_t LayerCells(const CacheShape& shape, uint32_t window) {
  const uint64_t full = CellsPerStream(shape);
  if (window == 0 || shape.full_windows) return Clamp32(full);
  const uint64_t windows = Mul(window, shape.unified ? std::max(shape.sessions, 1u) : 1);
  return Clamp32(RoundUp(std::min(full, Add(windows, shape.ubatch)), kCellPad));
}

Bytes LayerCacheBytes(const LayerDescriptor& layer, const CacheShape& shape) {
  if (layer.kv_heads == 0) return 0;
  const uint64_t cells = Mul(LayerCells(shape, layer.window), Streams(shape));
  Bytes row = CacheBytes(shape.type_k, Mul(layer.kv_heads, layer.key_length)).value_or(0);
  row = Add(row, CacheBytes(shape.type_v, Mul(layer.kv_heads, layer.value_length)).value_or(0));
  if (layer.index_length > 0) row = Add(row, CacheBytes(shape.type_k, layer.index_length).value_or(0));
  return Mul(cells, row);
}

Bytes LayerStateBytes(const LayerDescriptor& layer, const CacheShape& shape) {
  if (!layer.recurrent) return 0;
  return Mul(layer.recurrent_state_bytes,
             Mul(std::max(shape.sessions, 1u), 1 + uint64_t{shape.draft_tokens}));
}

Bytes SideBytes::total() const {
  return Add(Add(Add(weights, kv_cache), Add(recurrent_state, compute)), draft);
}

namespace {

// Buffers of one step of `ubatch` tokens. The allocator reuses what is no longer needed, so the most that is
// alive at once counts: in the widest layer or in the output projection, beside the attention masks, which
// live through the whole graph. The terms were found by comparing with the engine's own figures over many
// models (docs/benchmarks.md).
class ComputeModel {
 public:
  ComputeModel(const ModelDescriptor& model, const CacheShape& shape)
      : model_(model), shape_(shape), embd_(model.embedding_length) {
    const uint64_t streams = Streams(shape);
    const uint64_t wanted = std::min(shape.ubatch, Clamp32(Mul(CellsPerStream(shape), streams)));
    tokens_ = RoundUp(std::max<uint64_t>(wanted, 1), std::max(shape.sessions, 1u));
    quantized_ = IsQuantizedCacheType(shape.type_k);
    per_layer_ = Mul(model.per_layer_embedding, model.layers.size());
    for (const LayerDescriptor& layer : model.layers) {
      if (layer.attention_width > 0) narrowest_ = std::min<uint64_t>(narrowest_, layer.attention_width);
    }
  }

  Bytes Masks() const {
    bool full = false, windowed = false, encoder = true;
    uint32_t window = 0;
    for (const LayerDescriptor& layer : model_.layers) {
      encoder = encoder && layer.kv_heads == 0 && !layer.recurrent;
      if (layer.heads == 0 || (layer.recurrent && layer.kv_heads == 0)) continue;
      (layer.window == 0 ? full : windowed) = true;
      window = std::max(window, layer.window);
    }
    const uint64_t per_cell = Mul(tokens_, shape_.flash_attention ? 2 : 4);
    if (encoder) return Mul(tokens_, per_cell);  // every token sees the whole input
    Bytes sum = 0;
    if (full) sum = Add(sum, Mul(LayerCells(shape_, 0), per_cell));
    if (windowed) sum = Add(sum, Mul(LayerCells(shape_, window), per_cell));
    return sum;
  }

  Bytes Layer() const {
    Bytes widest = 0;
    for (const LayerDescriptor& layer : model_.layers) {
      if (layer.mtp) continue;
      widest = std::max(widest, std::max({FeedForward(layer), Attention(layer), Mixer(layer)}));
    }
    return widest;
  }

  Bytes Output() const {
    const uint64_t outputs = std::min<uint64_t>(tokens_, std::max(shape_.outputs, 1u));
    return Mul(outputs, Mul(Add(model_.output_length, embd_), 4));
  }

  // Embeddings and positions that the host hands to the devices.
  Bytes Inputs() const { return Add(Mul(Mul(tokens_, embd_), 4), Mul(tokens_, 32)); }

 private:
  Bytes Values(uint64_t per_token) const { return Mul(Mul(per_token, tokens_), 4); }

  // What lies beside the feed-forward part: residual, input and the holes that the attention left.
  uint64_t Beside(const LayerDescriptor& layer) const {
    const bool attention = layer.kv_heads > 0 || (layer.heads > 0 && !layer.recurrent);
    const bool gated_query = layer.query_width > layer.attention_width && layer.expert_bytes == 0;
    const bool reused = layer.fused_qkv || gated_query || per_layer_ > 0 || model_.output_length == 0;
    uint64_t query = attention && !reused ? std::min<uint64_t>(layer.attention_width, narrowest_) : 0;
    if (model_.mla) query = Mul(layer.heads, layer.key_length);
    if (quantized_ && query == embd_) query = 0;
    if (quantized_ && query < embd_) query = Mul(2, query);
    const bool shared = model_.mla || per_layer_ > 0 || (layer.expert_bytes > 0 && layer.feed_forward > 0);
    return Add(Add(Mul(shared ? 2 : 3, embd_), query), Mul(2, per_layer_));
  }

  Bytes FeedForward(const LayerDescriptor& layer) const {
    uint64_t dense = Mul(layer.feed_forward, layer.gated ? 3 : 1);
    if (!layer.gated && model_.output_length > 0) dense = Add(Mul(2, layer.feed_forward), embd_);
    const uint64_t up = Mul(layer.expert_feed_forward, model_.experts_used);
    const uint64_t down = Mul(embd_, model_.experts_used);
    uint64_t routed = 0;
    // The results of the experts fit into the hole of the two projections up, or go behind all three.
    if (up > 0) routed = Add(Mul(3, up), down > Mul(2, up) ? down : 0);
    return Values(Add(Beside(layer), std::max(dense, routed)));
  }

  Bytes Attention(const LayerDescriptor& layer) const {
    if (layer.heads == 0 || (layer.recurrent && layer.kv_heads == 0)) return 0;
    if (model_.mla) {
      // Compressed query, query with position, result: each as wide as the latent, for every head.
      const uint64_t latent = layer.key_length;
      const Bytes body = Values(Add(Mul(layer.heads, SaturatingSub(Mul(3, latent), latent / 4)), embd_ / 2));
      return shape_.flash_attention ? body : Add(Scores(layer), body);
    }
    const uint64_t wide = Add(Mul(2, layer.attention_width), layer.query_width);
    const uint64_t beside = Add(Mul(5, embd_) / 2, per_layer_);
    if (shape_.flash_attention) return Values(Add(wide, Mul(2, embd_)));
    return Add(Scores(layer), Values(Add(wide, beside)));
  }

  // Attention scores of every head, where flash attention does not avoid them.
  Bytes Scores(const LayerDescriptor& layer) const {
    const uint64_t cells = model_.output_length == 0 ? tokens_ : LayerCells(shape_, layer.window);
    return Mul(Mul(cells, tokens_), Mul(layer.heads, 4));
  }

  Bytes Mixer(const LayerDescriptor& layer) const {
    if (!layer.recurrent) return 0;
    const uint64_t sessions = std::max(shape_.sessions, 1u);
    const uint64_t inner = layer.mixer_width, conv = layer.mixer_conv_width;
    if (layer.mixer == "linear") {
      const uint64_t width = Add(Add(Mul(2, conv), Mul(2, inner)), Add(embd_, SaturatingSub(conv, inner)));
      return Add(Values(width), Mul(sessions, Mul(2, layer.recurrent_state_bytes)));
    }
    if (layer.mixer == "scan") {
      const Bytes states = layer.kv_heads > 0 ? Mul(2, layer.recurrent_state_bytes)
                                              : Add(layer.recurrent_state_bytes, layer.conv_state_bytes);
      const uint64_t width = layer.kv_heads > 0 ? Mul(5, embd_) / 2 : Mul(inner, 27) / 4;
      return Add(Values(width), Mul(sessions, states));
    }
    return Add(Values(Mul(6, embd_)), Mul(sessions, layer.recurrent_state_bytes));
  }

  const ModelDescriptor& model_;
  const CacheShape& shape_;
  uint64_t embd_ = 0, tokens_ = 1, per_layer_ = 0;
  uint64_t narrowest_ = UINT64_MAX;  // of the layers' attention widths
  bool quantized_ = false;
};

// The device of a layer among the offloaded ones, by the split's running sum; -1: the host.
int DeviceOf(uint32_t layer, uint32_t first, uint32_t offloaded, const std::vector<double>& split) {
  if (split.empty() || layer < first || offloaded == 0) return -1;
  const double at = static_cast<double>(layer - first) / static_cast<double>(offloaded);
  double sum = 0;
  for (size_t i = 0; i < split.size(); ++i) {
    sum += split[i];
    if (at < sum) return static_cast<int>(i);
  }
  return static_cast<int>(split.size()) - 1;
}

}  // namespace

namespace {

// Without flash attention the values are kept transposed, every layer as wide as the widest.
uint64_t WidestValues(const ModelDescriptor& model) {
  uint64_t widest = 0;
  for (const LayerDescriptor& layer : model.layers)
    widest = std::max(widest, Mul(layer.kv_heads, layer.value_length));
  return widest;
}

Bytes CacheOf(const LayerDescriptor& layer, const CacheShape& shape, uint64_t widest_values) {
  Bytes cache = LayerCacheBytes(layer, shape);
  const uint64_t own = Mul(layer.kv_heads, layer.value_length);
  if (shape.flash_attention || own == 0 || own >= widest_values) return cache;
  const uint64_t cells = Mul(LayerCells(shape, layer.window), Streams(shape));
  return Add(cache, Mul(cells, CacheBytes(shape.type_v, widest_values - own).value_or(0)));
}

}  // namespace

StepBuffers StepBuffersOf(const ModelDescriptor& model, const CacheShape& shape) {
  const ComputeModel compute(model, shape);
  const Bytes masks = compute.Masks();
  return {Add(masks, std::max(compute.Layer(), compute.Output())), Add(masks, compute.Inputs())};
}

LayeredBytes LayeredMemory(const ModelDescriptor& model, const CacheShape& shape,
                           const LayerPlacement& placement) {
  return LayeredMemory(model, shape, placement, StepBuffersOf(model, shape));
}

LayeredBytes LayeredMemory(const ModelDescriptor& model, const CacheShape& shape,
                           const LayerPlacement& placement, const StepBuffers& buffers) {
  LayeredBytes out;
  const uint64_t widest_values = WidestValues(model);
  out.devices.resize(placement.split.size());
  const auto layers = static_cast<uint32_t>(model.layers.size());
  const uint32_t offloaded = placement.split.empty() ? 0 : std::min(placement.offloaded, layers + 1);
  const uint32_t first = layers + 1 - offloaded;
  auto side = [&](int device) -> SideBytes& { return device < 0 ? out.host : out.devices[device]; };
  for (uint32_t i = 0; i < layers; ++i) {
    const LayerDescriptor& layer = model.layers[i];
    if (layer.mtp && shape.draft_tokens == 0) continue;
    SideBytes& at = side(DeviceOf(i, first, offloaded, placement.split));
    const Bytes dense = Add(layer.attention_bytes, layer.dense_ffn_bytes);
    SideBytes& experts = i < placement.experts_on_host ? out.host : at;
    (layer.mtp ? at.draft : at.weights) = Add(layer.mtp ? at.draft : at.weights, dense);
    experts.weights = Add(experts.weights, layer.expert_bytes);
    const Bytes cache = CacheOf(layer, shape, widest_values);
    (layer.mtp ? at.draft : at.kv_cache) = Add(layer.mtp ? at.draft : at.kv_cache, cache);
    at.recurrent_state = Add(at.recurrent_state, LayerStateBytes(layer, shape));
  }
  SideBytes& last = side(DeviceOf(layers, first, offloaded, placement.split));
  out.host.weights = Add(out.host.weights, model.token_embedding_bytes);
  last.weights = Add(last.weights, Add(model.output_bytes, model.other_bytes));
  // A tied output projection is a second copy where it is not beside the embedding.
  const bool copied = &last != &out.host || (model.tied_output_copied && !shape.mapped);
  if (model.output_bytes == 0 && model.output_length > 0 && copied)
    last.weights = Add(last.weights, model.tied_bytes());
  for (SideBytes& device : out.devices) device.compute = buffers.body;
  out.host.compute = offloaded > layers ? buffers.inputs : buffers.body;
  return out;
}

std::vector<SideBytes> PagedMemory(const ModelDescriptor& model, const CacheShape& shape,
                                   uint32_t step_tokens, size_t devices) {
  constexpr uint64_t kBlock = 16;  // tokens
  const uint64_t sessions = std::max(shape.sessions, 1u), ways = std::max<size_t>(devices, 1);
  const uint64_t each = RoundUp(std::max<uint64_t>(shape.context_total / sessions, 1), kBlock);
  SideBytes side;
  uint64_t widest = Mul(4, model.embedding_length);
  for (const LayerDescriptor& layer : model.layers) {
    if (layer.mtp && shape.draft_tokens == 0) continue;
    const Bytes weights = Add(Add(layer.attention_bytes, layer.dense_ffn_bytes), layer.expert_bytes);
    (layer.mtp ? side.draft : side.weights) = Add(layer.mtp ? side.draft : side.weights, weights / ways);
    // Heads are shared out until there are no more of them; then they are repeated.
    const uint64_t heads =
        layer.kv_heads == 0 ? 0 : std::max<uint64_t>(1, (layer.kv_heads + ways - 1) / ways);
    const uint64_t seen =
        layer.window == 0 ? each : std::min<uint64_t>(each, RoundUp(Add(layer.window, step_tokens), kBlock));
    const Bytes row = Add(CacheBytes(shape.type_k, Mul(heads, layer.key_length)).value_or(0),
                          CacheBytes(shape.type_v, Mul(heads, layer.value_length)).value_or(0));
    side.kv_cache = Add(side.kv_cache, Mul(Mul(seen, sessions), row));
    side.recurrent_state = Add(side.recurrent_state, LayerStateBytes(layer, shape) / ways);
    widest = std::max(
        widest, Add(Mul(2, layer.feed_forward), Mul(2, Mul(layer.expert_feed_forward, model.experts_used))));
  }
  side.weights =
      Add(side.weights, Add(Add(model.token_embedding_bytes, model.output_bytes), model.other_bytes) / ways);
  const Bytes activations = Mul(Mul(step_tokens, Add(widest, Mul(6, model.embedding_length))), 2);
  side.compute = Add(activations, Mul(Mul(sessions, model.output_length), 4));
  return std::vector<SideBytes>(ways, side);
}

Bytes CacheBytesPerToken(const ModelDescriptor& model, const CacheShape& shape) {
  Bytes sum = 0;
  for (const LayerDescriptor& layer : model.layers) {
    if (layer.kv_heads == 0 || (layer.window != 0 && !shape.full_windows)) continue;
    sum = Add(sum, Add(CacheBytes(shape.type_k, Mul(layer.kv_heads, layer.key_length)).value_or(0),
                       CacheBytes(shape.type_v, Mul(layer.kv_heads, layer.value_length)).value_or(0)));
  }
  return sum;
}

}  // namespace rumbo
