// Whole trees: the input is a list of (path number, length, bytes); every probe reads the tree, and the
// topology must hold together.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "devices/api/topology_json.h"
#include "devices/assemble/assemble.h"
#include "devices/pci/pci_probe.h"
#include "devices/probe/probe.h"

namespace {

const std::vector<std::string>& Paths() {
  static const auto* paths = [] {
    auto* out = new std::vector<std::string>;
    for (const std::string a : {"0000:03:00.0", "0000:c5:00.0", "0000:c6:00.1"}) {
      const std::string dir = "/sys/bus/pci/devices/" + a + "/";
      for (const char* f : {"vendor",
                            "device",
                            "revision",
                            "class",
                            "uevent",
                            "mem_info_vram_total",
                            "mem_info_vram_used",
                            "mem_info_vis_vram_total",
                            "mem_info_gtt_total",
                            "mem_info_gtt_used",
                            "mem_info_vram_vendor",
                            "max_link_speed",
                            "current_link_width",
                            "numa_node",
                            "uma/carveout",
                            "uma/carveout_options",
                            "ip_discovery/die/0/11/0/major",
                            "ip_discovery/die/0/11/0/minor",
                            "ip_discovery/die/0/11/0/revision",
                            "current_compute_partition",
                            "unique_id",
                            "power/runtime_status",
                            "board_info",
                            "accel/accel0/dev"}) {
        out->push_back(dir + f);
      }
    }
    for (const char* n : {"0", "1", "2", "3"}) {
      const std::string dir = std::string("/sys/class/kfd/kfd/topology/nodes/") + n;
      out->push_back(dir + "/properties");
      out->push_back(dir + "/mem_banks/0/properties");
    }
    for (const char* f : {"/proc/meminfo",
                          "/proc/cpuinfo",
                          "/proc/self/cgroup",
                          "/proc/self/status",
                          "/proc/self/limits",
                          "/proc/cmdline",
                          "/proc/version",
                          "/sys/fs/cgroup/a/memory.max",
                          "/sys/fs/cgroup/a/memory.current",
                          "/sys/fs/cgroup/a/memory.stat",
                          "/sys/fs/cgroup/a/cpu.max",
                          "/sys/fs/cgroup/a/cpuset.cpus.effective",
                          "/sys/module/ttm/parameters/pages_limit",
                          "/sys/module/amdgpu/parameters/gttsize",
                          "/sys/class/drm/card0/device/uevent",
                          "/sys/class/drm/card0/device/vendor",
                          "/sys/class/drm/renderD128/device/uevent",
                          "/dev/kfd",
                          "/dev/dri/renderD128",
                          "/dev/accel/accel0"}) {
      out->push_back(f);
    }
    return out;
  }();
  return *paths;
}

// One folder for the whole run; each input's files are removed after it.
const std::string& Dir() {
  static const std::string* dir = [] {
    auto* name = new std::string("/dev/shm/rumbo-fuzz-XXXXXX");
    RUMBO_CHECK(mkdtemp(name->data()) != nullptr);
    for (const std::string& path : Paths()) {
      std::filesystem::create_directories(std::filesystem::path(*name + path).parent_path());
    }
    std::atexit([] { std::filesystem::remove_all(Dir()); });
    return name;
  }();
  return *dir;
}

void Check(const rumbo::Topology& t) {
  using namespace rumbo;
  for (const MemoryPool& p : t.pools) {
    RUMBO_CHECK(!p.source.empty());
    RUMBO_CHECK(!p.free_bytes || !p.total_bytes || *p.free_bytes <= *p.total_bytes);
    for (const MemoryLimit& l : p.limits) {
      RUMBO_CHECK(l.kind == LimitKind::kCgroup || !l.max_bytes || !p.total_bytes ||
                  l.kind == LimitKind::kOther || *l.max_bytes <= *p.total_bytes);
    }
  }
  for (const Device& d : t.devices) {
    for (const std::string& pool : d.pools) RUMBO_CHECK(t.FindPool(pool) != nullptr);
    RUMBO_CHECK(d.parent.empty() || t.FindDevice(d.parent) != nullptr);
    RUMBO_CHECK(!d.usable || d.accessible);
  }
  RUMBO_CHECK(TopologyFromJson(TopologyToJson(t)).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rumbo;
  std::vector<std::string> written;
  for (size_t at = 0; at + 2 <= size && written.size() < 64;) {
    const std::string path = Dir() + Paths()[data[at] % Paths().size()];
    const size_t length = std::min<size_t>(data[at + 1], size - at - 2);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    RUMBO_CHECK(fd >= 0);
    RUMBO_CHECK(write(fd, data + at + 2, length) == static_cast<ssize_t>(length));
    close(fd);
    written.push_back(path);
    at += 2 + length;
  }
  const Root root(Dir());
  Facts facts;
  facts.live = false;
  PciProbe().Read(root, {})(facts);
  const std::vector<PciFunction> functions = facts.pci;
  for (const Probe* probe : EnrichingProbes()) probe->Read(root, functions)(facts);
  Check(Assemble(facts));
  for (const std::string& path : written) unlink(path.c_str());
  return 0;
}
