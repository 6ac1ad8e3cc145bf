#pragma once

#include <string>

#include "devices/assemble/assemble.h"
#include "devices/probe/gather.h"
#include "devices/testing/fake_tree.h"

// Synthetic machines for tests: the files that such a kernel shows, written from what is known about it.
namespace rumbo {

inline std::string Mib(uint64_t n) { return std::to_string(n * kMiB); }
inline std::string GibBytes(uint64_t n) { return std::to_string(n * kGiB); }

inline Facts FactsOf(const FakeTree& tree) {
  GatherOptions options;
  options.vendor_libraries = false;
  options.deadline = std::chrono::minutes(2);  // tests run beside others
  return Gather(tree.root(), options).facts;
}
inline Topology TopologyOf(const FakeTree& tree) { return Assemble(FactsOf(tree)); }

inline void AddMemory(FakeTree& tree, uint64_t total_gib, uint64_t available_gib) {
  tree.File("/proc/meminfo", "MemTotal: " + std::to_string(total_gib * 1024 * 1024) + " kB\nMemAvailable: " +
                                 std::to_string(available_gib * 1024 * 1024) + " kB\n");
}

struct PciSpec {
  std::string address;
  std::string vendor = "0x1002";
  std::string device;
  std::string revision = "0x00";
  std::string pci_class = "0x030000";
  std::string driver;  // "" none bound
};

// A function on the bus with links as sysfs has them. Returns its folder.
inline std::string AddPci(FakeTree& tree, const PciSpec& spec, const std::string& behind = "") {
  const std::string real =
      "/sys/devices/pci0000:00" + (behind.empty() ? "" : "/" + behind) + "/" + spec.address;
  tree.File(real + "/vendor", spec.vendor + "\n").File(real + "/device", spec.device + "\n");
  tree.File(real + "/revision", spec.revision + "\n").File(real + "/class", spec.pci_class + "\n");
  tree.File(real + "/numa_node", "-1\n");
  std::string up = "../../../devices/pci0000:00/" + (behind.empty() ? "" : behind + "/") + spec.address;
  tree.Link("/sys/bus/pci/devices/" + spec.address, up);
  if (!spec.driver.empty()) tree.Link(real + "/driver", "/sys/bus/pci/drivers/" + spec.driver);
  return real;
}

// DRM nodes of a function: card<n>, renderD<128+n>, and the device node.
inline void AddDrm(FakeTree& tree, const std::string& address, int n) {
  const std::string device = "../../../bus/pci/devices/" + address;
  tree.Link("/sys/class/drm/card" + std::to_string(n) + "/device", device);
  tree.Dir("/sys/class/drm/card" + std::to_string(n) + "-DP-1");
  tree.Link("/sys/class/drm/renderD" + std::to_string(128 + n) + "/device", device);
  tree.File("/dev/dri/renderD" + std::to_string(128 + n), "");
}

struct KfdSpec {
  int node = 1;
  int simds = 0;
  uint64_t gfx = 0;
  uint64_t location = 0;
  uint64_t device = 0;
  int render = 128;
  uint64_t bank_bytes = 0;
  uint64_t unique = 0;
  std::string extra;
};

inline void AddKfd(FakeTree& tree, const KfdSpec& s) {
  const std::string dir = "/sys/class/kfd/kfd/topology/nodes/" + std::to_string(s.node);
  tree.File(dir + "/properties",
            "cpu_cores_count 0\nsimd_count " + std::to_string(s.simds) + "\nsimd_per_cu " +
                (s.gfx >= 100000 ? "2" : "4") + "\ngfx_target_version " + std::to_string(s.gfx) +
                "\nvendor_id 4098\ndevice_id " + std::to_string(s.device) + "\nlocation_id " +
                std::to_string(s.location) + "\ndomain 0\ndrm_render_minor " + std::to_string(s.render) +
                "\nunique_id " + std::to_string(s.unique) + "\nlocal_mem_size 0\n" + s.extra);
  tree.File(dir + "/name", "ip discovery\n");
  if (s.bank_bytes > 0) {
    tree.File(dir + "/mem_banks/0/properties",
              "heap_type 1\nsize_in_bytes " + std::to_string(s.bank_bytes) + "\n");
  }
  tree.File("/sys/class/kfd/kfd/topology/nodes/0/properties",
            "cpu_cores_count 32\nsimd_count 0\ngfx_target_version 0\n");
  tree.File("/dev/kfd", "");
}

inline void AddAmdMemory(FakeTree& tree, const std::string& dir, uint64_t vram, uint64_t vram_used,
                         uint64_t gtt, uint64_t gtt_used) {
  tree.File(dir + "/mem_info_vram_total", std::to_string(vram) + "\n")
      .File(dir + "/mem_info_vram_used", std::to_string(vram_used) + "\n");
  tree.File(dir + "/mem_info_vis_vram_total", std::to_string(vram) + "\n");
  tree.File(dir + "/mem_info_gtt_total", std::to_string(gtt) + "\n")
      .File(dir + "/mem_info_gtt_used", std::to_string(gtt_used) + "\n");
}

inline void AddDiscovery(FakeTree& tree, const std::string& dir, int major, int minor, int revision) {
  const std::string gc = dir + "/ip_discovery/die/0/11/0/";
  tree.File(gc + "major", std::to_string(major))
      .File(gc + "minor", std::to_string(minor))
      .File(gc + "revision", std::to_string(revision));
}

// Ryzen AI Max+ 395 at c5:00.0. `total_gib` is what Linux sees, without the carve-out.
inline std::string AddStrixHalo(FakeTree& tree, uint64_t vram, uint64_t gtt, uint64_t total_gib,
                                uint64_t available_gib) {
  AddMemory(tree, total_gib, available_gib);
  const std::string dir = AddPci(tree, {"0000:c5:00.0", "0x1002", "0x1586", "0xc1", "0x038000", "amdgpu"});
  AddDrm(tree, "0000:c5:00.0", 1);
  AddAmdMemory(tree, dir, vram, 0, gtt, 0);
  AddDiscovery(tree, dir, 11, 5, 1);
  AddKfd(tree, {1, 80, 110501, 0xc500, 0x1586, 129, gtt, 0, "cwsr_size 1\n"});
  tree.File("/sys/module/ttm/parameters/pages_limit", std::to_string(gtt / 4096) + "\n");
  return dir;
}

// Radeon AI PRO R9700 as card `n` at bus 0x03 + 0x20 * n.
inline std::string AddR9700(FakeTree& tree, int n, uint64_t used = 0) {
  char address[16];
  std::snprintf(address, sizeof address, "0000:%02x:00.0", 3 + 0x20 * n);
  const std::string dir = AddPci(tree, {address, "0x1002", "0x7551", "0xc0", "0x030000", "amdgpu"});
  AddDrm(tree, address, n + 2);
  AddAmdMemory(tree, dir, 34208743424u, used, 67108864000u, 0);
  tree.File(dir + "/board_info", "type : oam\n").File(dir + "/mem_info_vram_vendor", "samsung\n");
  tree.File(dir + "/max_link_speed", "32.0 GT/s PCIe\n").File(dir + "/current_link_speed", "2.5 GT/s PCIe\n");
  tree.File(dir + "/current_link_width", "16\n");
  AddDiscovery(tree, dir, 12, 0, 1);
  AddKfd(tree, {n + 2, 128, 120001, static_cast<uint64_t>(3 + 0x20 * n) << 8, 0x7551, 130 + n, 34208743424u,
                static_cast<uint64_t>(900 + n), ""});
  return dir;
}

}  // namespace rumbo
