#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "daemon/core/planner.h"
#include "devices/api/topology.h"

namespace rumbo {

// Bytes by pool id and by limit id.
struct Reservation {
  std::map<std::string, Bytes> pools;
  std::map<std::string, Bytes> limits;
};

// The one account of physical memory: what the machine says is free, less what is promised and not yet taken.
//
//   free(pool) = reported free + taken by our processes - promised - reserve for the OS
//
// so that a promise counts once, before and after it is taken. Threading: the core's executor. Pure but for
// its state.
class Ledger {
 public:
  // Bytes of the `system` pool that are never given out, and how many are at most (0: no bound).
  explicit Ledger(Bytes system_reserve = 0, Bytes system_limit = 0)
      : system_reserve_(system_reserve), system_limit_(system_limit) {}

  // Takes the pools and limits of the machine. Promises stay. Bumps the generation.
  void SetTopology(const Topology& topology);

  // Promises memory to `owner` (an instance id), atomically: all of it or kResourceExhausted (kDoesNotFit)
  // with the pool or limit and the bytes missing. `force` promises in any case.
  absl::Status Reserve(const std::string& owner, const Reservation& wanted, bool force = false);

  // After the load: the promise becomes the larger of the two, entry by entry.
  void Confirm(const std::string& owner, const Reservation& really);

  // What `owner`'s processes hold by now, by pool; so much of its promise is no longer in "reported free".
  void SetTaken(const std::string& owner, const std::map<std::string, Bytes>& pools);

  // What other daemons of this machine have promised and not yet taken, by pool: foreign use.
  void SetForeign(std::map<std::string, Bytes> pools);

  void Release(const std::string& owner);

  LedgerSnapshot Snapshot() const;
  Bytes Promised(const std::string& pool) const;
  const Reservation* Find(const std::string& owner) const;
  // As last told by SetTaken; nullopt where that is unknown.
  std::optional<Bytes> Taken(const std::string& owner, const std::string& pool) const;

 private:
  struct Account {
    Reservation promised;
    std::map<std::string, Bytes> taken;
  };
  Bytes FreeInPool(const MemoryPool& pool) const;
  Bytes FreeInLimit(const MemoryLimit& limit, const MemoryPool& pool) const;

  const Bytes system_reserve_;
  const Bytes system_limit_;
  std::vector<MemoryPool> pools_;
  std::map<std::string, Account> accounts_;
  std::map<std::string, Bytes> foreign_;
  uint64_t generation_ = 0;
};

}  // namespace rumbo
