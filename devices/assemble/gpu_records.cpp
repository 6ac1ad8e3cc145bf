#include "devices/assemble/gpu_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "devices/pci/pci_probe.h"

namespace rumbo {
namespace {

constexpr uint32_t kAmdGraphics = 0x1002;

std::string BusAndSlot(const std::string& address) { return address.substr(0, address.rfind('.')); }

// RADV writes the PCI address into the UUID as four little-endian words.
std::string AddressInRadvUuid(const VulkanDevice& d) {
  if (d.uuid.size() != 32) return "";
  uint32_t words[4];
  for (int w = 0; w < 4; ++w) {
    uint32_t value = 0;
    for (int b = 3; b >= 0; --b) {
      const auto byte = ParseHex(std::string_view(d.uuid).substr(w * 8 + b * 2, 2));
      if (!byte) return "";
      value = value << 8 | static_cast<uint32_t>(*byte);
    }
    words[w] = value;
  }
  return PciAddress(fmt::format("{:04x}:{:02x}:{:02x}.{:x}", words[0], words[1], words[2], words[3]));
}

class Joiner {
 public:
  explicit Joiner(const Facts& facts) : facts_(facts) {}

  std::vector<GpuRecord> Join() {
    for (const PciFunction& f : facts_.pci) {
      if (f.kind == PciKind::kGpu) AddPci(f);
    }
    for (const KfdNode& node : facts_.kfd.gpus) AddKfd(node);
    if (facts_.hip) {
      for (const HipDevice& d : facts_.hip->devices) AddHip(d);
    }
    if (facts_.nvidia) {
      for (const NvidiaGpu& gpu : facts_.nvidia->gpus) AddNvidia(gpu);
    }
    if (facts_.vulkan) {
      for (const VulkanDevice& d : facts_.vulkan->devices) {
        if (!IsSoftware(d)) AddVulkan(d);
      }
    }
    std::sort(records_.begin(), records_.end(),
              [](const GpuRecord& a, const GpuRecord& b) { return a.key < b.key; });
    return std::move(records_);
  }

 private:
  GpuRecord* At(const std::string& address) {
    if (address.empty()) return nullptr;
    for (GpuRecord& r : records_) {
      if (r.address == address) return &r;
    }
    return nullptr;
  }

  // The only record that `fits`; nullptr where none or several do.
  template <typename Fits>
  GpuRecord* Only(Fits fits) {
    GpuRecord* found = nullptr;
    for (GpuRecord& r : records_) {
      if (!fits(r)) continue;
      if (found != nullptr) return nullptr;
      found = &r;
    }
    return found;
  }

  GpuRecord& New(std::string key, std::string address) {
    const std::string base = key;
    for (int n = 2;
         std::any_of(records_.begin(), records_.end(), [&](const GpuRecord& r) { return r.key == key; });
         ++n) {
      key = fmt::format("{}-{}", base, n);
    }
    GpuRecord& r = records_.emplace_back();
    r.key = std::move(key);
    r.address = std::move(address);
    return r;
  }

  void AddPci(const PciFunction& f) {
    GpuRecord& r = New(f.key, f.address);
    r.pci = &f;
    if (const auto it = facts_.amdgpu.cards.find(f.key); it != facts_.amdgpu.cards.end()) r.amd = &it->second;
    if (const auto it = facts_.drm.find(f.key); it != facts_.drm.end()) r.drm = &it->second;
  }

