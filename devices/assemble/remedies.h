#pragma once

#include <string>

#include "devices/api/topology.h"
#include "devices/sys/root.h"

namespace rumbo {

// "/dev/kfd is root-owned, group render, mode 0660, and not open to this user".
std::string NodeReason(const std::string& path, const NodeAccess& node);

// Which group to join. A desktop login may have got the node by an ACL that a service does not get.
std::string GroupRemedy(const NodeAccess& node);

// Which driver to load for a device nobody drives.
std::string DriverRemedy(const Device& device);

}  // namespace rumbo
