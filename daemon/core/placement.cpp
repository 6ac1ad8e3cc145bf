#include "daemon/core/placement.h"

#include <algorithm>

namespace rumbo {
namespace {

bool Applies(const MemoryLimit& limit, const std::string& device, const std::string& backend) {
  const auto in = [](const std::vector<std::string>& list, const std::string& word) {
    return list.empty() || std::find(list.begin(), list.end(), word) != list.end();
  };
  return in(limit.devices, device) && in(limit.backends, backend);
}

void AddItem(Candidate& candidate, const std::string& pool, const std::string& what, Bytes bytes) {
  for (MemoryItem& item : candidate.memory) {
    if (item.pool == pool && item.what == what) {
      item.bytes = SaturatingAdd(item.bytes, bytes);
      return;
    }
  }
  candidate.memory.push_back({pool, what, bytes, "formula"});
}

void Charge(const MemoryPool& pool, const std::string& device, const std::string& backend,
            const std::string& what, Bytes bytes, Candidate& candidate) {
  if (bytes == 0) return;
  AddItem(candidate, pool.id, what, bytes);
  for (const MemoryLimit& limit : pool.limits) {
    if (!Applies(limit, device, backend) || !limit.max_bytes) continue;
    Bytes& sum = candidate.limit_bytes[limit.id];
    sum = SaturatingAdd(sum, bytes);
  }
}

Bytes CapacityFor(const MemoryPool& pool, const std::string& device, const std::string& backend) {
  Bytes capacity = pool.total_bytes.value_or(0);
  for (const MemoryLimit& limit : pool.limits) {
    // A reserve lowers what is free for all alike; it says nothing about which pool a driver prefers.
    if (limit.max_bytes && limit.kind != LimitKind::kReserve && Applies(limit, device, backend)) {
      capacity = std::min(capacity, *limit.max_bytes);
    }
  }
  return capacity;
}

const MemoryPool* LargestPool(const Topology& topology, const std::vector<std::string>& ids,
                              const Device& device, const std::string& backend) {
  const MemoryPool* best = nullptr;
  for (const std::string& id : ids) {
    const MemoryPool* pool = topology.FindPool(id);
    if (pool == nullptr) continue;
    if (best == nullptr || CapacityFor(*pool, device.id, backend) > CapacityFor(*best, device.id, backend))
      best = pool;
  }
  return best;
}

}  // namespace

Room::Room(const Topology& topology, const LedgerSnapshot& ledger) : topology_(topology) {
  for (const MemoryPool& pool : topology.pools) {
    const auto known = ledger.pool_free.find(pool.id);
    std::optional<Bytes> free = pool.free_bytes ? pool.free_bytes : pool.total_bytes;
    if (known != ledger.pool_free.end()) free = known->second;
    if (free) pools_[pool.id] = *free;
    for (const MemoryLimit& limit : pool.limits) {
      const auto listed = ledger.limit_free.find(limit.id);
      if (listed != ledger.limit_free.end()) {
        limits_[limit.id] = listed->second;
      } else if (limit.max_bytes) {
        limits_[limit.id] = SaturatingSub(*limit.max_bytes, limit.used_bytes.value_or(0));
      }
    }
  }
}

std::optional<Bytes> Room::PoolFree(const std::string& pool) const {
  const auto it = pools_.find(pool);
  return it == pools_.end() ? std::nullopt : std::optional<Bytes>(it->second);
}

std::optional<Bytes> Room::FreeFor(const std::string& id, const std::string& device,
                                   const std::string& backend) const {
  std::optional<Bytes> free = PoolFree(id);
  const MemoryPool* pool = topology_.FindPool(id);
  if (!free || pool == nullptr) return free;
  for (const MemoryLimit& limit : pool->limits) {
    const auto left = limits_.find(limit.id);
    if (left != limits_.end() && Applies(limit, device, backend)) free = std::min(*free, left->second);
  }
  return free;
}

void Room::Release(const EvictionCandidate& instance) {
  for (const auto& [pool, bytes] : instance.pool_bytes) {
    const auto it = pools_.find(pool);
    if (it == pools_.end()) continue;
    it->second = SaturatingAdd(it->second, bytes);
    const MemoryPool* known = topology_.FindPool(pool);
    if (known != nullptr && known->total_bytes) it->second = std::min(it->second, *known->total_bytes);
  }
  for (const auto& [limit, bytes] : instance.limit_bytes) {
    const auto it = limits_.find(limit);
    if (it != limits_.end()) it->second = SaturatingAdd(it->second, bytes);
  }
}

std::optional<Shortage> Room::Lacks(const Candidate& candidate) const {
  std::optional<Shortage> worst;
  const auto check = [&](const std::string& id, Bytes free, Bytes wanted) {
    if (wanted > free && (!worst || wanted - free > worst->missing)) worst = Shortage{id, wanted - free};
  };
  for (const MemoryPool& pool : topology_.pools) {
    Bytes wanted = 0;
    for (const MemoryItem& item : candidate.memory) {
      if (item.pool == pool.id) wanted = SaturatingAdd(wanted, item.bytes);
    }
    if (wanted > 0) check(pool.id, PoolFree(pool.id).value_or(0), wanted);
  }
  for (const auto& [limit, bytes] : candidate.limit_bytes) {
    const auto it = limits_.find(limit);
    if (it != limits_.end()) check(limit, it->second, bytes);
  }
  return worst;
}

const MemoryPool* SystemPool(const Topology& topology) {
  for (const MemoryPool& pool : topology.pools) {
    if (pool.kind == PoolKind::kSystem) return &pool;
  }
  return nullptr;
}

bool Reserve(const Topology& topology, const Room& room, const Device& device, const BackendSupport& backend,
             const std::string& what, Bytes bytes, Candidate& candidate) {
  if (bytes == 0) return true;
  const std::vector<std::string>& ids = backend.pools.empty() ? device.pools : backend.pools;
  if (!backend.may_span_pools || ids.size() < 2) {
    const MemoryPool* pool = LargestPool(topology, ids, device, backend.name);
    if (pool == nullptr) return false;
    Charge(*pool, device.id, backend.name, what, bytes, candidate);
    return true;
  }
  Bytes left = bytes;
  const MemoryPool* last = nullptr;
  for (const std::string& id : ids) {
    const MemoryPool* pool = topology.FindPool(id);
    if (pool == nullptr) continue;
    last = pool;
    Bytes used = 0;
    for (const MemoryItem& item : candidate.memory) {
      if (item.pool == id) used = SaturatingAdd(used, item.bytes);
    }
    const Bytes free = SaturatingSub(room.FreeFor(id, device.id, backend.name).value_or(0), used);
    const Bytes here = std::min(left, free);
    Charge(*pool, device.id, backend.name, what, here, candidate);
    left -= here;
  }
  if (last == nullptr) return false;
  Charge(*last, device.id, backend.name, what, left,
         candidate);  // what lacks shows as a shortage of the last pool
  return true;
}

void ReserveHost(const Topology& topology, const std::string& what, Bytes bytes, Candidate& candidate) {
  const MemoryPool* pool = SystemPool(topology);
  if (pool != nullptr) Charge(*pool, "", "cpu", what, bytes, candidate);
}

}  // namespace rumbo
