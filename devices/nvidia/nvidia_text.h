#pragma once

#include <string_view>

#include "devices/nvidia/nvidia_facts.h"
#include "devices/sys/root.h"

namespace rumbo {

// What `nvidia-smi -q -x`, `nvidia-smi -q` or plain `nvidia-smi` printed; which one is told by the text.
// "[N/A]", "N/A" and unknown units stay unknown; "Not Supported" and a plain N/A for memory mean that the
// card has none of its own.
NvidiaFacts ParseNvidiaSmi(std::string_view text);

// /proc/driver/nvidia: names and addresses without memory, for machines where neither NVML nor nvidia-smi
// answers.
NvidiaFacts ReadNvidiaProc(const Root& root);

}  // namespace rumbo
