#pragma once

#include <string>
#include <string_view>

#include "devices/kfd/kfd_facts.h"

namespace rumbo {

// Reads /sys/class/kfd/kfd/topology/nodes (the whole machine, also inside a container) and whether
// /dev/kfd may be opened. At most 1024 nodes.
KfdFacts ReadKfd(const Root& root);

// 110501 -> "gfx1151": minor and step are hexadecimal digits. "" for 0 and nonsense.
std::string GfxTargetOfKfd(uint64_t version);

}  // namespace rumbo
