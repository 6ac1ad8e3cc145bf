#pragma once

#include <string>
#include <vector>

#include "devices/assemble/gpu_records.h"
#include "devices/chips/chips.h"

namespace rumbo {

struct MemoryVerdict {
  MemoryKind kind = MemoryKind::kUnknown;
  std::string rule;                   // which rule decided
  std::vector<std::string> evidence;  // every rule that had something to say, in order
};

// Discrete or unified, by ordered rules: the first decisive one wins, later ones are kept as evidence.
//   1 the driver's own flag (amdgpu FUSION; xe and i915 memory regions; rocminfo; NVML "Not Supported")
//   2 tables of PCI ids and GC versions
//   3 sysfs: uma/ means unified, board_info or a VRAM vendor discrete
//   4 the Vulkan device type of the same PCI address
//   5 the bus: Intel's 00:02.0 is in the CPU; NVIDIA outside the table is a card
//   6 size: a carve-out up to 4 GiB beside a GTT of at least 8 GiB and four times it
// Never: VRAM size alone, visible VRAM, the CPU's name.
MemoryVerdict DecideMemoryKind(const GpuRecord& record, const Chip* chip);

}  // namespace rumbo
