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
constexpr CacheType kCacheTypes[] = {{"f32", 1, 4},    {"f16", 1, 2},    {"bf16", 1, 2},   {"q8_0", 32, 34},
                                     {"q5_0", 32, 22}, {"q5_1", 32, 24}, {"q4_0", 32, 18}, {"q4_1", 32, 20},
                                     {"iq4_nl", 32, 18}, {"fp8", 1, 1},  {"int8", 1, 1}};

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
  const Bytes k = CacheBytes(shape.type_k, Mul(layer.kv_heads, layer.key_length)).value_or(0);
  const Bytes v = CacheBytes(shape.type_v, Mul(layer.kv_heads, layer.value_length)).value_or(0);
  return Mul(cells, Add(k, v));
}

Bytes LayerStateBytes(const LayerDescriptor& layer, const CacheShape& shape) {
  if (!layer.recurrent) return 0;
  return Mul(layer.recurrent_state_bytes, Mul(std::max(shape.sessions, 1u), 1 + uint64_t{shape.draft_tokens}));
}

Bytes SideBytes::total() const {
  return Add(Add(Add(weights, kv_cache), Add(recurrent_state, compute)), draft);
}

namespace {

// Buffers of one step of `ubatch` tokens: what is alive at once in the widest layer, in the output projection, and the
// attention masks, which live through the whole graph.
class ComputeModel {
 public:
  ComputeModel(const ModelDescriptor& model, const CacheShape& shape) : model_(model), shape_(shape) {
    const uint64_t streams = Streams(shape);
    const uint64_t wanted = std::min(shape.ubatch, Clamp32(Mul(CellsPerStream(shape), streams)));
    tokens_ = RoundUp(std::max<uint64_t>(wanted, 1), std::max(shape.sessions, 1u));
  }

  Bytes Masks() const {
    bool full = false, windowed = false;
    uint32_t window = 0;
    for (const LayerDescriptor& layer : model_.layers) {
      if (layer.kv_heads == 0 && layer.heads == 0) continue;
      (layer.window == 0 ? full : windowed) = true;
      window = std::max(window, layer.window);
    }
    const uint64_t per_cell = shape_.flash_attention ? 2 : 4;
    Bytes sum = 0;
    if (full) sum = Add(sum, Mul(Mul(LayerCells(shape_, 0), tokens_), per_cell));
    if (windowed) sum = Add(sum, Mul(Mul(LayerCells(shape_, window), tokens_), per_cell));
    return sum;
  }

  Bytes Layer() const {
    const uint64_t embd = Mul(Mul(tokens_, model_.embedding_length), 4);
    const uint64_t ffn = Mul(Mul(tokens_, model_.feed_forward_length), 4);
    Bytes widest = Add(Mul(3, ffn), Mul(4, embd));
    if (!shape_.flash_attention) widest = std::max(widest, Add(Scores(), Mul(6, embd)));
    return widest;
  }

  Bytes Output() const {
    const uint64_t outputs = std::min<uint64_t>(tokens_, std::max(shape_.outputs, 1u));
    return Mul(outputs, Mul(Add(model_.vocabulary, Mul(2, model_.embedding_length)), 4));
  }

  // Embeddings and positions that the host hands to the devices.
  Bytes Inputs() const { return Add(Mul(Mul(tokens_, model_.embedding_length), 4), Mul(tokens_, 32)); }

 private:
  // Attention scores without flash attention: twice, before and after the soft-max.
  Bytes Scores() const {
    uint64_t heads = 0;
    for (const LayerDescriptor& layer : model_.layers) heads = std::max<uint64_t>(heads, layer.heads);
    return Mul(Mul(LayerCells(shape_, 0), tokens_), Mul(heads, 4));
  }

  const ModelDescriptor& model_;
  const CacheShape& shape_;
  uint64_t tokens_ = 1;
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

LayeredBytes LayeredMemory(const ModelDescriptor& model, const CacheShape& shape, const LayerPlacement& placement) {
  LayeredBytes out;
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
    const Bytes cache = LayerCacheBytes(layer, shape);
    (layer.mtp ? at.draft : at.kv_cache) = Add(layer.mtp ? at.draft : at.kv_cache, cache);
    at.recurrent_state = Add(at.recurrent_state, LayerStateBytes(layer, shape));
  }
  SideBytes& last = side(DeviceOf(layers, first, offloaded, placement.split));
  out.host.weights = Add(out.host.weights, model.token_embedding_bytes);
  last.weights = Add(last.weights, Add(model.output_bytes, model.other_bytes));
  // A tied output projection is a second copy where it is not beside the embedding.
  if (model.output_bytes == 0 && &last != &out.host) last.weights = Add(last.weights, model.token_embedding_bytes);
  const ComputeModel compute(model, shape);
  const Bytes body = Add(compute.Masks(), std::max(compute.Layer(), compute.Output()));
  for (SideBytes& device : out.devices) device.compute = body;
  out.host.compute = offloaded > layers ? Add(compute.Masks(), compute.Inputs()) : body;
  return out;
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
