#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

// What a machine has, as one value: made by the probes (devices/probe), by a hardware profile
// (devices/profiles) or by a test, and read by the planner, the ledger, the CLI and the doctor.
//
// Rules for everything here:
// - Unknown is nullopt or an empty string, never 0 and never a guess. A number that was clamped,
//   assumed or measured says so in the `source` beside it.
// - Identifiers are stable between runs on one machine: "cpu0", "gpu-0000:03:00.0", "npu-0000:c5:00.1",
//   "pool-system", "pool-vram-0000:03:00.0", "pool-carveout-0000:c5:00.0". Never an ordinal of a runtime.
// - Memory is counted once: pools are disjoint physical memory, limits are caps on a pool.
namespace rumbo {

// A number with where it came from: "sysfs mem_info_vram_total", "profile r9700: [source key]",
// "measured here: copy kernel", "formula", "default".
template <typename T>
struct Sourced {
  std::optional<T> value;
  std::string source;
};

enum class DeviceKind { kCpu, kGpu, kNpu };
enum class MemoryKind { kHost, kDiscrete, kUnified, kUnknown };
enum class PoolKind { kSystem, kVram, kCarveout };
enum class LimitKind { kGtt, kTtm, kKfd, kCgroup, kReserve, kOther };

// A cap that several users of a pool share. Never extra memory.
struct MemoryLimit {
  std::string id;  // unique in the topology, e.g. "limit-gtt-0000:c5:00.0", "limit-cgroup"
  LimitKind kind = LimitKind::kOther;
  std::optional<Bytes> max_bytes;
  std::optional<Bytes> used_bytes;  // by every process
  std::vector<std::string>
      devices;  // ids of the devices whose allocations it caps; empty: every user of the pool
  std::vector<std::string> backends;  // backends whose allocations it caps; empty: all
  std::string source;
};

// Physical memory that is counted once.
struct MemoryPool {
  std::string id;
  PoolKind kind = PoolKind::kSystem;
  std::optional<Bytes> total_bytes;
  // What can be given out now: foreign use, page cache that can be given back and the tightest limit
  // are already taken into account; never above total_bytes.
  std::optional<Bytes> free_bytes;
  std::vector<MemoryLimit> limits;
  std::string source;  // evidence for the two numbers
};

// One way to reach a device: "cpu", "vulkan", "hip", "cuda", "xdna", "openvino", "level_zero".
struct BackendSupport {
  std::string name;
  bool usable = false;
  std::string reason;    // why it is not usable, or what it was recognised by
  std::string remedy;    // what a person can do about it; "" when usable
  std::string version;   // driver or runtime version; "" unknown
  std::string selector;  // how this backend names the device ("GGML Vulkan index 0", UUID); "" unknown
  std::vector<std::string> pools;  // pool ids an allocation through this backend may draw on, best first
  // How allocations through this backend fill `pools`: true, all of them together (Vulkan on an APU);
  // false, only the single largest (ROCm on an APU).
  bool may_span_pools = false;
};

struct Device {
  std::string id;
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;    // marketing name where known, else what the driver says
  std::string vendor;  // "AMD", "NVIDIA", "Intel", "Mesa" ...
  MemoryKind memory_kind = MemoryKind::kUnknown;
  std::string memory_kind_rule;    // which rule decided memory_kind
  std::vector<std::string> pools;  // ids of the pools it can use, best first
  std::vector<BackendSupport> backends;

  // Three separate facts. `reason` explains the first that is false, or names the deciding evidence;
  // `remedy` is what a person can do; "" when usable.
  bool present = false;
  bool accessible = false;
  bool usable = false;
  std::string reason;
  std::string remedy;
  std::vector<std::string> evidence;  // "rule: value" lines, in the order they were applied

  // Identity; "" where unknown or meaningless.
  std::string pci_address;   // "0000:03:00.0"
  std::string pci_id;        // "1002:7551"
  std::string pci_revision;  // "c0"
  std::string gfx_target;    // "gfx1201", "sm_120", "" for others
  std::string driver;        // kernel driver
  std::string driver_version;
  std::string parent;  // device id whose memory this partition or instance shares; "" for none

  // A renderer that runs on the CPU (llvmpipe, SwiftShader): listed, never chosen by itself.
  bool software = false;
  // Drives the display next to a stronger card: kept, ranked last, never part of a split by itself.
  bool secondary = false;

  // Speed. Bandwidth in bytes/s, rates in operations/s (dense).
  Sourced<double> bandwidth_bytes_s;
  Sourced<double> fp16_flops;
  Sourced<double> bf16_flops;
  Sourced<double> fp8_flops;
  Sourced<double> int8_ops;
  Sourced<double> fp32_flops;
  Sourced<double> power_watts;              // typical board or package power under load
  Sourced<double> link_bytes_s;             // host link of a discrete device
  std::vector<std::string> number_formats;  // hardware-native: "fp16", "bf16", "fp8", "mxfp4", "int8" ...

  // Compute shape; nullopt where meaningless.
  std::optional<int> compute_units;
  std::optional<int> cores_physical;   // CPU
  std::optional<int> cores_logical;    // CPU, visible
  std::optional<int> threads_allowed;  // CPU: floor(min(quota, affinity, cpuset)), at least 1
  std::string threads_allowed_source;  // which limit decided it
  std::vector<std::string> isa;        // CPU: "avx2", "avx512f", "avx512_bf16", "amx_int8" ...
  std::optional<int> numa_node;
};

enum class Severity { kInfo, kWarning, kBroken };

// One thing the doctor says. `code` is stable ("gpu.no_render_group", "npu.firmware_missing").
struct Finding {
  Severity severity = Severity::kInfo;
  std::string code;
  std::string device;  // device id or ""
  std::string text;
  std::string remedy;
};

// Prices for "what should I buy"; only profiles have them.
struct Price {
  double amount = 0;
  std::string currency;  // ISO 4217
  std::string date;      // ISO 8601
  std::string source;
};

struct Topology {
  std::string source;             // "probe", "profile:r9700", "test"
  std::string system;             // "linux", "windows", "macos"
  std::string name;               // profile's title or host summary
  std::vector<Device> devices;    // ordered: CPU first, then by id
  std::vector<MemoryPool> pools;  // ordered by id
  std::vector<Finding> findings;  // worst first
  std::optional<Price> price;
  std::string interconnect;  // between several GPUs of one machine: "pcie5x16", "xgmi", ""

  const Device* FindDevice(const std::string& id) const {
    for (const Device& d : devices) {
      if (d.id == id) return &d;
    }
    return nullptr;
  }
  const MemoryPool* FindPool(const std::string& id) const {
    for (const MemoryPool& p : pools) {
      if (p.id == id) return &p;
    }
    return nullptr;
  }
};

// "cpu", "gpu", "npu"; "host", "discrete", "unified", "unknown"; "system", "vram", "carveout"; ...: the
// words of JSON and YAML.
const char* Word(DeviceKind kind);
const char* Word(MemoryKind kind);
const char* Word(PoolKind kind);
const char* Word(LimitKind kind);
const char* Word(Severity severity);

}  // namespace rumbo
