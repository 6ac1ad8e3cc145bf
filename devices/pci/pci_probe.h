#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "devices/pci/pci_facts.h"

namespace rumbo {

// GPUs, accelerators and NPUs by PCI class (0x03 incl. 0380, 0x12, AMD 0x1180), joined with their DRM nodes.
// Ordered by key. Only sysfs attributes that neither wake a suspended card nor block are read.
std::vector<PciFunction> ReadPci(const Root& root);

// "0000:03:00.0", lower case, from the spellings that tools use ("00000000:03:00.0", "03:00.0",
// "0000:0C:00.0"); "" where `text` is none.
std::string PciAddress(std::string_view text);

// Bytes per second of one direction: ("16.0 GT/s PCIe", "8") -> 15.75e9; nullopt where unknown.
std::optional<double> LinkRate(std::string_view speed, std::string_view width);

// "1002:7551"; "" where either is unknown.
std::string PciId(const PciFunction& function);

}  // namespace rumbo
