#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "devices/api/json_fields.h"

// What the vendors' libraries say. Each is asked in a process of its own, which prints these as JSON.
namespace rumbo {

struct VulkanHeap {
  Bytes size = 0;
  std::optional<Bytes> budget, usage;  // VK_EXT_memory_budget, of one process at one moment
  bool device_local = false;
};

struct VulkanDevice {
  int index = 0;  // in vkEnumeratePhysicalDevices: what GGML_VK_VISIBLE_DEVICES counts
  std::string name;
  std::string type;  // "integrated", "discrete", "virtual", "cpu", "other"
  uint32_t vendor = 0, device = 0;
  std::string address;      // PCI; "" unknown
  std::string uuid;         // 32 hexadecimal digits
  std::string driver;       // "radv", "llvmpipe"
  std::string driver_info;  // "Mesa 22.3.6 (LLVM 15.0.6)"
  std::string api_version;
  std::vector<VulkanHeap> heaps;
  bool fp16 = false, bf16 = false, int8_dot = false, matrix = false;
  int subgroup = 0;
};

struct VulkanFacts {
  std::string error;  // "" it worked; devices may still be none
  std::vector<VulkanDevice> devices;
};

struct HipDevice {
  int index = 0;
  std::string name;
  std::string address;
  std::optional<Bytes> total, free;
  // Only rocminfo says these; HIP's own calls for them change between versions.
  std::string gfx_target;
  std::optional<bool> apu;
  std::optional<int> compute_units;
  uint32_t device_id = 0;  // PCI, 0 unknown
};

struct HipFacts {
  std::string error;
  std::string library;  // file that was loaded
  std::string version;  // "6.3.4"
  std::vector<HipDevice> devices;
};

// What small kernels of our own reached on one device; nullopt where that one failed.
struct DeviceMeasurement {
  std::string backend;      // "vulkan", "hip"
  std::string key;          // VulkanDevice::uuid, HipDevice::address
  std::string driver_info;  // measured with this driver or HIP version; another one makes it stale
  std::string name;
  std::optional<double> copy_bytes_s;  // read plus written
  std::optional<double> matmul_flops;  // plain FP32 matrix product: a lower bound
  uint64_t buffer_bytes = 0;
  std::string error;
};

struct Measurements {
  std::string error;
  std::vector<DeviceMeasurement> devices;
};

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, VulkanHeap>
void VisitFields(V& v, T& x) {
  v("size", x.size), v("budget", x.budget), v("usage", x.usage), v("device_local", x.device_local);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, VulkanDevice>
void VisitFields(V& v, T& x) {
  v("index", x.index), v("name", x.name), v("type", x.type), v("vendor", x.vendor), v("device", x.device);
  v("address", x.address), v("uuid", x.uuid), v("driver", x.driver), v("driver_info", x.driver_info);
  v("api_version", x.api_version), v("heaps", x.heaps), v("fp16", x.fp16), v("bf16", x.bf16);
  v("int8_dot", x.int8_dot), v("matrix", x.matrix), v("subgroup", x.subgroup);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, VulkanFacts>
void VisitFields(V& v, T& x) { v("error", x.error), v("devices", x.devices); }

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, HipDevice>
void VisitFields(V& v, T& x) {
  v("index", x.index), v("name", x.name), v("address", x.address), v("total", x.total), v("free", x.free);
  v("gfx_target", x.gfx_target), v("apu", x.apu), v("compute_units", x.compute_units),
      v("device_id", x.device_id);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, HipFacts>
void VisitFields(V& v, T& x) {
  v("error", x.error), v("library", x.library), v("version", x.version), v("devices", x.devices);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, DeviceMeasurement>
void VisitFields(V& v, T& x) {
  v("backend", x.backend), v("key", x.key), v("driver_info", x.driver_info), v("name", x.name);
  v("copy_bytes_s", x.copy_bytes_s);
  v("matmul_flops", x.matmul_flops), v("buffer_bytes", x.buffer_bytes), v("error", x.error);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, Measurements>
void VisitFields(V& v, T& x) { v("error", x.error), v("devices", x.devices); }

}  // namespace rumbo
