#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "devices/api/json_fields.h"

namespace rumbo {

struct MigInstance {
  std::string uuid;  // "MIG-..."; "" where the tool does not say
  std::string name;
  int gpu_instance = -1;
  int compute_instance = -1;
  std::optional<Bytes> total, used;
};

// One GPU as NVML, nvidia-smi or /proc describes it.
struct NvidiaGpu {
  std::string address;  // "0000:83:00.0"
  std::string name;
  std::string uuid;
  std::optional<Bytes> total, used, free, reserved;
  bool memory_not_supported = false;  // asked and told "Not Supported": memory is the system's (GB10)
  std::optional<Bytes> bar1_total;
  std::string compute_capability;  // "9.0"
  std::optional<bool> mig_enabled;
  std::vector<MigInstance> mig;
  std::optional<bool> ecc;
  std::optional<double> power_limit_w;
  std::optional<int> utilization_percent;
  std::optional<int> pcie_generation, pcie_width;  // the best both ends can do
};

struct NvidiaFacts {
  std::string source;  // "nvml", "nvidia-smi", "proc"; "" nothing was readable
  std::string error;   // why a better source failed
  std::string driver_version;
  std::string cuda_version;  // highest the driver supports: "13.1"
  std::vector<NvidiaGpu> gpus;
};

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, MigInstance>
void VisitFields(V& v, T& x) {
  v("uuid", x.uuid), v("name", x.name), v("gpu_instance", x.gpu_instance);
  v("compute_instance", x.compute_instance), v("total", x.total), v("used", x.used);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, NvidiaGpu>
void VisitFields(V& v, T& x) {
  v("address", x.address), v("name", x.name), v("uuid", x.uuid);
  v("total", x.total), v("used", x.used), v("free", x.free), v("reserved", x.reserved);
  v("memory_not_supported", x.memory_not_supported), v("bar1_total", x.bar1_total);
  v("compute_capability", x.compute_capability), v("mig_enabled", x.mig_enabled), v("mig", x.mig);
  v("ecc", x.ecc), v("power_limit_w", x.power_limit_w), v("utilization_percent", x.utilization_percent);
  v("pcie_generation", x.pcie_generation), v("pcie_width", x.pcie_width);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, NvidiaFacts>
void VisitFields(V& v, T& x) {
  v("source", x.source), v("error", x.error), v("driver_version", x.driver_version);
  v("cuda_version", x.cuda_version), v("gpus", x.gpus);
}

}  // namespace rumbo
