#include "devices/drm/drm_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libdrm/amdgpu_drm.h>
#include <libdrm/drm.h>
#include <libdrm/i915_drm.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "base/os/unique_fd.h"

namespace rumbo {
namespace {

// The part of the kernel's xe_drm.h used here; Debian 12's headers predate it.
struct XeDeviceQuery {
  uint64_t extensions;
  uint32_t query;
  uint32_t size;
  uint64_t data;
  uint64_t reserved[2];
};
struct XeMemRegion {
  uint16_t mem_class;
  uint16_t instance;
  uint32_t min_page_size;
  uint64_t total_size, used, cpu_visible_size, cpu_visible_used;
  uint64_t reserved[6];
};
constexpr unsigned long kXeDeviceQuery = DRM_IOWR(DRM_COMMAND_BASE + 0, XeDeviceQuery);
constexpr uint32_t kXeMemRegions = 1;
constexpr uint16_t kXeVram = 1;
constexpr size_t kMaxReply = 64 * 1024;

int Ioctl(int fd, unsigned long request, void* argument) {
  int result;
  do {
    result = ioctl(fd, request, argument);
  } while (result == -1 && (errno == EINTR || errno == EAGAIN));
  return result;
}

void AskAmdgpu(int fd, DrmAnswer& out) {
  drm_amdgpu_info_device device{};
  drm_amdgpu_info request{};
  request.return_pointer = reinterpret_cast<uint64_t>(&device);
  request.return_size = sizeof device;
  request.query = AMDGPU_INFO_DEV_INFO;
  if (Ioctl(fd, DRM_IOCTL_AMDGPU_INFO, &request) != 0) {
    out.error = fmt::format("AMDGPU_INFO: {}", std::strerror(errno));
    return;
  }
  out.fusion = (device.ids_flags & AMDGPU_IDS_FLAGS_FUSION) != 0;
}

void AskXe(int fd, DrmAnswer& out) {
  XeDeviceQuery query{};
  query.query = kXeMemRegions;
  if (Ioctl(fd, kXeDeviceQuery, &query) != 0 || query.size < 8 || query.size > kMaxReply) {
    out.error = fmt::format("XE_DEVICE_QUERY: {}", std::strerror(errno));
    return;
  }
  std::vector<uint64_t> reply((query.size + 7) / 8);
  query.data = reinterpret_cast<uint64_t>(reply.data());
  if (Ioctl(fd, kXeDeviceQuery, &query) != 0) {
    out.error = fmt::format("XE_DEVICE_QUERY: {}", std::strerror(errno));
    return;
  }
  uint32_t count = 0;
  std::memcpy(&count, reply.data(), sizeof count);
  const size_t fits = (reply.size() * 8 - 8) / sizeof(XeMemRegion);
  Bytes total = 0, used = 0;
  for (size_t i = 0; i < count && i < fits; ++i) {
    XeMemRegion region;
    std::memcpy(&region, reinterpret_cast<const char*>(reply.data()) + 8 + i * sizeof region, sizeof region);
    if (region.mem_class != kXeVram) continue;
    total = SaturatingAdd(total, region.total_size);
    used = SaturatingAdd(used, region.used);
  }
  out.local_total = total;
  // Without CAP_PERFMON xe says 0 used, which is not knowledge.
  if (used > 0) out.local_used = used;
}

void AskI915(int fd, DrmAnswer& out) {
  drm_i915_query_item item{};
  item.query_id = DRM_I915_QUERY_MEMORY_REGIONS;
  drm_i915_query query{};
  query.num_items = 1;
  query.items_ptr = reinterpret_cast<uint64_t>(&item);
  if (Ioctl(fd, DRM_IOCTL_I915_QUERY, &query) != 0 ||
      item.length < static_cast<int>(sizeof(drm_i915_query_memory_regions)) ||
      item.length > static_cast<int>(kMaxReply)) {
    out.error = "I915_QUERY_MEMORY_REGIONS is not answered by this kernel";
    return;
  }
  const size_t length = static_cast<size_t>(item.length);
  std::vector<uint64_t> reply((length + 7) / 8);
  item.data_ptr = reinterpret_cast<uint64_t>(reply.data());
  if (Ioctl(fd, DRM_IOCTL_I915_QUERY, &query) != 0 || item.length < 0) {
    out.error = fmt::format("I915_QUERY: {}", std::strerror(errno));
    return;
  }
  const auto* regions = reinterpret_cast<const drm_i915_query_memory_regions*>(reply.data());
  const size_t fits = (length - sizeof *regions) / sizeof(drm_i915_memory_region_info);
  Bytes total = 0, free = 0;
  for (size_t i = 0; i < regions->num_regions && i < fits; ++i) {
    const drm_i915_memory_region_info& region = regions->regions[i];
    if (region.region.memory_class != I915_MEMORY_CLASS_DEVICE) continue;
    total = SaturatingAdd(total, region.probed_size);
    free = SaturatingAdd(free, region.unallocated_size);
  }
  out.local_total = total;
  // Without CAP_PERFMON i915 says free = total, which is not knowledge.
  if (free < total) out.local_used = total - free;
}

}  // namespace

DrmFacts ReadDrm(const Root& root, const std::vector<PciFunction>& functions) {
  DrmFacts out;
  if (!root.live()) return out;
  for (const PciFunction& f : functions) {
    const bool known = f.driver == "amdgpu" || f.driver == "xe" || f.driver == "i915";
    if (f.kind != PciKind::kGpu || !known || !f.render_minor || !f.render_node.read_write) continue;
    DrmAnswer& answer = out[f.key];
    if (f.runtime_status == "suspended") {
      answer.error = "suspended, not woken";
      continue;
    }
    const std::string path = fmt::format("/dev/dri/renderD{}", *f.render_minor);
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) {
      answer.error = fmt::format("{}: {}", path, std::strerror(errno));
      continue;
    }
    if (f.driver == "amdgpu") AskAmdgpu(fd.get(), answer);
    if (f.driver == "xe") AskXe(fd.get(), answer);
    if (f.driver == "i915") AskI915(fd.get(), answer);
  }
  return out;
}

}  // namespace rumbo
