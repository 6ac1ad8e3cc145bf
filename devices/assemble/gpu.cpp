#include "devices/assemble/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "devices/amdgpu/amdgpu_probe.h"
#include "devices/assemble/memory_kind.h"
#include "devices/pci/pci_probe.h"

namespace rumbo {
namespace {

// Desktop parts with a display core beside real cards have this many CUs or fewer.
constexpr int kDisplayCoreUnits = 4;

std::string VendorName(uint32_t id) {
  switch (id) {
    case 0x1002:
    case 0x1022:
      return "AMD";
    case 0x10de:
      return "NVIDIA";
    case 0x8086:
      return "Intel";
    case 0x10005:
      return "Mesa";
    default:
      return fmt::format("{:04x}", id);
  }
}

// "AMD Radeon 8060S Graphics (RADV GFX1151)" without the driver's part.
std::string WithoutDriver(const std::string& name) {
  const size_t open = name.rfind(" (");
  return open != std::string::npos && name.ends_with(')') ? name.substr(0, open) : name;
}

// What the runtimes call it; "" where they do not know ("AMD Radeon Graphics").
std::string RuntimeName(const GpuRecord& r) {
  const std::string vulkan = r.vulkan == nullptr ? "" : WithoutDriver(r.vulkan->name);
  if (!vulkan.empty() && vulkan != "AMD Radeon Graphics") return vulkan;
  if (r.hip != nullptr && r.hip->name != "AMD Radeon Graphics") return r.hip->name;
  return "";
}

std::string GpuName(const GpuRecord& r, const Chip* chip, const Device& d) {
  if (r.nvidia != nullptr && !r.nvidia->name.empty()) return r.nvidia->name;
  if (chip != nullptr && !chip->revisions.empty()) return chip->name;
  if (r.amd != nullptr && !r.amd->product_name.empty()) return r.amd->product_name;
  if (const std::string name = RuntimeName(r); !name.empty()) return name;
  if (chip != nullptr) return chip->name;
  if (r.vulkan != nullptr && !r.vulkan->name.empty()) return WithoutDriver(r.vulkan->name);
  if (r.hip != nullptr && !r.hip->name.empty()) return r.hip->name;
  return fmt::format("{} GPU{}{}", d.vendor, d.pci_id.empty() ? "" : " ", d.pci_id);
}

void SetIds(const GpuRecord& r, Device& d) {
  uint32_t vendor = 0, device = 0;
  if (r.pci != nullptr) vendor = r.pci->vendor.value_or(0), device = r.pci->device.value_or(0);
  if (vendor == 0 && r.kfd != nullptr) vendor = r.kfd->vendor.value_or(0x1002);
  if (device == 0 && r.kfd != nullptr) device = r.kfd->device.value_or(0);
  if (vendor == 0 && r.vulkan != nullptr) vendor = r.vulkan->vendor, device = r.vulkan->device;
  if (vendor == 0 && r.nvidia != nullptr) vendor = 0x10de;
  if (vendor == 0 && r.hip != nullptr) vendor = 0x1002;
  if (device == 0 && r.hip != nullptr && vendor == 0x1002) device = r.hip->device_id;
  d.vendor = vendor == 0 ? "" : VendorName(vendor);
  if (vendor != 0 && device != 0) d.pci_id = fmt::format("{:04x}:{:04x}", vendor, device);
  if (r.pci != nullptr && r.pci->revision) d.pci_revision = fmt::format("{:02x}", *r.pci->revision & 0xff);
  d.pci_address = r.address;
}

void SetTarget(const GpuRecord& r, Device& d) {
  if (r.kfd != nullptr) d.gfx_target = r.kfd->gfx_target;
  if (d.gfx_target.empty() && r.amd != nullptr && r.amd->gc) d.gfx_target = GfxTargetOf(*r.amd->gc);
  if (d.gfx_target.empty() && r.hip != nullptr) d.gfx_target = r.hip->gfx_target;
  if (r.nvidia != nullptr && !r.nvidia->compute_capability.empty()) {
    d.gfx_target = "sm_" + r.nvidia->compute_capability;
    std::erase(d.gfx_target, '.');
  }
}

void SetDriver(const Facts& facts, const GpuRecord& r, Device& d) {
  if (r.pci != nullptr) d.driver = r.pci->driver;
  if (r.amd != nullptr && d.driver == "amdgpu") d.driver_version = facts.amdgpu.module.version;
  if (r.nvidia != nullptr) {
    if (d.driver.empty()) d.driver = "nvidia";
    d.driver_version = facts.nvidia->driver_version;
  }
}

void AddEvidence(const GpuRecord& r, Device& d) {
  const auto say = [&](std::string line) { d.evidence.push_back(std::move(line)); };
  if (r.pci != nullptr && r.pci->device_class) say(fmt::format("PCI class: {:06x}", *r.pci->device_class));
  if (r.pci != nullptr && r.pci->virtual_function) say("SR-IOV: a virtual function");
  if (r.amd != nullptr && r.amd->gc)
    say(fmt::format("ip_discovery GC: {}.{}.{}", r.amd->gc->major, r.amd->gc->minor, r.amd->gc->revision));
  if (r.kfd != nullptr) say(fmt::format("KFD node: {}", r.kfd->index));
  if (r.kfd != nullptr && r.kfd->xgmi) say("XGMI: linked to its peers");
  if (r.amd != nullptr && !r.amd->compute_partition.empty()) {
    say(fmt::format("partitions: {}/{}", r.amd->compute_partition, r.amd->memory_partition));
  }
  if (r.amd != nullptr && d.memory_kind == MemoryKind::kDiscrete && r.amd->vis_vram_total &&
      r.amd->vram_total) {
    const bool on = *r.amd->vis_vram_total >= *r.amd->vram_total;
    say(on ? "ReBAR: on" : "ReBAR: off, the CPU sees " + FormatBytes(*r.amd->vis_vram_total));
  }
  if (r.nvidia != nullptr && r.nvidia->bar1_total && r.nvidia->total) {
    say(*r.nvidia->bar1_total >= *r.nvidia->total
            ? "ReBAR: on"
            : "ReBAR: off, BAR1 is " + FormatBytes(*r.nvidia->bar1_total));
  }
  if (r.amd != nullptr && r.amd->carveout_index) {
    std::string text = fmt::format("carve-out setting: {}", *r.amd->carveout_index);
    for (const CarveoutOption& o : r.amd->carveout_options) {
      if (o.index == *r.amd->carveout_index) text += " " + o.text;
    }
    say(text + "; chosen in the firmware or by uma/carveout, from the next boot on");
  }
  const bool ecc = (r.amd != nullptr && r.amd->ecc) || (r.nvidia != nullptr && r.nvidia->ecc.value_or(false));
  if (ecc) say("ECC: on");
  if (r.amd != nullptr) {
    for (const std::string& file : r.amd->malformed) say("not a number, ignored: " + file);
  }
}

void SetFormats(const GpuRecord& r, Device& d) {
  if (!d.number_formats.empty() || r.vulkan == nullptr) return;
  if (r.vulkan->fp16) d.number_formats.push_back("fp16");
  if (r.vulkan->bf16) d.number_formats.push_back("bf16");
  if (r.vulkan->int8_dot) d.number_formats.push_back("int8");
}

Device MakeGpu(const Facts& facts, const ChipTable& chips, const GpuRecord& r, int parts) {
  Device d;
  d.kind = DeviceKind::kGpu;
  d.id = "gpu-" + r.key;
  if (!r.parent.empty()) d.parent = "gpu-" + r.parent;
  SetIds(r, d);
  SetTarget(r, d);
  SetDriver(facts, r, d);
  const Chip* chip = chips.FindPci(d.pci_id, d.pci_revision, RuntimeName(r));
  const MemoryVerdict verdict = DecideMemoryKind(r, chip);
  d.memory_kind = verdict.kind;
  d.memory_kind_rule =
      verdict.rule.empty() ? "no rule applies; planned as unified with the smaller number" : verdict.rule;
  d.evidence = verdict.evidence;
  if (r.kfd != nullptr) d.compute_units = r.kfd->compute_units;
  if (!d.compute_units && r.hip != nullptr) d.compute_units = r.hip->compute_units;
  if (r.pci != nullptr) d.numa_node = r.pci->numa_node;
  d.name = GpuName(r, chip, d);
  if (r.nvidia != nullptr && r.nvidia->power_limit_w)
    d.power_watts = {r.nvidia->power_limit_w, "default power limit"};
  if (d.memory_kind == MemoryKind::kDiscrete && r.pci != nullptr && r.pci->link_bytes_s) {
    d.link_bytes_s = {r.pci->link_bytes_s, r.pci->link_source};
  }
  SetMeasured(facts, r.vulkan, r.hip, d);
  // A partition has a share of the card, and which share of its rates is not known.
  if (chip != nullptr && parts == 1) FillFrom(*chip, "table", d);
  if (chip != nullptr && d.gfx_target.empty()) d.gfx_target = chip->gfx_target;
  if (chip != nullptr && d.number_formats.empty()) d.number_formats = chip->number_formats;
  SetFormats(r, d);
  AddEvidence(r, d);
  return d;
}

// A display core beside a card is kept, ranked last, and never part of a split by itself.
void MarkSecondary(Topology& topology) {
  const bool card = std::any_of(topology.devices.begin(), topology.devices.end(), [](const Device& d) {
    return d.kind == DeviceKind::kGpu && d.memory_kind == MemoryKind::kDiscrete;
  });
  if (!card) return;
  for (Device& d : topology.devices) {
    if (d.kind != DeviceKind::kGpu || d.memory_kind != MemoryKind::kUnified) continue;
    const bool small = d.compute_units && *d.compute_units <= kDisplayCoreUnits;
    if (!small && d.vendor != "Intel") continue;
    d.secondary = true;
    d.evidence.push_back("secondary: integrated graphics beside a discrete card");
  }
}

void ReportVirtualDisplays(const Facts& facts, Topology& topology) {
  for (const PciFunction& f : facts.pci) {
    if (f.kind != PciKind::kVirtualDisplay) continue;
    topology.findings.push_back(
        {Severity::kInfo, "gpu.virtual_display", "",
         fmt::format("{} ({}) only draws a console and computes nothing.", f.key, PciId(f)), ""});
  }
}

}  // namespace

// What was measured here beats what a table says; the faster of two backends counts.
void SetMeasured(const Facts& facts, const VulkanDevice* vulkan, const HipDevice* hip, Device& d) {
  for (const DeviceMeasurement& m : facts.measured) {
    const bool by_vulkan = m.backend == "vulkan" && vulkan != nullptr && m.key == vulkan->uuid &&
                           m.driver_info == vulkan->driver_info;
    const bool by_hip =
        m.backend == "hip" && hip != nullptr && m.key == hip->address && m.driver_info == facts.hip->version;
    if (!by_vulkan && !by_hip) continue;
    if (m.copy_bytes_s && *m.copy_bytes_s > d.bandwidth_bytes_s.value.value_or(0)) {
      d.bandwidth_bytes_s = {m.copy_bytes_s, fmt::format("measured here: copying {} with {}",
                                                         FormatBytes(m.buffer_bytes), m.backend)};
    }
    if (m.matmul_flops) {
      d.fp32_flops = {m.matmul_flops,
                      "measured here: plain matrix kernel with " + m.backend + ", a lower bound"};
    }
  }
}

void AddGpus(const Facts& facts, const ChipTable& chips, Topology& topology) {
  const std::vector<GpuRecord> records = JoinGpus(facts);
  std::map<std::string, int> parts;  // by the card's key
  for (const GpuRecord& r : records) ++parts[r.parent.empty() ? r.key : r.parent];
  for (const GpuRecord& r : records) {
    const int shared_by = parts[r.parent.empty() ? r.key : r.parent];
    Device d = MakeGpu(facts, chips, r, shared_by);
    const bool mig = AddMigInstances(r, d, topology);
    if (!mig) AddGpuMemory(facts, r, shared_by, d, topology);
    AddGpuAccess(facts, r, d, topology);
    if (mig) {
      d.usable = false;
      d.reason = "divided by MIG; its instances are the devices";
      for (BackendSupport& b : d.backends) b.usable = false, b.reason = d.reason;
    }
    AddGpuFindings(facts, r, d, topology);
    topology.devices.push_back(std::move(d));
  }
  MarkSecondary(topology);
  AddSoftwareRenderers(facts, topology);
  ReportVirtualDisplays(facts, topology);
}

}  // namespace rumbo
