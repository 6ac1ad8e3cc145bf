#pragma once

#include <optional>
#include <string>
#include <vector>

#include "devices/api/topology.h"
#include "devices/cpu/bandwidth.h"
#include "devices/cpu/host_facts.h"

namespace rumbo {

// Everything the probes read, before anything is concluded from it. Each probe writes its own part only,
// so probes may run side by side; Assemble() draws the conclusions.
struct Facts {
  HostFacts host;
  std::optional<BandwidthMeasurement> cpu_bandwidth;
  std::vector<Finding> findings;  // probes that failed or were late
};

}  // namespace rumbo
