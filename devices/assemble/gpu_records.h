#pragma once

#include <string>
#include <vector>

#include "devices/assemble/facts.h"

namespace rumbo {

// One GPU (or partition of one) with all that the probes said about it. Pointers go into the Facts.
struct GpuRecord {
  std::string key;      // PCI address, else what is stable: "card1", "render128"
  std::string address;  // "" unknown
  std::string parent;   // key of the card this is a partition of; "" a card of its own
  const PciFunction* pci = nullptr;
  const AmdgpuCard* amd = nullptr;
  const KfdNode* kfd = nullptr;
  const DrmAnswer* drm = nullptr;
  const VulkanDevice* vulkan = nullptr;  // a hardware device, never a software renderer
  const HipDevice* hip = nullptr;
  const NvidiaGpu* nvidia = nullptr;
};

// Joins by PCI address; by ids only where an address is missing and the match is unique. Never by a runtime's
// ordinal or by name. Ordered by key.
std::vector<GpuRecord> JoinGpus(const Facts& facts);

// True for llvmpipe, SwiftShader and their kind: a Vulkan device that computes on the CPU.
bool IsSoftware(const VulkanDevice& device);

}  // namespace rumbo
