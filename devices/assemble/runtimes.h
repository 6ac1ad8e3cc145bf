#pragma once

#include "devices/api/topology.h"
#include "devices/assemble/facts.h"

namespace rumbo {

// What the doctor says about Vulkan, HIP and NVML themselves.
void AddRuntimeFindings(const Facts& facts, Topology& topology);

}  // namespace rumbo
