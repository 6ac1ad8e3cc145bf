#include "daemon/core/memory_model.h"

#include <gtest/gtest.h>

#include "daemon/core/testing/plan_fixtures.h"

namespace rumbo {
namespace {

// 18 layers, one KV head of 256, every sixth layer full, the others with a window of 512: the shape whose
// cache other programs charged 4 to 19 times too high.
ModelDescriptor WindowedModel() {
  ModelDescriptor d = testing::DenseModel(250 * kMiB, 18, 32768);
  for (size_t i = 0; i < d.layers.size(); ++i) {
    d.layers[i].heads = 4;
    d.layers[i].kv_heads = 1;
    d.layers[i].key_length = d.layers[i].value_length = 256;
    d.layers[i].window = (i + 1) % 6 == 0 ? 0 : 512;
  }
  return d;
}

Bytes Cache(const CacheShape& shape) {
  Bytes sum = 0;
  for (const LayerDescriptor& layer : WindowedModel().layers) sum += LayerCacheBytes(layer, shape);
  return sum;
}

TEST(MemoryModelTest, WindowedLayersKeepOnlyTheirWindow) {
  CacheShape shape;
  shape.context_total = 4096;
  EXPECT_EQ(Cache(shape), 27 * kMiB);
  shape.context_total = 32768;
  EXPECT_EQ(Cache(shape), 111 * kMiB);
  shape.sessions = 4;
  shape.unified = true;
  EXPECT_EQ(Cache(shape), 133 * kMiB + 512 * kKiB);
  shape.sessions = 1;
  shape.full_windows = true;
  EXPECT_EQ(Cache(shape), 576 * kMiB);
}

TEST(MemoryModelTest, StreamsRoundEachSessionUp) {
  CacheShape shape;
  shape.sessions = 3;
  shape.context_total = 1000;
  EXPECT_EQ(CellsPerStream(shape), 512u);  // 1024 / 3 = 341, padded
  shape.unified = true;
  EXPECT_EQ(CellsPerStream(shape), 1024u);
}

TEST(MemoryModelTest, QuantizedCachesAreSmallerByTheirBlocks) {
  EXPECT_EQ(CacheBytes("q8_0", 64), 68u);
  EXPECT_EQ(CacheBytes("q4_0", 64), 36u);
  EXPECT_EQ(CacheBytes("f16", 64), 128u);
  EXPECT_EQ(CacheBytes("q9", 64), std::nullopt);
}

TEST(MemoryModelTest, AbsurdSizesSaturate) {
  ModelDescriptor d = testing::DenseModel(kGiB, 4);
  for (LayerDescriptor& layer : d.layers) {
    layer.kv_heads = layer.key_length = layer.value_length = UINT32_MAX;
    layer.attention_bytes = ~0ull;
    layer.recurrent = true;
    layer.recurrent_state_bytes = ~0ull;
  }
  d.embedding_length = d.feed_forward_length = d.vocabulary = UINT32_MAX;
  CacheShape shape;
  shape.context_total = 1u << 30;
  shape.sessions = 1u << 20;
  shape.ubatch = UINT32_MAX;
  const LayeredBytes bytes = LayeredMemory(d, shape, {});
  EXPECT_EQ(bytes.host.kv_cache, ~0ull);
  EXPECT_EQ(bytes.host.weights, ~0ull);
  EXPECT_EQ(bytes.host.total(), ~0ull);
}

TEST(MemoryModelTest, OffloadedLayersMoveWithTheirCache) {
  const ModelDescriptor d = testing::DenseModel(8 * kGiB, 32);
  CacheShape shape;
  LayerPlacement all{{1.0}, 33, 0};
  const LayeredBytes full = LayeredMemory(d, shape, all);
  EXPECT_EQ(full.host.kv_cache, 0u);
  EXPECT_EQ(full.host.weights, d.token_embedding_bytes);
  LayerPlacement half{{1.0}, 16, 0};
  const LayeredBytes part = LayeredMemory(d, shape, half);
  EXPECT_GT(part.host.kv_cache, part.devices[0].kv_cache);
  EXPECT_EQ(part.host.kv_cache + part.devices[0].kv_cache, full.devices[0].kv_cache);
  EXPECT_EQ(part.host.weights + part.devices[0].weights, full.host.weights + full.devices[0].weights);
}

}  // namespace
}  // namespace rumbo
