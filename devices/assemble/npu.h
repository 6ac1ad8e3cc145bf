#pragma once

#include "devices/api/topology.h"
#include "devices/assemble/facts.h"
#include "devices/chips/chips.h"

namespace rumbo {

// Every NPU, in whichever state it is: no driver, no node, no firmware, no access, memlock too low, ready.
void AddNpus(const Facts& facts, const ChipTable& chips, Topology& topology);

}  // namespace rumbo
