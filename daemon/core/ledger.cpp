#include "daemon/core/ledger.h"

#include <algorithm>

#include "base/status.h"

namespace rumbo {

void Ledger::SetTopology(const Topology& topology) {
  pools_ = topology.pools;
  ++generation_;
}

Bytes Ledger::Promised(const std::string& pool) const {
  Bytes sum = 0;
  for (const auto& [owner, account] : accounts_) {
    const auto it = account.promised.pools.find(pool);
    if (it != account.promised.pools.end()) sum = SaturatingAdd(sum, it->second);
  }
  return sum;
}

Bytes Ledger::FreeInPool(const MemoryPool& pool) const {
  if (!pool.free_bytes && !pool.total_bytes) return 0;  // unknown memory is promised to nobody
  Bytes taken = 0;
  for (const auto& [owner, account] : accounts_) {
    const auto held = account.taken.find(pool.id);
    const auto promised = account.promised.pools.find(pool.id);
    if (held == account.taken.end() || promised == account.promised.pools.end()) continue;
    taken = SaturatingAdd(taken, std::min(held->second, promised->second));
  }
  const auto foreign = foreign_.find(pool.id);
  const Bytes reported = SaturatingSub(pool.free_bytes.value_or(pool.total_bytes.value_or(0)),
                                       foreign == foreign_.end() ? 0 : foreign->second);
  const Bytes reserve = pool.kind == PoolKind::kSystem ? system_reserve_ : 0;
  const Bytes promised = Promised(pool.id);
  Bytes free = SaturatingSub(SaturatingAdd(reported, taken), SaturatingAdd(promised, reserve));
  if (pool.total_bytes)
    free = std::min(free, SaturatingSub(*pool.total_bytes, SaturatingAdd(promised, reserve)));
  if (pool.kind == PoolKind::kSystem && system_limit_ > 0) {
    free = std::min(free, SaturatingSub(system_limit_, promised));
  }
  return free;
}

Bytes Ledger::FreeInLimit(const MemoryLimit& limit, const MemoryPool& pool) const {
  if (!limit.max_bytes) return FreeInPool(pool);
  Bytes promised = 0, taken = 0;
  for (const auto& [owner, account] : accounts_) {
    const auto it = account.promised.limits.find(limit.id);
    if (it == account.promised.limits.end()) continue;
    promised = SaturatingAdd(promised, it->second);
    const auto held = account.taken.find(pool.id);
    if (held != account.taken.end()) taken = SaturatingAdd(taken, std::min(held->second, it->second));
  }
  return SaturatingSub(SaturatingAdd(SaturatingSub(*limit.max_bytes, limit.used_bytes.value_or(0)), taken),
                       promised);
}

LedgerSnapshot Ledger::Snapshot() const {
  LedgerSnapshot snapshot;
  snapshot.generation = generation_;
  for (const MemoryPool& pool : pools_) {
    snapshot.pool_free[pool.id] = FreeInPool(pool);
    for (const MemoryLimit& limit : pool.limits) snapshot.limit_free[limit.id] = FreeInLimit(limit, pool);
  }
  return snapshot;
}

absl::Status Ledger::Reserve(const std::string& owner, const Reservation& wanted, bool force) {
  if (!force) {
    const LedgerSnapshot snapshot = Snapshot();
    const auto check = [&](const std::map<std::string, Bytes>& want,
                           const std::map<std::string, Bytes>& free) {
      for (const auto& [id, bytes] : want) {
        const auto it = free.find(id);
        const Bytes available = it == free.end() ? 0 : it->second;
        if (bytes > available) {
          return Error(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit,
                       id + " lacks " + FormatBytes(bytes - available) + " (" + FormatBytes(bytes) +
                           " wanted, " + FormatBytes(available) + " free)",
                       "Unload a model, or ask for less context or fewer sessions.");
        }
      }
      return absl::OkStatus();
    };
    RUMBO_RETURN_IF_ERROR(check(wanted.pools, snapshot.pool_free));
    RUMBO_RETURN_IF_ERROR(check(wanted.limits, snapshot.limit_free));
  }
  accounts_[owner] = {wanted, {}};
  ++generation_;
  return absl::OkStatus();
}

void Ledger::Confirm(const std::string& owner, const Reservation& really) {
  const auto it = accounts_.find(owner);
  if (it == accounts_.end()) return;
  for (const auto& [pool, bytes] : really.pools) {
    Bytes& promised = it->second.promised.pools[pool];
    promised = std::max(promised, bytes);
  }
  for (const auto& [limit, bytes] : really.limits) {
    Bytes& promised = it->second.promised.limits[limit];
    promised = std::max(promised, bytes);
  }
  ++generation_;
}

void Ledger::SetTaken(const std::string& owner, const std::map<std::string, Bytes>& pools) {
  const auto it = accounts_.find(owner);
  if (it != accounts_.end()) it->second.taken = pools;
}

void Ledger::SetForeign(std::map<std::string, Bytes> pools) {
  if (foreign_ == pools) return;
  foreign_ = std::move(pools);
  ++generation_;
}

void Ledger::Release(const std::string& owner) {
  if (accounts_.erase(owner) > 0) ++generation_;
}

const Reservation* Ledger::Find(const std::string& owner) const {
  const auto it = accounts_.find(owner);
  return it == accounts_.end() ? nullptr : &it->second.promised;
}

std::optional<Bytes> Ledger::Taken(const std::string& owner, const std::string& pool) const {
  const auto it = accounts_.find(owner);
  if (it == accounts_.end()) return std::nullopt;
  const auto taken = it->second.taken.find(pool);
  return taken == it->second.taken.end() ? std::nullopt : std::optional<Bytes>(taken->second);
}

}  // namespace rumbo
