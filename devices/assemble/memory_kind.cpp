#include "devices/assemble/memory_kind.h"

#include <fmt/format.h>

#include "devices/amdgpu/amdgpu_probe.h"

namespace rumbo {
namespace {

constexpr uint32_t kNvidia = 0x10de;
constexpr uint32_t kIntel = 0x8086;

class Decider {
 public:
  void Say(MemoryKind kind, std::string rule) {
    verdict_.evidence.push_back(fmt::format("{}: {}", rule, Word(kind)));
    if (verdict_.kind != MemoryKind::kUnknown) return;
    verdict_.kind = kind;
    verdict_.rule = std::move(rule);
  }
  MemoryVerdict Take() { return std::move(verdict_); }

 private:
  MemoryVerdict verdict_;
};

MemoryKind Unified(bool unified) { return unified ? MemoryKind::kUnified : MemoryKind::kDiscrete; }

void AskDriver(const GpuRecord& r, Decider& d) {
  if (r.drm != nullptr && r.drm->fusion) d.Say(Unified(*r.drm->fusion), "amdgpu ids_flags FUSION");
  if (r.drm != nullptr && r.drm->local_total) {
    d.Say(Unified(*r.drm->local_total == 0), "memory regions of " + (r.pci ? r.pci->driver : "the driver"));
  }
  if (r.hip != nullptr && r.hip->apu) d.Say(Unified(*r.hip->apu), "rocminfo Memory Properties");
  if (r.nvidia != nullptr && r.nvidia->memory_not_supported)
    d.Say(MemoryKind::kUnified, "NVIDIA memory query: Not Supported");
}

void AskTables(const GpuRecord& r, const Chip* chip, Decider& d) {
  if (chip != nullptr && chip->memory_kind != MemoryKind::kUnknown) {
    d.Say(chip->memory_kind, "PCI id table: " + chip->id);
  }
  if (r.amd != nullptr && r.amd->gc) {
    if (const auto apu = GcIsApu(*r.amd->gc)) {
      d.Say(Unified(*apu), fmt::format("GC version table: {}.{}.{}", r.amd->gc->major, r.amd->gc->minor,
                                       r.amd->gc->revision));
    }
  }
  std::string gfx = r.kfd != nullptr ? r.kfd->gfx_target : "";
  if (gfx.empty() && r.hip != nullptr) gfx = r.hip->gfx_target;
  if (const auto apu = GfxIsApu(gfx)) d.Say(Unified(*apu), "gfx target table: " + gfx);
}

void AskSysfs(const AmdgpuCard& card, Decider& d) {
  if (card.uma) d.Say(MemoryKind::kUnified, "sysfs uma/ exists");
  if (card.board_info) d.Say(MemoryKind::kDiscrete, "sysfs board_info exists");
  if (!card.vram_vendor.empty())
    d.Say(MemoryKind::kDiscrete, "sysfs mem_info_vram_vendor: " + card.vram_vendor);
}

void AskSize(const AmdgpuCard& card, Decider& d) {
  if (!card.vram_total || !card.gtt_total) return;
  const Bytes vram = *card.vram_total, gtt = *card.gtt_total;
  if (vram <= 4 * kGiB && gtt >= 8 * kGiB && gtt / 4 >= vram) {
    d.Say(MemoryKind::kUnified,
          fmt::format("size rule: VRAM {} beside GTT {}", FormatBytes(vram), FormatBytes(gtt)));
  }
}

}  // namespace

MemoryVerdict DecideMemoryKind(const GpuRecord& r, const Chip* chip) {
  Decider d;
  AskDriver(r, d);
  AskTables(r, chip, d);
  if (r.amd != nullptr) AskSysfs(*r.amd, d);
  if (r.vulkan != nullptr && r.vulkan->type == "integrated")
    d.Say(MemoryKind::kUnified, "Vulkan device type: integrated");
  if (r.vulkan != nullptr && r.vulkan->type == "discrete")
    d.Say(MemoryKind::kDiscrete, "Vulkan device type: discrete");
  if (r.pci != nullptr && r.pci->vendor == kIntel && r.address == "0000:00:02.0") {
    d.Say(MemoryKind::kUnified, "Intel graphics at 00:02.0");
  }
  const bool nvidia = r.nvidia != nullptr || (r.pci != nullptr && r.pci->vendor == kNvidia);
  if (nvidia && !(r.nvidia != nullptr && r.nvidia->memory_not_supported)) {
    d.Say(MemoryKind::kDiscrete, "NVIDIA on PCI outside the table of unified parts");
  }
  if (r.amd != nullptr) AskSize(*r.amd, d);
  return d.Take();
}

}  // namespace rumbo
