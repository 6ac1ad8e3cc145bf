#include "devices/assemble/npu.h"

#include <fmt/format.h>

#include "devices/assemble/remedies.h"
#include "devices/pci/pci_probe.h"

namespace rumbo {
namespace {

// Contexts and buffers of an NPU are pinned: less than this and even a small model fails.
constexpr Bytes kLeastMemlock = 64 * kMiB;

struct State {
  bool accessible = false;
  bool usable = false;
  std::string code;  // "" ready
  std::string reason;
  std::string remedy;
};

// The kernel command line's word for a switched-off IOMMU; "" where it is on or unknown.
std::string IommuOff(const std::string& command_line) {
  for (std::string_view word : Words(command_line)) {
    if (word == "amd_iommu=off" || word == "iommu=off" || word == "intel_iommu=off") return std::string(word);
  }
  return "";
}

// "6.8.0-45-generic" against major.minor; false where the kernel is unknown.
bool OlderThan(std::string_view kernel, uint64_t major, uint64_t minor) {
  const size_t dot = kernel.find('.');
  if (dot == std::string_view::npos) return false;
  const size_t end = kernel.find_first_not_of("0123456789", dot + 1);
  const auto a = ParseU64(kernel.substr(0, dot));
  const auto b = ParseU64(kernel.substr(dot + 1, end == std::string_view::npos ? end : end - dot - 1));
  return a && b && (*a < major || (*a == major && *b < minor));
}

State Judge(const Facts& facts, const PciFunction& f, const NpuFacts& npu, const Device& d) {
  State s;
  const std::string iommu = IommuOff(facts.host.command_line);
  const bool amd = d.vendor == "AMD";
  if (amd && !iommu.empty()) {
    return {false, false, "npu.iommu_off", iommu + " on the kernel command line: the NPU needs the IOMMU",
            "Remove " + iommu + " from the kernel command line and reboot."};
  }
  if (f.driver.empty() && amd && OlderThan(facts.host.kernel, 6, 14)) {
    return {false, false, "npu.kernel_too_old",
            "kernel " + facts.host.kernel + " has no driver for it (amdxdna came with 6.14)",
            "Use kernel 6.14 or newer, or AMD's xdna-driver."};
  }
  if (f.driver.empty())
    return {false, false, "npu.no_driver", "no kernel driver is bound to it", DriverRemedy(d)};
  if (npu.node.empty()) {
    if (npu.firmware_present == false) {
      return {
          false, false, "npu.firmware_missing",
          "the driver is bound but made no device: firmware " + npu.firmware_dir + "/npu*.sbin is missing",
          "Install the NPU firmware (linux-firmware, or the one of AMD's xdna-driver), then reload " +
              f.driver + "."};
    }
    return {
        false, false, "npu.no_node", "the driver is bound but made no accel device",
        "Read dmesg for " + f.driver + ": the firmware may not match the driver, or the IOMMU may be off."};
  }
  const std::string path = "/dev/accel/" + npu.node;
  if (!facts.has_dev)
    return {false, false, "npu.no_dev_tree", "this tree has no /dev, so access cannot be told", ""};
  if (!npu.access.exists) {
    return {false, false, "npu.no_device_node", path + " is missing",
            "In a container, pass it in: --device=" + path + "."};
  }
  if (!npu.access.read_write) {
    return {false, false, "npu.no_access", NodeReason(path, npu.access), GroupRemedy(npu.access)};
  }
  s.accessible = true;
  if (amd && !facts.host.memlock_unlimited && facts.host.memlock_limit &&
      *facts.host.memlock_limit < kLeastMemlock) {
    s.code = "npu.memlock_low";
    s.reason = fmt::format("this process may lock only {} of memory", FormatBytes(*facts.host.memlock_limit));
    s.remedy =
        "Raise the limit: LimitMEMLOCK=infinity in the service, or memlock in /etc/security/limits.conf.";
    return s;
  }
  s.usable = true;
  s.reason = path + " is open to this user";
  return s;
}

Device MakeNpu(const Facts& facts, const ChipTable& chips, const PciFunction& f, const NpuFacts& npu) {
  Device d;
  d.kind = DeviceKind::kNpu;
  d.id = "npu-" + f.key;
  d.vendor = f.vendor == 0x8086 ? "Intel" : "AMD";
  d.pci_address = f.address;
  d.pci_id = PciId(f);
  if (f.revision) d.pci_revision = fmt::format("{:02x}", *f.revision & 0xff);
  d.driver = f.driver;
  d.numa_node = f.numa_node;
  d.memory_kind = MemoryKind::kUnified;
  d.memory_kind_rule = "an NPU in the processor uses system memory";
  d.pools = {"pool-system"};
  const Chip* chip = chips.FindPci(d.pci_id, d.pci_revision);
  d.name = chip != nullptr ? chip->name : fmt::format("{} NPU {}", d.vendor, d.pci_id);
  if (chip != nullptr) FillFrom(*chip, "table", d);
  if (f.device_class) d.evidence.push_back(fmt::format("PCI class: {:06x}", *f.device_class));
  if (!npu.vbnv.empty()) d.evidence.push_back("vbnv: " + npu.vbnv);
  if (!npu.fw_version.empty()) d.evidence.push_back("firmware: " + npu.fw_version);
  if (npu.firmware_present)
    d.evidence.push_back(
        fmt::format("firmware files {}: {}", npu.firmware_dir, *npu.firmware_present ? "found" : "missing"));

  d.present = true;
  const State state = Judge(facts, f, npu, d);
  d.accessible = state.accessible;
  d.usable = state.usable;
  d.reason = state.reason;
  d.remedy = state.remedy;
  BackendSupport b;
  b.name = d.vendor == "AMD" ? "xdna" : "openvino";
  b.usable = state.usable;
  b.reason = state.reason;
  b.remedy = state.remedy;
  b.version = npu.fw_version;
  b.selector = npu.node.empty() ? "" : "/dev/accel/" + npu.node;
  b.pools = d.pools;
  d.backends = {std::move(b)};
  return d;
}

}  // namespace

void AddNpus(const Facts& facts, const ChipTable& chips, Topology& topology) {
  for (const NpuFacts& npu : facts.npus) {
    for (const PciFunction& f : facts.pci) {
      if (f.key != npu.key) continue;
      Device d = MakeNpu(facts, chips, f, npu);
      if (!d.usable && facts.has_dev) {
        topology.findings.push_back({Severity::kWarning, Judge(facts, f, npu, d).code, d.id,
                                     d.name + ": " + d.reason + ".", d.remedy});
      }
      topology.devices.push_back(std::move(d));
    }
  }
}

}  // namespace rumbo
