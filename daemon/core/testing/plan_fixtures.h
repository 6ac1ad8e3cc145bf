#pragma once

#include <string>

#include "daemon/core/calibration.h"
#include "daemon/core/planner.h"
#include "devices/api/topology.h"
#include "engines/api/catalog.h"

// Machines and models for planner tests, made of round numbers; no real product's figures.
namespace rumbo::testing {

// A CPU with `memory` free bytes of system memory.
inline Topology CpuMachine(Bytes memory) {
  Topology t;
  t.source = "test";
  t.system = "linux";
  MemoryPool pool;
  pool.id = "pool-system";
  pool.total_bytes = pool.free_bytes = memory;
  t.pools.push_back(pool);
  Device cpu;
  cpu.id = "cpu0";
  cpu.name = "Test CPU";
  cpu.kind = DeviceKind::kCpu;
  cpu.memory_kind = MemoryKind::kHost;
  cpu.present = cpu.accessible = cpu.usable = true;
  cpu.pools = {"pool-system"};
  cpu.threads_allowed = cpu.cores_physical = cpu.cores_logical = 8;
  cpu.threads_allowed_source = "CPUs online";
  cpu.isa = {"avx2"};
  cpu.bandwidth_bytes_s.value = 50e9;
  BackendSupport backend;
  backend.name = "cpu";
  backend.usable = true;
  backend.pools = {"pool-system"};
  cpu.backends.push_back(backend);
  t.devices.push_back(cpu);
  return t;
}

// Adds a discrete card with `memory` bytes of its own, reachable through Vulkan and HIP.
inline Device& AddCard(Topology& t, Bytes memory, const std::string& address = "0000:03:00.0") {
  MemoryPool pool;
  pool.id = "pool-vram-" + address;
  pool.kind = PoolKind::kVram;
  pool.total_bytes = pool.free_bytes = memory;
  t.pools.push_back(pool);
  Device gpu;
  gpu.id = "gpu-" + address;
  gpu.name = "Test card";
  gpu.vendor = "AMD";
  gpu.kind = DeviceKind::kGpu;
  gpu.memory_kind = MemoryKind::kDiscrete;
  gpu.present = gpu.accessible = gpu.usable = true;
  gpu.pools = {pool.id};
  gpu.bandwidth_bytes_s.value = 600e9;
  gpu.fp16_flops.value = 100e12;
  for (const char* name : {"vulkan", "hip"}) {
    BackendSupport backend;
    backend.name = name;
    backend.usable = true;
    backend.pools = {pool.id};
    gpu.backends.push_back(backend);
  }
  t.devices.push_back(gpu);
  return t.devices.back();
}

// A dense model of `layers` layers with about `weights` bytes.
inline ModelDescriptor DenseModel(Bytes weights, uint32_t layers = 32, uint32_t context = 32768) {
  ModelDescriptor d;
  d.format = "gguf";
  d.architecture = "dense";
  d.quantization = "Q4_K_M";
  d.capabilities = {"generate", "chat"};
  d.context_trained = context;
  d.embedding_length = 4096;
  d.feed_forward_length = 12288;
  d.vocabulary = d.output_length = 128000;
  d.token_embedding_bytes = weights / 20;
  d.output_bytes = weights / 20;
  const Bytes body = weights - 2 * (weights / 20);
  for (uint32_t i = 0; i < layers; ++i) {
    LayerDescriptor layer;
    layer.attention_bytes = body / layers / 4;
    layer.dense_ffn_bytes = body / layers - layer.attention_bytes;
    layer.heads = 32;
    layer.attention_width = layer.query_width = 4096;
    layer.feed_forward = 12288;
    layer.gated = true;
    layer.kv_heads = 8;
    layer.key_length = layer.value_length = 128;
    d.layers.push_back(layer);
  }
  d.tensor_bytes = d.file_bytes = weights;
  d.parameters = d.active_parameters = weights * 2;
  return d;
}

inline PlanRequest RequestFor(const ModelDescriptor& model) {
  PlanRequest r;
  r.model = "m";
  r.variants.push_back({"default", model, "abc"});
  r.installed = {{"llamacpp", "native", "0.5.0", {"cpu", "vulkan", "hip"}}, {"fake", "", "1", {"cpu"}}};
  return r;
}

inline absl::StatusOr<Plan> PlanOn(const Topology& t, const PlanRequest& r) {
  return MakePlan(r, t, BuiltInCatalog(), Calibration{});
}

inline Bytes SumOf(const Candidate& c, const std::string& pool, const std::string& what = "") {
  Bytes sum = 0;
  for (const MemoryItem& item : c.memory) {
    if (item.pool == pool && (what.empty() || item.what == what)) sum += item.bytes;
  }
  return sum;
}

}  // namespace rumbo::testing
