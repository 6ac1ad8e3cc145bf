#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/core/planner.h"
#include "daemon/core/types.h"

namespace rumbo {

struct AdviceOptions {
  std::string
      currency;  // ISO 4217; "": each price as it is. Nothing is converted: another currency is no price
  std::optional<double> budget;  // machines with a price above it are left out
};

// Plans every request on every machine ("what runs, how well, at which price"), all processors at once. Rows
// are ordered by request, then machine. A machine that cannot be asked (a request that contradicts itself
// there) has a plan with a refusal that says so. Pure apart from the threads it borrows; blocks for the
// length of the work.
std::vector<AdviceRow> AdviseOver(const std::vector<PlanRequest>& requests,
                                  const std::vector<Topology>& machines, const EngineCatalog& catalog,
                                  const Calibration& calibration, const AdviceOptions& options);

// Memory of a machine that its accelerators can use, in GiB: the cards' own, or the largest part that an
// integrated GPU may take. 0 where there is none or nobody knows.
double AcceleratorGib(const Topology& machine);

}  // namespace rumbo
