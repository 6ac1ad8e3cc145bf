#pragma once

#include <vector>

#include "devices/drm/drm_facts.h"
#include "devices/pci/pci_facts.h"

namespace rumbo {

// Opens the render nodes of amdgpu, xe and i915 cards and asks what only ioctls tell. Suspended cards are
// left alone: opening the node would wake them. Nothing is asked where `root` is not this machine.
DrmFacts ReadDrm(const Root& root, const std::vector<PciFunction>& functions);

}  // namespace rumbo
