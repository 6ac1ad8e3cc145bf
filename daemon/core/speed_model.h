#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/core/memory_model.h"
#include "daemon/core/plan.h"
#include "devices/api/topology.h"
#include "engines/api/catalog.h"

// How fast a placement will be: bytes and operations of a step against the device's peaks, times the
// catalog's efficiencies. Pure.
namespace rumbo {

// One side's share of a step.
struct SpeedSide {
  const Device* device = nullptr;
  double share = 1;              // of the layers
  bool host = false;             // layers kept in host memory beside an accelerator
  double bandwidth_bytes_s = 0;  // where the device's own is unknown; 0: unknown too
};

struct SpeedInput {
  const ModelDescriptor* model = nullptr;
  const EngineCatalog* catalog = nullptr;
  const CatalogEngine* engine = nullptr;
  std::string backend, build;
  std::vector<SpeedSide> sides;  // one after the other, as layers are
  CacheShape shape;
  uint32_t sessions = 1;
  uint32_t prompt_tokens = 512;
  uint32_t answer_tokens = 256;
  uint32_t threads = 0;  // CPU threads; 0: all allowed
  std::optional<double> draft_acceptance;
  double link_bytes_s = 0;  // between devices of a split; 0 unknown
};

struct SpeedEstimate {
  Predicted predicted;                   // without what is unknown
  std::vector<std::string> assumptions;  // sentences for the plan's reasons
};

SpeedEstimate EstimateSpeed(const SpeedInput& input);

// The row of constants for this combination; nullptr where there is none.
const SpeedRow* FindSpeedRow(const EngineCatalog& catalog, const std::string& engine,
                             const std::string& backend, const std::string& build, const std::string& weights,
                             const Device& device);

// Tokens that one verification step yields on average with `drafts` drafted tokens, each accepted with
// `acceptance`.
double TokensPerStep(double acceptance, uint32_t drafts);

}  // namespace rumbo
