#include <fmt/format.h>

#include "devices/pci/pci_probe.h"
#include "devices/vendors/library.h"
#include "devices/vendors/vendors.h"

namespace rumbo {
namespace {

// Only scalar calls: hipDeviceProp_t changed its layout between ROCm 5 and 6.
struct HipApi {
  int (*init)(unsigned);
  int (*device_count)(int*);
  int (*pci_bus_id)(char*, int, int);
  int (*device_name)(char*, int, int);
  int (*total_memory)(size_t*, int);
  int (*set_device)(int);
  int (*memory_info)(size_t*, size_t*);
  int (*runtime_version)(int*);
  const char* (*error_string)(int);
};

// hipErrorNoDevice, hipErrorInvalidDevice: the library works and has nothing to work on.
bool MeansNoDevice(int error) { return error == 100 || error == 101; }

std::string Version(int v) {  // 60342134 = 6.3.42134, 50120531 = 5.1.20531
  return v <= 0 ? "" : fmt::format("{}.{}.{}", v / 10000000, v / 100000 % 100, v % 100000);
}

}  // namespace

HipFacts AskHip() {
  HipFacts out;
  const Library library({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
                         "/opt/rocm/lib/libamdhip64.so"});
  if (!library.ok()) {
    out.error = "libamdhip64 cannot be loaded: " + library.error();
    return out;
  }
  out.library = library.name();
  HipApi api{};
  if (!library.Load(api.init, "hipInit") || !library.Load(api.device_count, "hipGetDeviceCount") ||
      !library.Load(api.pci_bus_id, "hipDeviceGetPCIBusId") || !library.Load(api.device_name, "hipDeviceGetName") ||
      !library.Load(api.total_memory, "hipDeviceTotalMem") || !library.Load(api.set_device, "hipSetDevice") ||
      !library.Load(api.memory_info, "hipMemGetInfo") || !library.Load(api.error_string, "hipGetErrorString")) {
    out.error = out.library + " lacks a symbol that every HIP has";
    return out;
  }
  int version = 0;
  if (library.Load(api.runtime_version, "hipRuntimeGetVersion") && api.runtime_version(&version) == 0) {
    out.version = Version(version);
  }
  int count = 0;
  int error = api.init(0);
  if (error == 0) error = api.device_count(&count);
  if (error != 0) {
    const char* text = api.error_string(error);
    if (MeansNoDevice(error)) out.error = fmt::format("{} finds no GPU that it can use", out.library);
    else out.error = fmt::format("HIP says: {} ({})", text == nullptr ? "unknown error" : text, error);
    return out;
  }
  for (int i = 0; i < count && i < 1024; ++i) {
    HipDevice device;
    device.index = i;
    char text[256] = {};
    if (api.pci_bus_id(text, sizeof text - 1, i) == 0) device.address = PciAddress(text);
    if (api.device_name(text, sizeof text - 1, i) == 0) device.name = text;
    size_t free = 0, total = 0;
    if (api.total_memory(&total, i) == 0) device.total = total;
    if (api.set_device(i) == 0 && api.memory_info(&free, &total) == 0) {
      device.total = total;
      device.free = free < total ? free : total;
    }
    out.devices.push_back(std::move(device));
  }
  return out;
}

}  // namespace rumbo
