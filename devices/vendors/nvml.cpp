#include <fmt/format.h>

#include "devices/pci/pci_probe.h"
#include "devices/vendors/library.h"
#include "devices/vendors/vendors.h"

namespace rumbo {
namespace {

// NVML's stable C interface, as far as it is used here.
using Handle = void*;
constexpr int kNotSupported = 3;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Bar1 {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};

struct Api {
  int (*init)();
  const char* (*error_string)(int);
  int (*driver_version)(char*, unsigned);
  int (*cuda_version)(int*);
  int (*count)(unsigned*);
  int (*by_index)(unsigned, Handle*);
  int (*name)(Handle, char*, unsigned);
  int (*uuid)(Handle, char*, unsigned);
  int (*pci)(Handle, PciInfo*);
  int (*memory)(Handle, Memory*);
  // These may be missing in old drivers.
  int (*memory_v2)(Handle, MemoryV2*);
  int (*bar1)(Handle, Bar1*);
  int (*capability)(Handle, int*, int*);
  int (*mig_mode)(Handle, unsigned*, unsigned*);
  int (*mig_count)(Handle, unsigned*);
  int (*mig_by_index)(Handle, unsigned, Handle*);
  int (*gpu_instance)(Handle, unsigned*);
  int (*compute_instance)(Handle, unsigned*);
  int (*ecc)(Handle, int*, int*);
  int (*power_limit)(Handle, unsigned*);
  int (*utilization)(Handle, Utilization*);
  int (*link_generation)(Handle, unsigned*);
  int (*link_width)(Handle, unsigned*);
};

bool LoadApi(const Library& l, Api& api) {
  l.Load(api.cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
  l.Load(api.memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  l.Load(api.bar1, "nvmlDeviceGetBAR1MemoryInfo");
  l.Load(api.capability, "nvmlDeviceGetCudaComputeCapability");
  l.Load(api.mig_mode, "nvmlDeviceGetMigMode");
  l.Load(api.mig_count, "nvmlDeviceGetMaxMigDeviceCount");
  l.Load(api.mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex");
  l.Load(api.gpu_instance, "nvmlDeviceGetGpuInstanceId");
  l.Load(api.compute_instance, "nvmlDeviceGetComputeInstanceId");
  l.Load(api.ecc, "nvmlDeviceGetEccMode");
  l.Load(api.power_limit, "nvmlDeviceGetPowerManagementDefaultLimit");
  l.Load(api.utilization, "nvmlDeviceGetUtilizationRates");
  l.Load(api.link_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  l.Load(api.link_width, "nvmlDeviceGetMaxPcieLinkWidth");
  return l.Load(api.init, "nvmlInit_v2") && l.Load(api.error_string, "nvmlErrorString") &&
         l.Load(api.driver_version, "nvmlSystemGetDriverVersion") &&
         l.Load(api.count, "nvmlDeviceGetCount_v2") &&
         l.Load(api.by_index, "nvmlDeviceGetHandleByIndex_v2") && l.Load(api.name, "nvmlDeviceGetName") &&
         l.Load(api.uuid, "nvmlDeviceGetUUID") && l.Load(api.pci, "nvmlDeviceGetPciInfo_v3") &&
         l.Load(api.memory, "nvmlDeviceGetMemoryInfo");
}

// NOT_SUPPORTED sets `unsupported`.
void ReadMemory(const Api& api, Handle h, NvidiaGpu& gpu) {
  MemoryV2 v2{};
  v2.version = static_cast<unsigned>(sizeof(MemoryV2)) | (2u << 24);
  if (api.memory_v2 != nullptr && api.memory_v2(h, &v2) == 0) {
    gpu.total = v2.total, gpu.reserved = v2.reserved, gpu.free = v2.free, gpu.used = v2.used;
    return;
  }
  Memory v1{};
  const int error = api.memory(h, &v1);
  gpu.memory_not_supported = error == kNotSupported;
  if (error == 0) gpu.total = v1.total, gpu.free = v1.free, gpu.used = v1.used;
}

void ReadMig(const Api& api, Handle h, NvidiaGpu& gpu) {
  unsigned current = 0, pending = 0, count = 0;
  if (api.mig_mode == nullptr || api.mig_mode(h, &current, &pending) != 0) return;
  gpu.mig_enabled = current == 1;
  if (!*gpu.mig_enabled || api.mig_count == nullptr || api.mig_by_index == nullptr) return;
  if (api.mig_count(h, &count) != 0) return;
  for (unsigned i = 0; i < count && i < 64; ++i) {
    Handle instance = nullptr;
    if (api.mig_by_index(h, i, &instance) != 0) continue;  // a free slot
    MigInstance mig;
    char text[256] = {};
    if (api.uuid(instance, text, sizeof text - 1) == 0) mig.uuid = text;
    if (api.name(instance, text, sizeof text - 1) == 0) mig.name = text;
    unsigned id = 0;
    if (api.gpu_instance != nullptr && api.gpu_instance(instance, &id) == 0)
      mig.gpu_instance = static_cast<int>(id);
    if (api.compute_instance != nullptr && api.compute_instance(instance, &id) == 0) {
      mig.compute_instance = static_cast<int>(id);
    }
    Memory memory{};
    if (api.memory(instance, &memory) == 0) mig.total = memory.total, mig.used = memory.used;
    gpu.mig.push_back(std::move(mig));
  }
}

NvidiaGpu ReadGpu(const Api& api, Handle h) {
  NvidiaGpu gpu;
  char text[256] = {};
  PciInfo pci{};
  if (api.pci(h, &pci) == 0) gpu.address = PciAddress(pci.bus_id);
  if (api.name(h, text, sizeof text - 1) == 0) gpu.name = text;
  if (api.uuid(h, text, sizeof text - 1) == 0) gpu.uuid = text;
  ReadMemory(api, h, gpu);
  ReadMig(api, h, gpu);
  Bar1 bar1{};
  if (api.bar1 != nullptr && api.bar1(h, &bar1) == 0) gpu.bar1_total = bar1.total;
  int major = 0, minor = 0;
  if (api.capability != nullptr && api.capability(h, &major, &minor) == 0) {
    gpu.compute_capability = fmt::format("{}.{}", major, minor);
  }
  int on = 0, pending = 0;
  if (api.ecc != nullptr && api.ecc(h, &on, &pending) == 0) gpu.ecc = on == 1;
  unsigned n = 0;
  if (api.power_limit != nullptr && api.power_limit(h, &n) == 0 && n > 0) gpu.power_limit_w = n / 1000.0;
  if (api.link_generation != nullptr && api.link_generation(h, &n) == 0)
    gpu.pcie_generation = static_cast<int>(n);
  if (api.link_width != nullptr && api.link_width(h, &n) == 0) gpu.pcie_width = static_cast<int>(n);
  Utilization use{};
  if (api.utilization != nullptr && api.utilization(h, &use) == 0 && use.gpu <= 100) {
    gpu.utilization_percent = static_cast<int>(use.gpu);
  }
  return gpu;
}

}  // namespace

NvidiaFacts AskNvml() {
  NvidiaFacts out;
  const Library library({"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"});
  if (!library.ok()) {
    out.error = "NVML cannot be loaded: " + library.error();
    return out;
  }
  Api api{};
  if (!LoadApi(library, api)) {
    out.error = "libnvidia-ml.so.1 lacks a symbol that every NVML has";
    return out;
  }
  unsigned count = 0;
  int error = api.init();
  if (error == 0) error = api.count(&count);
  if (error != 0) {
    const char* text = api.error_string(error);
    out.error = fmt::format("NVML says: {} ({})", text == nullptr ? "unknown error" : text, error);
    return out;
  }
  out.source = "nvml";
  char text[128] = {};
  if (api.driver_version(text, sizeof text - 1) == 0) out.driver_version = text;
  int cuda = 0;
  if (api.cuda_version != nullptr && api.cuda_version(&cuda) == 0 && cuda > 0) {
    out.cuda_version = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  }
  for (unsigned i = 0; i < count && i < 1024; ++i) {
    Handle h = nullptr;
    if (api.by_index(i, &h) == 0) out.gpus.push_back(ReadGpu(api, h));
  }
  return out;
}

}  // namespace rumbo
