#include "devices/accel/accel_probe.h"

#include <fmt/format.h>

#include "devices/pci/pci_probe.h"

namespace rumbo {
namespace {

constexpr uint32_t kAmd = 0x1022;

// The accel node that hangs off `function`.
std::string NodeOf(const Root& root, const PciFunction& function) {
  for (const std::string& name : root.List(function.dir + "/accel")) {
    if (name.starts_with("accel")) return name;
  }
  for (const std::string& name : root.List("/sys/class/accel")) {
    if (name == function.key) return name;
    const std::string dir = "/sys/class/accel/" + name + "/device";
    std::string address = PciAddress(root.LinkName(dir));
    if (address.empty()) {
      const FileText uevent = root.Read(dir + "/uevent");
      for (std::string_view line : Lines(uevent.text)) {
        if (line.starts_with("PCI_SLOT_NAME=")) address = PciAddress(line.substr(14));
      }
    }
    if (!address.empty() && address == function.address) return name;
  }
  return "";
}

void ReadFirmware(const Root& root, const PciFunction& function, NpuFacts& npu) {
  if (function.vendor != kAmd || !function.device) return;
  npu.firmware_dir = fmt::format("amdnpu/{:04x}_{:02x}", *function.device, function.revision.value_or(0));
  bool looked = false;
  for (const char* base : {"/lib/firmware", "/usr/lib/firmware", "/lib/firmware/updates"}) {
    if (!root.Exists(base)) continue;
    looked = true;
    for (const std::string& file : root.List(std::string(base) + "/" + npu.firmware_dir)) {
      // "npu.sbin", "npu_7.sbin", "npu.sbin.1.5.2.380", also compressed (.zst, .xz)
      if (file.starts_with("npu") && file.find(".sbin") != std::string::npos) npu.firmware_present = true;
    }
  }
  if (looked && !npu.firmware_present) npu.firmware_present = false;
}

}  // namespace

std::vector<NpuFacts> ReadNpus(const Root& root, const std::vector<PciFunction>& functions) {
  std::vector<NpuFacts> out;
  for (const PciFunction& f : functions) {
    if (f.kind != PciKind::kNpu) continue;
    NpuFacts npu;
    npu.key = f.key;
    npu.node = NodeOf(root, f);
    if (!npu.node.empty()) npu.access = root.Access("/dev/accel/" + npu.node);
    const auto text = [&](const char* name) { return root.Read(f.dir + "/" + name).text.substr(0, 100); };
    npu.vbnv = text("vbnv");
    npu.fw_version = text("fw_version");
    npu.busy_us = ParseU64(text("npu_busy_time_us"));
    npu.memory_used = ParseU64(text("npu_memory_utilization"));
    npu.max_mhz = ParseU64(text("npu_max_frequency_mhz"));
    ReadFirmware(root, f, npu);
    out.push_back(std::move(npu));
  }
  return out;
}

}  // namespace rumbo
