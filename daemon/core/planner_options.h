#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/plan.h"
#include "daemon/core/planner.h"
#include "devices/api/topology.h"
#include "engines/api/catalog.h"

// The first half of a plan: what could be tried at all. Internal to the planner.
namespace rumbo {

// One combination to try: a variant on an engine, through a backend, on devices.
struct PlanOption {
  const PlanVariant* variant = nullptr;  // null only for engines that need none
  const CatalogEngine* engine = nullptr;
  const CatalogBackend* backend = nullptr;
  std::string build, version;
  std::vector<const Device*> devices;
  std::vector<const BackendSupport*> access;  // beside `devices`
  std::string maturity;
  std::vector<std::string> notes;               // from the rules, for people
  std::map<std::string, std::string> settings;  // from the rules
  std::map<std::string, std::string> environment;
};

struct PlanOptions {
  std::vector<PlanOption> options;  // in order of preference at ties
  std::vector<Rejected> rejected;
};

// Checks the request against itself and the topology, and fills every default of the workload.
// Errors as MakePlan.
absl::StatusOr<Workload> CompleteWorkload(const PlanRequest& request, const Topology& topology,
                                          const EngineCatalog& catalog);

// Tokens of context one session gets by default: at most what the model was trained for.
uint32_t DefaultContextPerSession(const PlanRequest& request);

PlanOptions EnumerateOptions(const PlanRequest& request, const Topology& topology,
                             const EngineCatalog& catalog);

// A rejection with the names of the option filled in.
Rejected Reject(const PlanOption& option, Reason code, std::string reason);

// The system that the plan is for.
std::string SystemOf(const PlanRequest& request, const Topology& topology);

}  // namespace rumbo
