#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "engines/api/catalog.h"
#include "engines/api/model_descriptor.h"

// How many bytes a placement takes, from the descriptor and the settings alone. Pure; every sum and product
// saturates, so a hostile descriptor gives a plan that fits nowhere, never a wrapped number.
namespace rumbo {

// Bytes of `elements` values of a cache type; elements are whole blocks. nullopt for an unknown type.
std::optional<Bytes> CacheBytes(std::string_view type, uint64_t elements);
bool IsCacheType(std::string_view type);
// Values per block of the type: a row of the cache must be a multiple of it. 0 for an unknown type.
uint32_t CacheBlock(std::string_view type);
bool IsQuantizedCacheType(std::string_view type);

// What the formulas need of the settings; everything is set.
struct CacheShape {
  uint32_t sessions = 1;
  uint32_t context_total = 4096;  // cells for all sessions
  uint32_t ubatch = 512;
  uint32_t outputs = 1;       // tokens of one step whose logits are wanted
  bool unified = false;       // one pool of cells for all sessions
  bool full_windows = false;  // windowed layers keep the whole context
  bool flash_attention = true;
  std::string type_k = "f16";
  std::string type_v = "f16";
  bool mapped = false;        // weights are mapped, not copied
  uint32_t draft_tokens = 0;  // above 0: the MTP layers are loaded and have a cache of their own
};

// Cells of one stream; context_total rounded as the engine rounds it.
uint32_t CellsPerStream(const CacheShape& shape);
uint32_t Streams(const CacheShape& shape);
// Cells per stream of a layer with this window (0: full attention).
uint32_t LayerCells(const CacheShape& shape, uint32_t window);

// KV cache and recurrent state of one layer, all sessions.
Bytes LayerCacheBytes(const LayerDescriptor& layer, const CacheShape& shape);
Bytes LayerStateBytes(const LayerDescriptor& layer, const CacheShape& shape);

// Bytes on one side (a device, or the host).
struct SideBytes {
  Bytes weights = 0;
  Bytes kv_cache = 0;
  Bytes recurrent_state = 0;
  Bytes compute = 0;
  Bytes draft = 0;  // weights and cache of MTP layers
  Bytes total() const;
};

// Which layers live where. Layers are numbered as in the descriptor; the output projection counts as one
// more.
struct LayerPlacement {
  // Fraction of the offloaded layers per device, summing to 1; empty: no device, everything on the host.
  std::vector<double> split;
  uint32_t offloaded =
      0;  // layers on devices, from the end; descriptor.layers.size() + 1: all with the output
  uint32_t experts_on_host = 0;  // of the first so many layers, the routed experts stay on the host
};

struct LayeredBytes {
  SideBytes host;
  std::vector<SideBytes> devices;  // as in LayerPlacement::split
};

// Compute buffers of one step; they depend on the shape alone, not on the placement.
struct StepBuffers {
  Bytes body = 0;    // of a side that runs layers
  Bytes inputs = 0;  // of the host where it runs none
};
StepBuffers StepBuffersOf(const ModelDescriptor& model, const CacheShape& shape);

// The layered engine: weights per layer, a cache per layer beside it, compute buffers per side. `buffers` are
// those of the same model and shape.
LayeredBytes LayeredMemory(const ModelDescriptor& model, const CacheShape& shape,
                           const LayerPlacement& placement, const StepBuffers& buffers);
LayeredBytes LayeredMemory(const ModelDescriptor& model, const CacheShape& shape,
                           const LayerPlacement& placement);

// A paged server: all weights on the devices (shared out evenly), a pool of cache blocks, workspace for one
// step of `step_tokens` tokens. One entry per device; nothing on the host but the engine itself.
std::vector<SideBytes> PagedMemory(const ModelDescriptor& model, const CacheShape& shape,
                                   uint32_t step_tokens, size_t devices);

// Bytes of cache per token of context beyond every window, all sessions' share in one; for context sizing.
Bytes CacheBytesPerToken(const ModelDescriptor& model, const CacheShape& shape);

}  // namespace rumbo
