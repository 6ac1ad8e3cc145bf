#include "devices/assemble/visibility.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace rumbo {
namespace {

// A GPU as a list can name it.
struct Name {
  std::string uuid;  // "GPU-0123456789abcdef"; "" unknown
  const void* what = nullptr;
};

std::optional<std::string> ValueOf(const Facts& facts, const char* name) {
  const auto it = facts.environment.find(name);
  return it == facts.environment.end() ? std::nullopt : std::optional(it->second);
}

// Position in `all` of what `word` names; nullopt for nothing.
std::optional<size_t> Find(std::string_view word, const std::vector<Name>& all) {
  if (const auto n = ParseU64(word)) return *n < all.size() ? std::optional<size_t>(*n) : std::nullopt;
  if (word.empty()) return std::nullopt;
  for (size_t i = 0; i < all.size(); ++i) {  // an unambiguous beginning is enough
    if (Lower(all[i].uuid).starts_with(Lower(word))) return i;
  }
  return std::nullopt;
}

std::vector<Name> Filter(std::string_view list, const std::vector<Name>& all) {
  std::vector<Name> out;
  while (true) {
    const size_t comma = std::min(list.find(','), list.size());
    const auto at = Find(Trim(list.substr(0, comma)), all);
    if (!at) return out;
    out.push_back(all[*at]);
    if (comma == list.size() || out.size() > all.size()) return out;
    list.remove_prefix(comma + 1);
  }
}

bool Has(const std::vector<Name>& names, const void* what) {
  return std::any_of(names.begin(), names.end(), [&](const Name& n) { return n.what == what; });
}

}  // namespace

std::string HiddenFromHip(const Facts& facts, const GpuRecord& r) {
  // KFD's order is ROCr's.
  const void* self = r.kfd;
  std::vector<Name> names;
  for (const KfdNode& node : facts.kfd.gpus) {
    names.push_back({node.unique_id.empty() ? "" : "GPU-" + node.unique_id, &node});
  }
  if (self == nullptr || names.empty()) {  // WSL: HIP's own order is all there is
    if (r.hip == nullptr || !facts.hip) return "";
    names.clear();
    for (const HipDevice& d : facts.hip->devices) names.push_back({"", &d});
    self = r.hip;
  }
  if (const auto list = ValueOf(facts, "ROCR_VISIBLE_DEVICES")) {
    names = Filter(*list, names);
    if (!Has(names, self)) return "ROCR_VISIBLE_DEVICES=" + *list;
  }
  for (const char* variable : {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
    const auto list = ValueOf(facts, variable);
    if (!list) continue;
    return Has(Filter(*list, names), self) ? "" : variable + ("=" + *list);
  }
  return "";
}

std::string HiddenFromCuda(const Facts& facts, const GpuRecord& r) {
  const auto list = ValueOf(facts, "CUDA_VISIBLE_DEVICES");
  if (!list || r.nvidia == nullptr || !facts.nvidia) return "";
  std::vector<Name> names;
  for (const NvidiaGpu& gpu : facts.nvidia->gpus) names.push_back({gpu.uuid, &gpu});
  // NVML orders by PCI bus, CUDA by speed unless told otherwise: with several cards an ordinal names none.
  if (names.size() > 1 && ParseU64(Trim(list->substr(0, list->find(',')))) &&
      ValueOf(facts, "CUDA_DEVICE_ORDER") != "PCI_BUS_ID") {
    return "";
  }
  return Has(Filter(*list, names), r.nvidia) ? "" : "CUDA_VISIBLE_DEVICES=" + *list;
}

std::string HiddenFromVulkan(const Facts& facts, const VulkanDevice& device) {
  const auto list = ValueOf(facts, "GGML_VK_VISIBLE_DEVICES");
  if (!list || !facts.vulkan) return "";
  std::vector<Name> names;
  for (const VulkanDevice& d : facts.vulkan->devices) names.push_back({"", &d});
  return Has(Filter(*list, names), &device) ? "" : "GGML_VK_VISIBLE_DEVICES=" + *list;
}

}  // namespace rumbo
