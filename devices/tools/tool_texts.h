#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "devices/accel/accel_facts.h"
#include "devices/amdgpu/amdgpu_facts.h"
#include "devices/pci/pci_facts.h"
#include "devices/vendors/vendor_facts.h"

// What people paste into bug reports: the output of vendors' tools, read into the facts that libraries give.
// Names drift between versions, so lines are looked up by their key and unknown ones are skipped.
namespace rumbo {

// `vulkaninfo --summary`, also followed by the memory section of the long form.
VulkanFacts ParseVulkaninfo(std::string_view text);

// `rocminfo`: its GPU agents. CPU agents are left out.
HipFacts ParseRocminfo(std::string_view text);

// `rocm-smi --json` (-a): cards with the memory that sysfs would show. `dir` stays empty.
std::vector<std::pair<PciFunction, AmdgpuCard>> ParseRocmSmi(std::string_view json);

// `xrt-smi examine`: the NPUs that XRT finds. `driver` is set: XRT finds none without it.
std::vector<std::pair<PciFunction, NpuFacts>> ParseXrtSmi(std::string_view text);

}  // namespace rumbo
