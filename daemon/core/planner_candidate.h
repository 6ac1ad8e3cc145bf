#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/core/calibration.h"
#include "daemon/core/placement.h"
#include "daemon/core/plan.h"
#include "daemon/core/planner_options.h"

// The second half of a plan: the best settings of one option, and whether they fit. Internal to the planner.
namespace rumbo {

struct Attempt {
  Candidate candidate;
  Workload workload;                 // with the context it was made for
  std::optional<Shortage> shortage;  // set: does not fit, even after every eviction
  std::vector<std::string> evictions;
  double score = 0;                          // by the objective; less is better
  std::optional<double> loaded_ttft_ms;      // while all sessions begin together, where that was measured
  Reason reason_code = Reason::kDoesNotFit;  // why not, where shortage or `why_not`
  std::string why_not;                       // set: cannot be at all, whatever the room
};

struct PlanInputs {
  const PlanRequest& request;
  const Topology& topology;
  const EngineCatalog& catalog;
  const Calibration& calibration;
  const Workload& workload;  // complete
};

// What the formulas say of one request on a placement that MakePlan made, before any correction, with
// `in.workload` as it really was; `in.request` names the variants. Empty where the placement is none of its
// options any more.
Predicted PredictRun(const PlanInputs& in, const Candidate& placement);

// What measurements of this option are filed under.
CalibrationKey KeyOf(const PlanOption& option);

// Tries placements, cache types, drafts and, where the context was left open, shorter contexts, and returns
// the best that fits, or else the nearest that does not.
Attempt TryOption(const PlanInputs& in, const PlanOption& option);

// The same with a fixed context, whatever the request says; for "the nearest that would fit".
Attempt TryOptionAt(const PlanInputs& in, const PlanOption& option, uint32_t context, uint32_t sessions);

// True where a placement of this size fits, without looking for the best one.
bool FitsAt(const PlanInputs& in, const PlanOption& option, uint32_t context, uint32_t sessions);

// A score that is worse than every known one: the figure that the objective needs is unknown.
inline constexpr double kUnknownScore = 1e12;

}  // namespace rumbo
