#include <fmt/format.h>

#include <algorithm>

#include "devices/assemble/gpu.h"

namespace rumbo {
namespace {

MemoryPool* FindMutable(Topology& topology, const std::string& id) {
  for (MemoryPool& p : topology.pools) {
    if (p.id == id) return &p;
  }
  return nullptr;
}

struct Amount {
  std::optional<Bytes> bytes;
  std::string source;
};

// Device-local heaps of a hardware Vulkan device; on a discrete card they are its VRAM.
std::optional<Bytes> LocalHeaps(const VulkanDevice& d) {
  std::optional<Bytes> sum;
  for (const VulkanHeap& heap : d.heaps) {
    if (heap.device_local) sum = SaturatingAdd(sum.value_or(0), heap.size);
  }
  return sum;
}

std::optional<Bytes> LocalBudgetLeft(const VulkanDevice& d) {
  std::optional<Bytes> sum;
  for (const VulkanHeap& heap : d.heaps) {
    if (heap.device_local && heap.budget) {
      sum = SaturatingAdd(sum.value_or(0), SaturatingSub(*heap.budget, heap.usage.value_or(0)));
    }
  }
  return sum;
}

// All partitions of the card together, from KFD.
Amount KfdBanks(const Facts& facts, const GpuRecord& r) {
  if (r.kfd == nullptr || !r.kfd->vram_bank_bytes) return {};
  Bytes sum = 0;
  for (const KfdNode& node : facts.kfd.gpus) {
    const bool same = &node == r.kfd || (!node.unique_id.empty() && node.unique_id == r.kfd->unique_id);
    if (same && node.vram_bank_bytes) sum = SaturatingAdd(sum, *node.vram_bank_bytes);
  }
  return {sum, "KFD mem_banks"};
}

Amount VramTotal(const Facts& facts, const GpuRecord& r) {
  if (r.amd != nullptr && r.amd->vram_total) return {r.amd->vram_total, "sysfs mem_info_vram_total"};
  if (r.nvidia != nullptr && r.nvidia->total)
    return {r.nvidia->total, facts.nvidia->source + " memory.total"};
  if (r.drm != nullptr && r.drm->local_total.value_or(0) > 0)
    return {r.drm->local_total, "driver memory regions"};
  if (Amount banks = KfdBanks(facts, r); banks.bytes) return banks;
  if (r.hip != nullptr && r.hip->total) return {r.hip->total, "HIP device total"};
  if (r.vulkan != nullptr && LocalHeaps(*r.vulkan))
    return {LocalHeaps(*r.vulkan), "Vulkan device-local heaps"};
  return {std::nullopt, "nothing readable says how much memory this card has"};
}

Amount VramFree(const Facts& facts, const GpuRecord& r, Bytes total) {
  if (r.amd != nullptr && r.amd->vram_used) {
    const bool over = *r.amd->vram_used > total;
    return {
        SaturatingSub(total, *r.amd->vram_used),
        over ? "sysfs mem_info_vram_used is above the total: free clamped to 0" : "sysfs mem_info_vram_used"};
  }
  if (r.nvidia != nullptr && r.nvidia->free) return {r.nvidia->free, facts.nvidia->source + " memory.free"};
  if (r.drm != nullptr && r.drm->local_used)
    return {SaturatingSub(total, *r.drm->local_used), "driver memory regions"};
  if (r.hip != nullptr && r.hip->free) return {r.hip->free, "HIP memory info"};
  if (r.vulkan != nullptr && LocalBudgetLeft(*r.vulkan))
    return {LocalBudgetLeft(*r.vulkan), "Vulkan memory budget"};
  return {std::nullopt, "use by others is not readable"};
}

MemoryPool CardPool(const Facts& facts, const GpuRecord& r, PoolKind kind, const std::string& id) {
  MemoryPool pool;
  pool.id = id;
  pool.kind = kind;
  const Amount total = VramTotal(facts, r);
  pool.total_bytes = total.bytes;
  pool.source = total.source;
  if (!total.bytes) return pool;
  const Amount free = VramFree(facts, r, *total.bytes);
  pool.free_bytes = free.bytes;
  pool.source += ", free: " + free.source;
  if (pool.free_bytes && *pool.free_bytes > *pool.total_bytes) {
    pool.free_bytes = pool.total_bytes;
    pool.source += ", clamped to the total";
  }
  return pool;
}

// A partition's share caps what it may take of the card's one pool.
void AddPartitionLimit(const GpuRecord& r, int parts, const Device& d, MemoryPool& pool) {
  MemoryLimit limit;
  limit.id = "limit-partition-" + r.key;
  limit.devices = {d.id};
  if (r.kfd != nullptr && r.kfd->vram_bank_bytes) {
    limit.max_bytes = r.kfd->vram_bank_bytes;
    limit.source = "KFD mem_banks of the partition";
  } else if (pool.total_bytes) {
    limit.max_bytes = *pool.total_bytes / static_cast<Bytes>(parts);
    limit.source = fmt::format("formula: the card's memory over {} partitions", parts);
  } else {
    limit.source = "a partition of a card whose memory is unknown";
  }
  pool.limits.push_back(std::move(limit));
}

void AddCard(const Facts& facts, const GpuRecord& r, int parts, Device& d, Topology& topology) {
  const std::string id = "pool-vram-" + (r.parent.empty() ? r.key : r.parent);
  if (r.parent.empty()) topology.pools.push_back(CardPool(facts, r, PoolKind::kVram, id));
  MemoryPool* pool = FindMutable(topology, id);
  if (pool == nullptr) {  // a partition whose card's own memory is not known to be a card's
    d.pools = {"pool-system"};
    return;
  }
  d.pools = {id};
  if (parts > 1) AddPartitionLimit(r, parts, d, *pool);
}

// GTT, TTM and KFD cap what the GPU may take of system memory; none of them is memory.
void AddSystemLimits(const Facts& facts, const GpuRecord& r, const Device& d, MemoryPool& system) {
  const auto clamped = [&](Bytes bytes, std::string& source) {
    if (!system.total_bytes || bytes <= *system.total_bytes) return bytes;
    source += fmt::format(", says {} and is clamped to MemTotal", FormatBytes(bytes));
    return *system.total_bytes;
  };
  if (r.amd->gtt_total) {
    MemoryLimit gtt{"limit-gtt-" + r.key,      LimitKind::kGtt, std::nullopt, r.amd->gtt_used, {d.id}, {},
                    "sysfs mem_info_gtt_total"};
    gtt.max_bytes = clamped(*r.amd->gtt_total, gtt.source);
    if (gtt.used_bytes && *gtt.used_bytes > *gtt.max_bytes) gtt.used_bytes = gtt.max_bytes;
    system.limits.push_back(std::move(gtt));
  }
  const auto ttm = std::find_if(system.limits.begin(), system.limits.end(),
                                [](const auto& l) { return l.id == "limit-ttm"; });
  if (ttm != system.limits.end()) {
    ttm->devices.push_back(d.id);
  } else if (facts.amdgpu.module.ttm_pages_limit) {
    MemoryLimit limit{"limit-ttm", LimitKind::kTtm,  std::nullopt, std::nullopt, {d.id},
                      {},          "ttm pages_limit"};
    limit.max_bytes = clamped(*facts.amdgpu.module.ttm_pages_limit, limit.source);
    system.limits.push_back(std::move(limit));
  }
  if (r.kfd != nullptr && system.total_bytes) {
    const Bytes reserved = SaturatingAdd(*system.total_bytes / 64, kGiB);
    system.limits.push_back({"limit-kfd-" + r.key,
                             LimitKind::kKfd,
                             SaturatingSub(*system.total_bytes, reserved),
                             std::nullopt,
                             {d.id},
                             {"hip"},
                             "formula: KFD leaves 1/64 of memory and 1 GiB to the system"});
  }
}

void AddAmdUnified(const Facts& facts, const GpuRecord& r, Device& d, Topology& topology) {
  MemoryPool* system = FindMutable(topology, "pool-system");
  if (r.amd == nullptr) {
    d.pools = {"pool-system"};
    // What a runtime offers is all there is to go by where sysfs is not (WSL, Intel's integrated graphics).
    const auto cap = [&](const char* backend, Bytes bytes, const char* source) {
      if (system->total_bytes) bytes = std::min(bytes, *system->total_bytes);
      system->limits.push_back({fmt::format("limit-{}-{}", backend, r.key),
                                LimitKind::kOther,
                                bytes,
                                std::nullopt,
                                {d.id},
                                {backend},
                                source});
    };
    if (r.hip != nullptr && r.hip->total) cap("hip", *r.hip->total, "HIP device total");
    if (r.vulkan != nullptr && LocalHeaps(*r.vulkan))
      cap("vulkan", *LocalHeaps(*r.vulkan), "Vulkan device-local heaps");
    return;
  }
  AddSystemLimits(facts, r, d, *system);
  const Bytes carveout = r.amd->vram_total.value_or(0);
  if (carveout == 0) {  // parts without a carve-out hide the file or say 0
    d.pools = {"pool-system"};
    return;
  }
  Bytes gtt = r.amd->gtt_total.value_or(0);
  if (system->total_bytes) gtt = std::min(gtt, *system->total_bytes);
  const std::string id = "pool-carveout-" + r.key;
  topology.pools.push_back(CardPool(facts, r, PoolKind::kCarveout, id));
  // amdgpu's own choice for ROCm: system memory where GTT is larger than the carve-out.
  if (gtt > carveout)
    d.pools = {"pool-system", id};
  else
    d.pools = {id, "pool-system"};
}

}  // namespace

void AddGpuMemory(const Facts& facts, const GpuRecord& r, int parts, Device& d, Topology& topology) {
  switch (d.memory_kind) {
    case MemoryKind::kDiscrete:
      return AddCard(facts, r, parts, d, topology);
    case MemoryKind::kUnified:
      return AddAmdUnified(facts, r, d, topology);
    default:
      break;
  }
  // Unknown: what the card calls its VRAM is real memory in both cases; GTT is not added.
  if (r.parent.empty() && !VramTotal(facts, r).bytes) {
    d.pools = {"pool-system"};
    return;
  }
  AddCard(facts, r, parts, d, topology);
}

bool AddMigInstances(const GpuRecord& r, const Device& card, Topology& topology) {
  if (r.nvidia == nullptr || !r.nvidia->mig_enabled.value_or(false)) return false;
  for (size_t i = 0; i < r.nvidia->mig.size(); ++i) {
    const MigInstance& mig = r.nvidia->mig[i];
    // Compute instances of one GPU instance share its memory.
    const std::string slice =
        fmt::format("{}-mig{}", r.key, mig.gpu_instance >= 0 ? mig.gpu_instance : static_cast<int>(i));
    Device d = card;
    d.id = fmt::format("gpu-{}{}", slice,
                       mig.compute_instance > 0 ? fmt::format("-ci{}", mig.compute_instance) : "");
    d.name = mig.name.empty() ? card.name + " MIG" : mig.name;
    d.parent = card.id;
    d.pools = {"pool-vram-" + slice};
    // A slice has a share of the rates, and which share is not known.
    d.bandwidth_bytes_s = d.fp16_flops = d.bf16_flops = d.fp8_flops = d.int8_ops = d.fp32_flops =
        d.power_watts = {};
    d.compute_units.reset();
    d.present = d.accessible = d.usable = true;
    d.reason = "MIG instance";
    BackendSupport cuda;
    cuda.name = "cuda";
    cuda.usable = true;
    cuda.reason = "listed by the driver";
    cuda.selector = mig.uuid;
    cuda.pools = d.pools;
    if (mig.uuid.empty()) {
      cuda.usable = d.usable = false;
      cuda.reason = d.reason = "its MIG UUID is unknown, and only that selects it";
      cuda.remedy = d.remedy = "Make NVML (libnvidia-ml.so.1) loadable for this user.";
    }
    d.backends = {std::move(cuda)};
    if (topology.FindPool(d.pools[0]) == nullptr) {
      MemoryPool pool;
      pool.id = d.pools[0];
      pool.kind = PoolKind::kVram;
      pool.total_bytes = mig.total;
      if (mig.total && mig.used) pool.free_bytes = SaturatingSub(*mig.total, *mig.used);
      pool.source = "memory of the MIG instance";
      topology.pools.push_back(std::move(pool));
    }
    topology.devices.push_back(std::move(d));
  }
  return !r.nvidia->mig.empty();
}

}  // namespace rumbo
