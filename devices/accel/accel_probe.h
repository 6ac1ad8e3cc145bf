#pragma once

#include <vector>

#include "devices/accel/accel_facts.h"
#include "devices/pci/pci_facts.h"

namespace rumbo {

// Reads amdxdna's and intel_vpu's attributes of the NPUs in `functions`, and whether their accel nodes may
// be opened. Opens none.
std::vector<NpuFacts> ReadNpus(const Root& root, const std::vector<PciFunction>& functions);

}  // namespace rumbo
