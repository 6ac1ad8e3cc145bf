#pragma once

#include "devices/api/topology.h"
#include "devices/assemble/facts.h"
#include "devices/chips/chips.h"

namespace rumbo {

// Joins what the probes read into one topology. Pure and deterministic: equal facts give equal topologies.
// Devices are ordered CPU first, then by id; pools by id; findings worst first.
Topology Assemble(const Facts& facts, const ChipTable& chips = ChipTable::BuiltIn());

}  // namespace rumbo
