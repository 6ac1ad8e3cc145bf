#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

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
  int (*allocate)(void**, size_t);
  int (*release)(void*);
  int (*set_bytes)(void*, int, size_t);
  int (*copy_on_device)(void*, void*, size_t, void*);
  int (*copy_to_host)(void*, void*, size_t);
  int (*synchronize)();
  const char* (*error_string)(int);
};

// hipErrorNoDevice, hipErrorInvalidDevice: the library works and has nothing to work on.
bool MeansNoDevice(int error) { return error == 100 || error == 101; }

std::string Version(int v) {  // 60342134 = 6.3.42134, 50120531 = 5.1.20531
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
      version = Version(number);
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

}  // namespace

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

namespace {

constexpr size_t kCopyBytes = 256 * kMiB;
constexpr unsigned char kPattern = 0x5a;

// Bytes per second, read plus written: the best of ten batches of ten copies. nullopt and `error` on failure.
std::optional<double> TimeCopy(const HipApi& api, void* from, void* to, std::string& error) {
  double best = 0;
  for (int batch = 0; batch < 11; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) {
      if (api.copy_on_device(to, from, kCopyBytes, nullptr) != 0) error = "hipMemcpyDtoDAsync failed";
    }
    if (api.synchronize() != 0) error = "hipDeviceSynchronize failed";
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!error.empty()) return std::nullopt;
    if (batch > 0 && seconds > 0) best = std::max(best, 2.0 * kCopyBytes * 10 / seconds);
  }
  unsigned char last = 0;
  if (api.copy_to_host(&last, static_cast<char*>(to) + kCopyBytes - 1, 1) != 0 || last != kPattern) {
    error = "the copy's result is wrong";
    return std::nullopt;
  }
  return std::round(best);
}

}  // namespace

Measurements MeasureHip() {
  Hip hip;
  Measurements out;
  out.error = hip.error;
  HipApi& api = hip.api;
  if (out.error.empty() &&
      (!hip.library.Load(api.allocate, "hipMalloc") || !hip.library.Load(api.release, "hipFree") ||
       !hip.library.Load(api.set_bytes, "hipMemset") ||
       !hip.library.Load(api.copy_on_device, "hipMemcpyDtoDAsync") ||
       !hip.library.Load(api.copy_to_host, "hipMemcpyDtoH") ||
       !hip.library.Load(api.synchronize, "hipDeviceSynchronize"))) {
    out.error = hip.library.name() + " lacks a symbol that every HIP has";
  }
  for (int i = 0; out.error.empty() && i < hip.count; ++i) {
    Measurement m;
    m.backend = "hip";
    m.key = hip.Address(i);
    m.driver_info = hip.version;
    void *from = nullptr, *to = nullptr;
    if (api.set_device(i) != 0 || api.allocate(&from, kCopyBytes) != 0 ||
        api.allocate(&to, kCopyBytes) != 0 || api.set_bytes(from, kPattern, kCopyBytes) != 0) {
      m.error = "no room for two buffers of " + FormatBytes(kCopyBytes);
    } else {
      m.copy_bytes_s = TimeCopy(api, from, to, m.error);
      m.buffer_bytes = kCopyBytes;
    }
    if (from != nullptr) api.release(from);
    if (to != nullptr) api.release(to);
    out.devices.push_back(std::move(m));
  }
  return out;
}

}  // namespace rumbo
