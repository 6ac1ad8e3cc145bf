#include <algorithm>

#include "devices/vendors/hip_loader.h"
#include "devices/vendors/vendors.h"

namespace rumbo {

HipFacts AskHip() {
  const Hip hip;
  HipFacts out;
  out.error = hip.error;
  out.library = hip.library.name();
  out.version = hip.version;
  for (int i = 0; i < hip.count; ++i) {
    HipDevice device;
    device.index = i;
    device.address = hip.Address(i);
    char text[256] = {};
    if (hip.api.device_name(text, sizeof text - 1, i) == 0) device.name = text;
    size_t free = 0, total = 0;
    if (hip.api.total_memory(&total, i) == 0) device.total = total;
    if (hip.api.set_device(i) == 0 && hip.api.memory_info(&free, &total) == 0) {
      device.total = total;
      device.free = std::min(free, total);
    }
    out.devices.push_back(std::move(device));
  }
  return out;
}

}  // namespace rumbo
