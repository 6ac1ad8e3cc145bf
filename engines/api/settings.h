#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace rumbo {

// Every engine setting that matters, set on purpose by the planner. The C++ face of rumbo.v1.Settings;
// units and meanings as there. nullopt: the engine has no such setting.
struct EngineSettings {
  std::optional<uint32_t> context_total;        // tokens of KV cache for all sessions together
  std::optional<uint32_t> context_per_session;  // tokens one session is guaranteed
  std::optional<uint32_t> sessions;
  std::optional<uint32_t> threads;        // decode
  std::optional<uint32_t> threads_batch;  // prompts
  std::optional<uint32_t> batch;          // tokens per logical batch
  std::optional<uint32_t> ubatch;         // tokens per physical batch
  std::optional<uint32_t> gpu_layers;
  std::string kv_type_k;  // "f16", "bf16", "q8_0" ...; "" no such setting
  std::string kv_type_v;
  std::string flash_attention;  // "on", "off", "auto"; "" no such setting
  std::optional<bool> mmap;
  std::optional<bool> kv_unified;
  std::optional<bool> swa_full;
  std::optional<uint32_t> draft_tokens;
  std::optional<Bytes> host_cache_bytes;
  std::optional<uint32_t> poll;  // 0 to 100
  // Further settings by name. For llama.cpp's worker: "outputs", tokens of one step whose logits may be
  // wanted (n_outputs_max; the compute buffer is planned for it); "experts_on_host", the first so many layers
  // keep their routed experts in host memory; "tensor_split", shares of the devices, "0.6,0.4".
  std::map<std::string, std::string> extra;
};

// One reservation or report. `what` is one of weights, kv_cache, recurrent_state, compute, projector,
// draft, host_cache, engine.
struct MemoryItem {
  std::string pool;  // pool id; in a worker's report "host" or a device selector
  std::string what;
  Bytes bytes = 0;
  std::string source;  // "formula", "oracle", "measured here", ...
};

}  // namespace rumbo
