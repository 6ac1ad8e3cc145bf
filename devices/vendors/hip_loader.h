#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "devices/pci/pci_probe.h"
#include "devices/vendors/library.h"

namespace rumbo {

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
  int (*allocate)(void**, size_t);
  int (*release)(void*);
  int (*set_bytes)(void*, int, size_t);
  int (*copy_on_device)(void*, void*, size_t, void*);
  int (*copy_to_host)(void*, void*, size_t);
  int (*synchronize)();
  const char* (*error_string)(int);
};

// hipErrorNoDevice, hipErrorInvalidDevice: the library works and has nothing to work on.
inline bool MeansNoDevice(int error) { return error == 100 || error == 101; }

inline std::string HipVersionText(int v) {  // 60342134 = 6.3.42134, 50120531 = 5.1.20531
  return v <= 0 ? "" : fmt::format("{}.{}.{}", v / 10000000, v / 100000 % 100, v % 100000);
}

// The library with its devices counted. `error` is "" where HIP works and has at least one device.
struct Hip {
  Hip()
      : library({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
                 "/opt/rocm/lib/libamdhip64.so"}) {
    if (!library.ok())
      error = "libamdhip64 cannot be loaded: " + library.error();
    else if (!LoadApi())
      error = library.name() + " lacks a symbol that every HIP has";
    else
      Count();
  }

  bool LoadApi() {
    return library.Load(api.init, "hipInit") && library.Load(api.device_count, "hipGetDeviceCount") &&
           library.Load(api.pci_bus_id, "hipDeviceGetPCIBusId") &&
           library.Load(api.device_name, "hipDeviceGetName") &&
           library.Load(api.total_memory, "hipDeviceTotalMem") &&
           library.Load(api.set_device, "hipSetDevice") && library.Load(api.memory_info, "hipMemGetInfo") &&
           library.Load(api.error_string, "hipGetErrorString");
  }

  void Count() {
    int number = 0;
    if (library.Load(api.runtime_version, "hipRuntimeGetVersion") && api.runtime_version(&number) == 0)
      version = HipVersionText(number);
    int code = api.init(0);
    if (code == 0) code = api.device_count(&count);
    if (code == 0) {
      count = std::min(count, 1024);
      return;
    }
    count = 0;
    const char* text = api.error_string(code);
    if (MeansNoDevice(code))
      error = library.name() + " finds no GPU that it can use";
    else
      error = fmt::format("HIP says: {} ({})", text == nullptr ? "unknown error" : text, code);
  }

  std::string Address(int device) const {
    char text[64] = {};
    return api.pci_bus_id(text, sizeof text - 1, device) == 0 ? PciAddress(text) : "";
  }

  Library library;
  HipApi api{};
  std::string error;
  std::string version;
  int count = 0;
};

}  // namespace rumbo
