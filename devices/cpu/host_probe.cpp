#include "devices/cpu/host_probe.h"

#include <set>
#include <utility>

namespace rumbo {
namespace {

constexpr size_t kMaxCpuInfo = 8 * kMiB;

// Fills what /proc/cpuinfo leaves out (ARM has no "core id").
void AddTopology(const Root& root, CpuFacts& cpu) {
  if (const auto online = CountCpuList(root.Read("/sys/devices/system/cpu/online").text))
    cpu.logical = online;
  if (const auto nodes = CountCpuList(root.Read("/sys/devices/system/node/online").text))
    cpu.numa_nodes = nodes;
  if (cpu.physical && cpu.sockets) return;
  std::set<std::pair<std::string, std::string>> cores;
  std::set<std::string> packages;
  for (const std::string& name : root.List("/sys/devices/system/cpu")) {
    if (!name.starts_with("cpu") || !ParseU64(std::string_view(name).substr(3))) continue;
    const std::string dir = "/sys/devices/system/cpu/" + name + "/topology/";
    const FileText core = root.Read(dir + "core_id");
    const FileText package = root.Read(dir + "physical_package_id");
    if (!core.ok() || !package.ok()) continue;
    cores.emplace(package.text, core.text);
    packages.insert(package.text);
  }
  if (!cpu.physical && !cores.empty()) cpu.physical = static_cast<int>(cores.size());
  if (!cpu.sockets && !packages.empty()) cpu.sockets = static_cast<int>(packages.size());
}

// "Max locked memory   8388608   8388608   bytes" of /proc/self/limits.
void ReadMemlock(std::string_view limits, HostFacts& out) {
  constexpr std::string_view kName = "Max locked memory";
  for (std::string_view line : Lines(limits)) {
    if (!line.starts_with(kName)) continue;
    const auto words = Words(line.substr(kName.size()));
    if (words.empty()) return;
    if (words[0] == "unlimited")
      out.memlock_unlimited = true;
    else
      out.memlock_limit = ParseU64(words[0]);
  }
}

}  // namespace

HostFacts ReadHost(const Root& root) {
  HostFacts out;
  out.cpu = ParseCpuInfo(root.Read("/proc/cpuinfo", kMaxCpuInfo).text);
  AddTopology(root, out.cpu);
  out.memory = ParseMemInfo(root.Read("/proc/meminfo").text);
  out.cgroup = ReadCgroups(root, root.Read("/proc/self/cgroup").text);
  const FileText status = root.Read("/proc/self/status");
  for (std::string_view line : Lines(status.text)) {
    constexpr std::string_view kAllowed = "Cpus_allowed_list:";
    if (line.starts_with(kAllowed)) out.affinity = CountCpuList(line.substr(kAllowed.size()));
  }
  ReadMemlock(root.Read("/proc/self/limits").text, out);
  const FileText version = root.Read("/proc/version");  // "Linux version 6.18.44-fc-v657 (...)"
  const auto words = Words(version.text);
  if (words.size() > 2) out.kernel = words[2];
  out.command_line = root.Read("/proc/cmdline").text;
  out.wsl = root.Exists("/dev/dxg") || Lower(out.kernel).find("microsoft") != std::string::npos;
  return out;
}

}  // namespace rumbo
