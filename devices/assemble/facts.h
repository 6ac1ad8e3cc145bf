#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "devices/accel/accel_facts.h"
#include "devices/amdgpu/amdgpu_facts.h"
#include "devices/api/topology.h"
#include "devices/cpu/bandwidth.h"
#include "devices/cpu/host_facts.h"
#include "devices/drm/drm_facts.h"
#include "devices/kfd/kfd_facts.h"
#include "devices/nvidia/nvidia_facts.h"
#include "devices/pci/pci_facts.h"
#include "devices/vendors/vendor_facts.h"

namespace rumbo {

// Everything the probes read, before anything is concluded from it. Each probe fills its own part only;
// Assemble() draws the conclusions.
struct Facts {
  bool live = true;     // of the running machine; false: of a captured or synthetic tree
  bool has_dev = true;  // the tree has a /dev to tell access by
  HostFacts host;
  std::optional<BandwidthMeasurement> cpu_bandwidth;

  std::vector<PciFunction> pci;
  AmdgpuFacts amdgpu;
  KfdFacts kfd;
  DrmFacts drm;
  std::vector<NpuFacts> npus;

  // Vendor libraries; nullopt: not asked, `error` inside: asked in vain.
  std::optional<VulkanFacts> vulkan;
  std::optional<HipFacts> hip;
  std::optional<NvidiaFacts> nvidia;
  NodeAccess nvidia_node;  // /dev/nvidiactl

  std::vector<DeviceMeasurement> measured;  // what our kernels reached here, now or earlier

  // What steers vendor runtimes: HSA_OVERRIDE_GFX_VERSION, HIP_VISIBLE_DEVICES ... as set for this process.
  std::map<std::string, std::string> environment;
  std::vector<Finding> findings;  // probes that failed or were late
};

}  // namespace rumbo