  void AddKfd(const KfdNode& node) {
    const std::string address = node.says_address ? node.address : "";
    GpuRecord* r = At(address);
    if (r != nullptr && r->kfd == nullptr) {
      r->kfd = &node;
      return;
    }
    if (GpuRecord* card = PartitionedCard(node, address)) {
      const std::string parent = card->key;
      const PciFunction* pci = card->pci;
      const AmdgpuCard* amd = card->amd;
      GpuRecord& partition =
          New(r == nullptr ? address : fmt::format("{}-render{}", address, node.render_minor.value_or(0)),
              address);
      partition.parent = parent;
      partition.pci = pci;
      partition.amd = amd;
      partition.kfd = &node;
      return;
    }
    // A card whose address the tree lost (or a node without one): ids must match and be the only match.
    GpuRecord* lost = Only([&](const GpuRecord& c) {
      if (c.kfd != nullptr || c.pci == nullptr || (!c.address.empty() && !address.empty())) return false;
      if (c.pci->vendor.value_or(kAmdGraphics) != kAmdGraphics) return false;
      if (node.device && c.pci->device && *node.device != *c.pci->device) return false;
      return !node.render_minor || !c.pci->render_minor || *node.render_minor == *c.pci->render_minor;
    });
    if (lost != nullptr) {
      lost->kfd = &node;
      if (lost->address.empty()) lost->address = address;
      return;
    }
    std::string key = address;
    if (key.empty() || r != nullptr) {
      key =
          node.render_minor ? fmt::format("render{}", *node.render_minor) : fmt::format("kfd{}", node.index);
      if (r != nullptr) key = address + "-" + key;
    }
    New(key, r == nullptr ? address : "").kfd = &node;
  }

  // The card that `node` is a further partition of: same slot, same unique id.
  GpuRecord* PartitionedCard(const KfdNode& node, const std::string& address) {
    if (address.empty() || node.unique_id.empty()) return nullptr;
    for (GpuRecord& r : records_) {
      if (!r.parent.empty() || r.kfd == nullptr || r.address.empty()) continue;
      if (r.kfd->unique_id == node.unique_id && BusAndSlot(r.address) == BusAndSlot(address)) return &r;
    }
    return nullptr;
  }

  void AddHip(const HipDevice& d) {
    GpuRecord* r = At(d.address);
    if (r == nullptr && d.address.empty() && d.device_id != 0) {
      r = Only([&](const GpuRecord& c) {
        return c.hip == nullptr && c.pci != nullptr && c.pci->device == d.device_id;
      });
    }
    // Without an address (WSL) it is a device of its own: joining by ordinal would guess.
    if (r == nullptr) r = &New(d.address.empty() ? fmt::format("hip{}", d.index) : d.address, d.address);
    if (r->hip == nullptr) r->hip = &d;
  }

  void AddNvidia(const NvidiaGpu& gpu) {
    GpuRecord* r = At(gpu.address);
    if (r == nullptr) r = &New(gpu.address.empty() ? gpu.uuid : gpu.address, gpu.address);
    if (r->nvidia == nullptr) r->nvidia = &gpu;
  }

  void AddVulkan(const VulkanDevice& d) {
    GpuRecord* r = At(d.address);
    if (r == nullptr && d.driver == "radv") r = At(AddressInRadvUuid(d));
    if (r == nullptr && d.address.empty()) {
      r = Only([&](const GpuRecord& c) {
        return c.vulkan == nullptr && c.pci != nullptr && c.pci->vendor == d.vendor &&
               c.pci->device == d.device;
      });
    }
    if (r == nullptr) r = &New(d.address.empty() ? "vulkan-" + d.uuid : d.address, d.address);
    // A second driver for the same card (AMDVLK beside RADV): the first one listed stays.
    if (r->vulkan == nullptr) r->vulkan = &d;
  }

  const Facts& facts_;
  std::vector<GpuRecord> records_;
};

}  // namespace

bool IsSoftware(const VulkanDevice& d) {
  if (d.type == "cpu") return true;
  // Some builds of software renderers call themselves "other" or worse; drivers and vendor ids tell.
  const std::string name = Lower(d.name + " " + d.driver);
  return name.find("llvmpipe") != std::string::npos || name.find("lavapipe") != std::string::npos ||
         name.find("swiftshader") != std::string::npos;
}

std::vector<GpuRecord> JoinGpus(const Facts& facts) { return Joiner(facts).Join(); }

}  // namespace rumbo
