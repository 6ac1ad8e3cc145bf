#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/plan.h"
#include "daemon/core/planner.h"
#include "devices/api/topology.h"

// Free bytes of pools and limits, and charging a candidate to them. Pure.
namespace rumbo {

// What lacks room, by how much.
struct Shortage {
  std::string pool;  // pool or limit id
  Bytes missing = 0;
};

class Room {
 public:
  Room(const Topology& topology, const LedgerSnapshot& ledger);

  // Free bytes of a pool; nullopt where nobody knows.
  std::optional<Bytes> PoolFree(const std::string& pool) const;
  // Free bytes for allocations of `device` through `backend` in `pool`: the pool and every limit that
  // applies.
  std::optional<Bytes> FreeFor(const std::string& pool, const std::string& device,
                               const std::string& backend) const;

  void Release(const EvictionCandidate& instance);
  // The largest shortage where the candidate's reservations do not fit.
  std::optional<Shortage> Lacks(const Candidate& candidate) const;

 private:
  const Topology& topology_;
  std::map<std::string, Bytes> pools_, limits_;
};

// Adds `bytes` of `what`, allocated by `device` through `backend`, to the candidate: split over the backend's
// pools as the backend fills them, with the limits that apply. Returns false where the device has no pool.
bool Reserve(const Topology& topology, const Room& room, const Device& device, const BackendSupport& backend,
             const std::string& what, Bytes bytes, Candidate& candidate);

// The same for plain host memory.
void ReserveHost(const Topology& topology, const std::string& what, Bytes bytes, Candidate& candidate);

// The pool of plain host memory; nullptr where the topology has none.
const MemoryPool* SystemPool(const Topology& topology);

}  // namespace rumbo
