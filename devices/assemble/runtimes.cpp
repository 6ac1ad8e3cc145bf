#include "devices/assemble/runtimes.h"

#include <algorithm>

namespace rumbo {
namespace {

bool HasGpu(const Topology& topology, std::string_view vendor) {
  return std::any_of(topology.devices.begin(), topology.devices.end(), [&](const Device& d) {
    return d.kind == DeviceKind::kGpu && (vendor.empty() || d.vendor == vendor);
  });
}

// What in the environment steers runtimes. Engines do not inherit it, so without a device it is a fact only.
void AddEnvironmentFindings(const Facts& facts, Topology& topology) {
  for (const auto& [name, value] : facts.environment) {
    const bool filter = name.find("VISIBLE_DEVICES") != std::string::npos;
    if (name == "HSA_OVERRIDE_GFX_VERSION") {
      if (HasGpu(topology, "AMD")) continue;  // said for the card it lies about
      topology.findings.push_back(
          {Severity::kInfo, "env.hsa_override", "",
           name + "=" + value + " is set, though no AMD GPU is here; engines do not inherit it.", ""});
    } else if (filter) {
      topology.findings.push_back(
          {Severity::kInfo, "env.visible_devices", "",
           name + "=" + value + " is set: the GPUs that it leaves out are not used through that runtime.",
           HasGpu(topology, "") ? "Unset it in the daemon's environment to use all GPUs." : ""});
    } else {
      topology.findings.push_back({Severity::kInfo, "env.ignored", "",
                                   name + "=" + value +
                                       " is set; devices are named by their PCI address "
                                       "here, so it changes nothing.",
                                   ""});
    }
  }
}

}  // namespace

void AddRuntimeFindings(const Facts& facts, Topology& topology) {
  AddEnvironmentFindings(facts, topology);
  const auto say = [&](Severity severity, const char* code, std::string text, std::string remedy) {
    topology.findings.push_back({severity, code, "", std::move(text), std::move(remedy)});
  };
  // Without such a GPU a missing runtime is a fact, not a fault.
  const auto grade = [&](std::string_view vendor) {
    return HasGpu(topology, vendor) ? Severity::kWarning : Severity::kInfo;
  };
  if (facts.vulkan && !facts.vulkan->error.empty()) {
    say(grade(""), "vulkan.unavailable", "Vulkan unavailable: " + facts.vulkan->error + ".",
        HasGpu(topology, "")
            ? "Install the Vulkan loader and a driver (Debian: libvulkan1 mesa-vulkan-drivers)."
            : "");
  }
  if (facts.hip && !facts.hip->error.empty()) {
    say(grade("AMD"), "hip.unavailable", "HIP unavailable: " + facts.hip->error + ".",
        HasGpu(topology, "AMD") ? "Install the ROCm runtime, or use Vulkan." : "");
  }
  if (facts.nvidia && !facts.nvidia->error.empty()) {
    say(grade("NVIDIA"), "nvml.unavailable", "NVML unavailable: " + facts.nvidia->error + ".",
        HasGpu(topology, "NVIDIA") ? "Install the NVIDIA driver's user-space part." : "");
  }
  const bool software = std::any_of(topology.devices.begin(), topology.devices.end(),
                                    [](const Device& d) { return d.software; });
  const bool hardware = std::any_of(topology.devices.begin(), topology.devices.end(), [](const Device& d) {
    return d.kind == DeviceKind::kGpu &&
           std::any_of(d.backends.begin(), d.backends.end(),
                       [](const BackendSupport& b) { return b.name == "vulkan" && b.usable; });
  });
  if (software && !hardware) {
    say(grade(""), "vulkan.software_only", "Vulkan offers only a software renderer, which is not used.",
        HasGpu(topology, "") ? "Check the permissions of /dev/dri and install the GPU's Vulkan driver." : "");
  }
}

}  // namespace rumbo
