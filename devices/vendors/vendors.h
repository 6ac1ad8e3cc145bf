#pragma once

#include "devices/nvidia/nvidia_facts.h"
#include "devices/vendors/vendor_facts.h"

// Questions to vendor libraries, loaded with dlopen. They may crash, hang or leak whatever happens in the
// library: call them only in a process made for it (rumbo-probe --vendor NAME), never in the daemon.
namespace rumbo {

VulkanFacts AskVulkan();
HipFacts AskHip();
NvidiaFacts AskNvml();

// Times a copy kernel and a matrix kernel on every Vulkan device, one after the other, each well under a
// second on hardware. The results of both kernels are checked before their times count.
Measurements MeasureVulkan();

// Times a copy from device memory to device memory on every HIP device. No matrix kernel: that needs a
// compiler (hiprtc) of the same ROCm.
Measurements MeasureHip();

}  // namespace rumbo
