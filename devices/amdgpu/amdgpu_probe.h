#pragma once

#include <string_view>
#include <vector>

#include "devices/amdgpu/amdgpu_facts.h"
#include "devices/pci/pci_facts.h"
#include "devices/sys/root.h"

namespace rumbo {

// Reads amdgpu's files of every AMD GPU in `functions`. Never writes (partition files repartition), and
// never reads what blocks (pcie_bw) or wakes a card.
AmdgpuFacts ReadAmdgpu(const Root& root, const std::vector<PciFunction>& functions);

// Lines "N: text (512 MB)" of uma/carveout_options.
std::vector<CarveoutOption> ParseCarveoutOptions(std::string_view text);

// "gfx1103" for GC 11.0.1; "" where the table does not know it.
std::string GfxTargetOf(const GcVersion& gc);

// What the GC version says about memory: nullopt where the same block is in both kinds (9.4.3) or unknown.
std::optional<bool> GcIsApu(const GcVersion& gc);
// The same by LLVM target, for trees that hold only KFD.
std::optional<bool> GfxIsApu(std::string_view gfx_target);

}  // namespace rumbo
