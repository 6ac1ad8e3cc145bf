#pragma once

#include <optional>
#include <string>
#include <vector>

#include "devices/sys/root.h"

namespace rumbo {

// One NPU as the PCI bus, its driver and its accel node show it.
struct NpuFacts {
  std::string key;                       // PciFunction::key
  std::string node;                      // "accel0"; "" none
  NodeAccess access;                     // /dev/accel/<node>
  std::string vbnv;                      // "RyzenAI-npu5", "NPU Strix Halo"; "" unknown
  std::string fw_version;                // "1.1.2.65"
  std::string firmware_dir;              // amdxdna: "amdnpu/17f0_11"
  std::optional<bool> firmware_present;  // nullopt: /lib/firmware is not there to look into
  std::optional<uint64_t> busy_us;       // intel_vpu, cumulative
  std::optional<uint64_t> memory_used;   // intel_vpu
  std::optional<uint64_t> max_mhz;       // intel_vpu
};

}  // namespace rumbo
