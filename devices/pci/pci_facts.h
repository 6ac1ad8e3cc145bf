#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "devices/sys/root.h"

namespace rumbo {

enum class PciKind { kGpu, kNpu, kVirtualDisplay };

// One function that may compute, from the PCI bus or, where a tree holds no bus, from a DRM card.
struct PciFunction {
  std::string key;      // address, else "card1": unique among the functions of one machine
  std::string address;  // "0000:03:00.0"; "" where the tree does not say
  std::string dir;      // its sysfs folder below the root
  PciKind kind = PciKind::kGpu;
  std::optional<uint32_t> vendor;
  std::optional<uint32_t> device;
  std::optional<uint32_t> revision;
  std::optional<uint32_t> device_class;  // 24 bits: 0x038000
  std::string driver;                    // "" none bound
  std::optional<int> numa_node;
  bool virtual_function = false;       // SR-IOV VF
  bool iommu_group = false;            // behind an IOMMU
  std::string runtime_status;          // "active", "suspended", "" unknown
  std::optional<double> link_bytes_s;  // slowest link between it and the root
  std::string link_source;

  std::string card;                 // "card1", "" none
  std::optional<int> render_minor;  // 128 for renderD128
  NodeAccess render_node;           // /dev/dri/renderD<minor>
};

}  // namespace rumbo
