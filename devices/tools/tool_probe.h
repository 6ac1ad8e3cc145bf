#pragma once

#include "devices/assemble/facts.h"
#include "devices/sys/root.h"

namespace rumbo {

// What tools printed on a captured machine, kept beside its tree: ROOT/tools/{vulkaninfo,rocminfo,nvidia-smi,
// xrt-smi}.txt and rocm-smi.json. Nothing where `root` is the running machine: that one is asked itself.
struct ToolFacts {
  std::optional<VulkanFacts> vulkan;
  std::optional<HipFacts> hip;
  std::optional<NvidiaFacts> nvidia;
  std::vector<std::pair<PciFunction, AmdgpuCard>> rocm_smi;
  std::vector<std::pair<PciFunction, NpuFacts>> npus;
};

ToolFacts ReadTools(const Root& root);

// Adds what the tree itself did not say.
void MergeTools(const ToolFacts& tools, Facts& facts);

}  // namespace rumbo
