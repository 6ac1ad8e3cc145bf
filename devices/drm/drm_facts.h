#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace rumbo {

// What a card's kernel driver answered to ioctls on its render node.
struct DrmAnswer {
  std::optional<bool> fusion;        // amdgpu: AMDGPU_IDS_FLAGS_FUSION
  std::optional<Bytes> local_total;  // xe, i915: memory on the card; 0 means it has none
  std::optional<Bytes> local_used;   // nullopt where the kernel hides it from unprivileged callers
  std::string error;                 // why the node could not be asked
};

using DrmFacts = std::map<std::string, DrmAnswer>;  // by PciFunction::key

}  // namespace rumbo
