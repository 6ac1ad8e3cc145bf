#include "devices/tools/tool_probe.h"

#include <algorithm>

#include "devices/nvidia/nvidia_text.h"
#include "devices/tools/tool_texts.h"

namespace rumbo {
namespace {

constexpr size_t kMaxText = 4 * kMiB;

template <typename T>
const PciFunction& FunctionOf(const T& pair, Facts& facts) {
  for (PciFunction& f : facts.pci) {
    if (f.address == pair.first.address) return f;
  }
  facts.pci.push_back(pair.first);
  return facts.pci.back();
}

}  // namespace

ToolFacts ReadTools(const Root& root) {
  ToolFacts out;
  if (root.live() || !root.Exists("/tools")) return out;
  const auto read = [&](const char* name, auto parse) {
    const FileText text = root.Read(std::string("/tools/") + name, kMaxText);
    if (text.ok()) parse(text.text);
  };
  read("vulkaninfo.txt", [&](const std::string& text) { out.vulkan = ParseVulkaninfo(text); });
  read("rocminfo.txt", [&](const std::string& text) { out.hip = ParseRocminfo(text); });
  read("nvidia-smi.txt", [&](const std::string& text) { out.nvidia = ParseNvidiaSmi(text); });
  read("rocm-smi.json", [&](const std::string& text) { out.rocm_smi = ParseRocmSmi(text); });
  read("xrt-smi.txt", [&](const std::string& text) { out.npus = ParseXrtSmi(text); });
  return out;
}

void MergeTools(const ToolFacts& tools, Facts& facts) {
  if (tools.vulkan) facts.vulkan = tools.vulkan;
  if (tools.hip) facts.hip = tools.hip;
  if (tools.nvidia) facts.nvidia = tools.nvidia;
  for (const auto& card : tools.rocm_smi) {
    const std::string key = FunctionOf(card, facts).key;
    AmdgpuCard& known = facts.amdgpu.cards[key];
    if (!known.vram_total) known = card.second;
  }
  for (const auto& npu : tools.npus) {
    const std::string key = FunctionOf(npu, facts).key;
    const bool there =
        std::any_of(facts.npus.begin(), facts.npus.end(), [&](const NpuFacts& n) { return n.key == key; });
    if (there) continue;
    facts.npus.push_back(npu.second);
    facts.npus.back().key = key;
  }
}

}  // namespace rumbo
