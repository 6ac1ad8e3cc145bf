#include <fmt/format.h>

#include <algorithm>

#include "devices/assemble/gpu.h"
#include "devices/assemble/remedies.h"
#include "devices/assemble/visibility.h"

namespace rumbo {
namespace {

constexpr uint32_t kNvidia = 0x10de;
constexpr const char* kUnset = "Unset the variable in the daemon's environment to use this GPU so.";
constexpr const char* kNotAsked = "not asked: vendor libraries speak only for the running machine";

bool IsNvidia(const GpuRecord& r) {
  return r.nvidia != nullptr || (r.pci != nullptr && r.pci->vendor == kNvidia);
}

bool IsAmd(const Device& d) { return d.vendor == "AMD"; }

std::string RenderPath(const GpuRecord& r) {
  const auto minor = r.pci != nullptr && r.pci->render_minor && r.parent.empty() ? r.pci->render_minor
                     : r.kfd != nullptr                                          ? r.kfd->render_minor
                                                                                 : std::optional<int>();
  return minor ? fmt::format("/dev/dri/renderD{}", *minor) : "/dev/dri/renderD*";
}

struct Blocked {
  std::string code;  // "" not blocked
  std::string reason;
  std::string remedy;
};

Blocked WhyNotAccessible(const Facts& facts, const GpuRecord& r, const Device& d) {
  if (r.vulkan != nullptr || r.hip != nullptr) return {};
  if (r.nvidia != nullptr && facts.nvidia->source != "proc") return {};
  if (r.pci != nullptr && r.pci->driver.empty()) {
    return {"gpu.no_driver", "no kernel driver is bound to it", DriverRemedy(d)};
  }
  if (r.pci != nullptr && (r.pci->driver == "vfio-pci" || r.pci->driver == "pci-stub")) {
    return {"gpu.passed_through", fmt::format("bound to {} for a virtual machine", r.pci->driver),
            "Unbind it from " + r.pci->driver + " to use it on this host."};
  }
  if (!facts.has_dev) return {"gpu.no_dev_tree", "this tree has no /dev, so access cannot be told", ""};
  if (IsNvidia(r)) {
    if (d.driver == "nvidia" && !facts.nvidia_node.exists) {
      return {"gpu.no_device_nodes", "/dev/nvidiactl is missing though the driver is bound",
              "In a container, start it with the NVIDIA container runtime; on a host, run nvidia-modprobe."};
    }
    return {"gpu.no_nvml",
            "neither NVML nor nvidia-smi answered" +
                (facts.nvidia && !facts.nvidia->error.empty() ? ": " + facts.nvidia->error : ""),
            "Install the NVIDIA driver's user-space part of the same version as its kernel module."};
  }
  const NodeAccess* node = r.pci != nullptr && r.pci->render_minor ? &r.pci->render_node : nullptr;
  if (node == nullptr || !node->exists) {
    return {
        "gpu.no_device_nodes", RenderPath(r) + " is missing though the driver is bound",
        "In a container, pass the nodes in (--device=/dev/kfd --device=/dev/dri); on a host, check udev."};
  }
  if (!node->read_write) return {"gpu.no_render_group", NodeReason(RenderPath(r), *node), GroupRemedy(*node)};
  return {};
}

void ExplainMissingVulkan(const Facts& facts, const Device& d, BackendSupport& b) {
  if (!facts.vulkan) {
    b.reason = kNotAsked;
  } else if (!facts.vulkan->error.empty()) {
    b.reason = facts.vulkan->error;
    b.remedy = "Install the Vulkan loader and a driver (Debian: libvulkan1 mesa-vulkan-drivers).";
  } else if (!d.accessible) {
    b.reason = d.reason;
    b.remedy = d.remedy;
  } else {
    b.reason = "no Vulkan driver lists this device";
    b.remedy = "Install its Vulkan driver (Debian: mesa-vulkan-drivers; NVIDIA: the driver's own).";
  }
}

BackendSupport VulkanBackend(const Facts& facts, const GpuRecord& r, const Device& d) {
  BackendSupport b;
  b.name = "vulkan";
  // An APU's Vulkan heaps are carve-out and GTT together.
  b.pools = d.pools;
  b.may_span_pools = d.pools.size() > 1;
  if (r.vulkan == nullptr) {
    ExplainMissingVulkan(facts, d, b);
    return b;
  }
  if (const std::string hidden = HiddenFromVulkan(facts, *r.vulkan); !hidden.empty()) {
    b.reason = "hidden by " + hidden;
    b.remedy = kUnset;
    return b;
  }
  b.usable = true;
  b.reason = fmt::format("listed by {}", r.vulkan->driver.empty() ? "a Vulkan driver" : r.vulkan->driver);
  b.version = r.vulkan->driver_info.empty() ? r.vulkan->api_version : r.vulkan->driver_info;
  b.selector = std::to_string(r.vulkan->index);
  return b;
}

BackendSupport HipBackend(const Facts& facts, const GpuRecord& r, const Device& d, Topology& topology) {
  BackendSupport b;
  b.name = "hip";
  b.pools = d.pools;
  if (facts.hip) b.version = facts.hip->version;
  const std::string hidden = HiddenFromHip(facts, r);
  if (!hidden.empty()) {
    b.reason = "hidden by " + hidden;
    b.remedy = kUnset;
    return b;
  }
  if (r.hip != nullptr) {
    b.usable = true;
    b.reason = "listed by HIP";
    b.selector = std::to_string(r.hip->index);
    return b;
  }
  if (r.kfd == nullptr && facts.kfd.present) {
    b.reason = "the kernel's compute driver (KFD) does not list it";
    b.remedy = "Use Vulkan, or a kernel and GPU that ROCm supports.";
  } else if (!facts.kfd.present && facts.live && !facts.host.wsl) {
    b.reason = "the kernel has no compute driver (KFD)";
    b.remedy = "Load amdgpu with KFD (CONFIG_HSA_AMD); in a container, check that /sys is not masked.";
  } else if (facts.has_dev && !facts.kfd.node.exists && !facts.host.wsl) {
    b.reason = "/dev/kfd is missing";
    b.remedy = "In a container, pass it in: --device=/dev/kfd --device=/dev/dri.";
  } else if (facts.has_dev && facts.kfd.node.exists && !facts.kfd.node.read_write) {
    b.reason = NodeReason("/dev/kfd", facts.kfd.node);
    b.remedy = GroupRemedy(facts.kfd.node);
    topology.findings.push_back(
        {Severity::kWarning, "gpu.no_kfd_access", d.id, b.reason + ": ROCm cannot use it.", b.remedy});
  } else if (!facts.hip) {
    b.reason = kNotAsked;
  } else if (!facts.hip->error.empty()) {
    b.reason = facts.hip->error;
    b.remedy = "Install the ROCm runtime (libamdhip64) for this GPU, or use Vulkan.";
  } else {
    b.reason = "HIP does not list this device";
    b.remedy = d.gfx_target.empty()
                   ? "Use Vulkan."
                   : "This HIP may not support " + d.gfx_target + "; use Vulkan or another ROCm.";
  }
  return b;
}

BackendSupport CudaBackend(const Facts& facts, const GpuRecord& r, const Device& d) {
  BackendSupport b;
  b.name = "cuda";
  b.pools = d.pools;
  if (facts.nvidia) b.version = facts.nvidia->cuda_version;
  if (const std::string hidden = HiddenFromCuda(facts, r); !hidden.empty()) {
    b.reason = "hidden by " + hidden;
    b.remedy = kUnset;
    return b;
  }
  if (r.nvidia != nullptr && facts.nvidia->source != "proc") {
    b.usable = true;
    b.reason = "listed by " + facts.nvidia->source;
    b.selector = r.nvidia->uuid;
    return b;
  }
  if (!facts.nvidia) {
    b.reason = kNotAsked;
  } else if (!d.driver.empty() && d.driver != "nvidia") {
    b.reason = "driven by " + d.driver + ", which has no CUDA";
    b.remedy = "Install NVIDIA's own driver.";
  } else {
    b.reason = d.reason.empty() ? facts.nvidia->error : d.reason;
    b.remedy = d.remedy;
  }
  return b;
}

}  // namespace

void AddGpuAccess(const Facts& facts, const GpuRecord& r, Device& d, Topology& topology) {
  d.present = true;
  const Blocked blocked = WhyNotAccessible(facts, r, d);
  d.accessible = blocked.code.empty();
  d.reason = blocked.reason;
  d.remedy = blocked.remedy;
  if (!d.accessible && facts.has_dev) {
    topology.findings.push_back(
        {Severity::kBroken, blocked.code, d.id, d.name + ": " + d.reason + ".", d.remedy});
  }
  if (IsAmd(d)) d.backends.push_back(HipBackend(facts, r, d, topology));
  if (IsNvidia(r)) d.backends.push_back(CudaBackend(facts, r, d));
  d.backends.push_back(VulkanBackend(facts, r, d));

  const auto usable =
      std::find_if(d.backends.begin(), d.backends.end(), [](const auto& b) { return b.usable; });
  d.usable = d.accessible && usable != d.backends.end();
  if (d.usable) {
    d.reason = usable->name + ": " + usable->reason;
    d.remedy.clear();
  } else if (d.accessible) {
    const BackendSupport& last = d.backends.back();
    d.reason = "no backend can use it; " + last.name + ": " + last.reason;
    d.remedy = last.remedy;
    if (facts.live) {
      topology.findings.push_back(
          {Severity::kBroken, "gpu.no_backend", d.id, d.name + ": " + d.reason + ".", d.remedy});
    }
  }
}

void AddSoftwareRenderers(const Facts& facts, Topology& topology) {
  if (!facts.vulkan) return;
  int count = 0;
  for (const VulkanDevice& v : facts.vulkan->devices) {
    if (!IsSoftware(v)) continue;
    Device d;
    d.kind = DeviceKind::kCpu;
    d.software = true;
    d.id = "software-" + (v.driver.empty() ? std::string("vulkan") : Lower(v.driver));
    if (++count > 1) d.id += fmt::format("-{}", count);
    d.name = v.name;
    d.vendor = v.vendor == 0x10005 ? "Mesa" : fmt::format("{:04x}", v.vendor);
    d.memory_kind = MemoryKind::kHost;
    d.memory_kind_rule = "a software renderer uses host memory";
    d.pools = {"pool-system"};
    d.present = d.accessible = true;
    d.reason = "software renderer, runs on the CPU and is not used";
    d.remedy = "Use the CPU itself; name this device to use it all the same.";
    d.evidence = {"Vulkan device type: " + v.type, "Vulkan driver: " + v.driver + " " + v.driver_info};
    BackendSupport b;
    b.name = "vulkan";
    b.reason = "software renderer, not used: slower than the CPU itself";
    b.remedy = d.remedy;
    b.version = v.driver_info;
    b.selector = std::to_string(v.index);
    b.pools = d.pools;
    d.backends = {std::move(b)};
    SetMeasured(facts, &v, nullptr, d);
    topology.devices.push_back(std::move(d));
  }
}

}  // namespace rumbo
