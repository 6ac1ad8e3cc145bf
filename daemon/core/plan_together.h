#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/planner.h"

namespace rumbo {

// The ledger after `candidate` was reserved and `evicted` were stopped: what is left for the next model.
// Every pool and limit of the topology whose free bytes are known has an entry afterwards.
LedgerSnapshot AfterPlacing(const Topology& topology, LedgerSnapshot ledger, const Candidate& candidate,
                            const std::vector<const EvictionCandidate*>& evicted);

// Places several models on one machine so that all run side by side. Pure, like MakePlan. Tries the orders in
// which they can be placed (all of up to five models, else by size) and takes the one that places most of
// them; among those, the one in which no model is slowed much by the others. Memory is shared exactly; that
// they also compete for bandwidth while they run is not predicted.
//
// Returns one plan per request, in their order, each made against what the others left. A request that
// contradicts itself has its own error, as MakePlan. Evictions are listed in the plan that needs them.
std::vector<absl::StatusOr<Plan>> PlanTogether(const std::vector<PlanRequest>& requests,
                                               const Topology& topology, const EngineCatalog& catalog,
                                               const Calibration& calibration);

}  // namespace rumbo
