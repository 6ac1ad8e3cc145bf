#include "devices/assemble/assemble.h"

#include <algorithm>

#include "devices/assemble/host.h"

namespace rumbo {

Topology Assemble(const Facts& facts) {
  Topology out;
  out.source = "probe";
  out.system = "linux";
  out.findings = facts.findings;
  AddHost(facts, out);
  out.name = out.devices.front().name;

  std::stable_sort(out.devices.begin(), out.devices.end(), [](const Device& a, const Device& b) {
    const bool cpu_a = a.kind == DeviceKind::kCpu && !a.software;
    const bool cpu_b = b.kind == DeviceKind::kCpu && !b.software;
    return cpu_a != cpu_b ? cpu_a : a.id < b.id;
  });
  std::sort(out.pools.begin(), out.pools.end(),
            [](const MemoryPool& a, const MemoryPool& b) { return a.id < b.id; });
  std::stable_sort(out.findings.begin(), out.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return out;
}

}  // namespace rumbo
