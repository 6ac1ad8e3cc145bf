#pragma once

#include "devices/nvidia/nvidia_facts.h"
#include "devices/vendors/vendor_facts.h"

// Questions to vendor libraries, loaded with dlopen. They may crash, hang or leak whatever happens in the
// library: call them only in a process made for it (rumbo-probe --vendor NAME), never in the daemon.
namespace rumbo {

VulkanFacts AskVulkan();
HipFacts AskHip();
NvidiaFacts AskNvml();

}  // namespace rumbo
