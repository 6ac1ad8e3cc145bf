#include "devices/assemble/remedies.h"

#include <fmt/format.h>

namespace rumbo {

std::string NodeReason(const std::string& path, const NodeAccess& node) {
  return fmt::format("{} (uid {}, group {}, mode {:04o}) is not open to this user", path, node.uid,
                     node.group, node.mode);
}

std::string GroupRemedy(const NodeAccess& node) {
  if (node.gid == 0 || (node.mode & 0060) != 0060) {
    return "Check the udev rules: the node should be group render, mode 0660.";
  }
  return fmt::format(
      "Add the daemon's user to the group {0} (sudo usermod -aG {0} USER), then log in again or restart the "
      "service.",
      node.group);
}

std::string DriverRemedy(const Device& device) {
  if (device.kind == DeviceKind::kNpu) {
    return device.vendor == "AMD" ? "Load amdxdna (kernel 6.14 or newer, or AMD's xdna-driver)."
                                  : "Load intel_vpu (kernel 6.6 or newer).";
  }
  if (device.vendor == "AMD") return "Load amdgpu, or use a kernel new enough for this GPU.";
  if (device.vendor == "NVIDIA") return "Install NVIDIA's driver.";
  if (device.vendor == "Intel") return "Load xe or i915, or use a kernel new enough for this GPU.";
  return "Install its kernel driver.";
}

}  // namespace rumbo
