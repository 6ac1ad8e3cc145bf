#include <fmt/format.h>

#include "devices/assemble/gpu.h"

namespace rumbo {
namespace {

void AboutMemory(const Facts& facts, const GpuRecord& r, const Device& d, Topology& topology) {
  if (r.amd == nullptr) return;
  const auto say = [&](Severity severity, const char* code, std::string text, std::string remedy) {
    topology.findings.push_back({severity, code, d.id, std::move(text), std::move(remedy)});
  };
  const AmdgpuModule& module = facts.amdgpu.module;
  if (d.memory_kind == MemoryKind::kUnified && module.gttsize && module.ttm_pages_limit &&
      *module.gttsize != *module.ttm_pages_limit) {
    say(Severity::kWarning, "gpu.gtt_ttm_mismatch",
        fmt::format("amdgpu.gttsize is {} and the TTM limit {}: Vulkan follows the first, ROCm the second.",
                    FormatBytes(*module.gttsize), FormatBytes(*module.ttm_pages_limit)),
        "Drop amdgpu.gttsize (deprecated) and set ttm.pages_limit alone.");
  }
  if (module.ttm_pages_limit && module.ttm_page_pool_size &&
      *module.ttm_page_pool_size > *module.ttm_pages_limit) {
    say(Severity::kInfo, "gpu.ttm_pool_above_limit",
        "ttm.page_pool_size is above ttm.pages_limit, which has no effect.", "");
  }
  const MemoryPool* system = topology.FindPool("pool-system");
  if (d.memory_kind == MemoryKind::kUnified && system != nullptr && system->total_bytes && r.amd->gtt_total &&
      *r.amd->gtt_total > *system->total_bytes) {
    say(Severity::kWarning, "gpu.gtt_above_memory",
        fmt::format("GTT says {} on a machine with {}: clamped.", FormatBytes(*r.amd->gtt_total),
                    FormatBytes(*system->total_bytes)),
        "Set ttm.pages_limit below the machine's memory.");
  }
  if (d.memory_kind == MemoryKind::kDiscrete && r.amd->vis_vram_total && r.amd->vram_total &&
      *r.amd->vis_vram_total < *r.amd->vram_total) {
    say(Severity::kInfo, "gpu.rebar_off", d.name + ": resizable BAR is off; loading weights is slower.",
        "Turn on Resizable BAR (Above 4G decoding) in the firmware.");
  }
  if (!r.amd->malformed.empty()) {
    say(Severity::kWarning, "gpu.malformed_files",
        d.name + ": sysfs files that hold no number were ignored, the first is " + r.amd->malformed.front() +
            ".",
        "Update the kernel or report the driver bug.");
  }
}

void AboutRuntime(const Facts& facts, const GpuRecord& r, const Device& d, Topology& topology) {
  const auto say = [&](Severity severity, const char* code, std::string text, std::string remedy) {
    topology.findings.push_back({severity, code, d.id, std::move(text), std::move(remedy)});
  };
  if (r.pci != nullptr && r.pci->runtime_status == "suspended") {
    say(Severity::kInfo, "gpu.suspended",
        d.name + " is suspended; looking at it does not wake it, using it does.", "");
  }
  // Also where it is set to nothing: some runtimes read that as gfx000.
  const auto override = facts.environment.find("HSA_OVERRIDE_GFX_VERSION");
  if (override != facts.environment.end() && d.vendor == "AMD") {
    say(Severity::kWarning, "gpu.hsa_override",
        fmt::format("HSA_OVERRIDE_GFX_VERSION={} makes ROCm take {} for another chip; wrong kernels crash or "
                    "compute nonsense.",
                    override->second, d.gfx_target.empty() ? d.name : d.gfx_target),
        "Unset it; the daemon's engines are chosen for the real chip.");
  }
  if (d.gfx_target == "gfx1151" && r.kfd != nullptr && !r.kfd->cwsr_size) {
    say(Severity::kInfo, "gpu.kernel_lacks_cwsr_fix",
        "The kernel's KFD does not list cwsr_size for gfx1151: compute may hang under load.",
        "Use a kernel with the gfx1151 context-save fix.");
  }
  const bool ecc = (r.amd != nullptr && r.amd->ecc) || (r.nvidia != nullptr && r.nvidia->ecc.value_or(false));
  if (ecc) say(Severity::kInfo, "gpu.ecc", d.name + " counts memory errors (ECC).", "");
}

}  // namespace

void AddGpuFindings(const Facts& facts, const GpuRecord& r, const Device& d, Topology& topology) {
  if (!r.parent.empty()) return;  // said once, for the card
  AboutMemory(facts, r, d, topology);
  AboutRuntime(facts, r, d, topology);
}

}  // namespace rumbo
