#include "devices/assemble/assemble.h"

#include <fmt/format.h>

#include <algorithm>

#include "devices/assemble/gpu.h"
#include "devices/assemble/host.h"
#include "devices/assemble/npu.h"
#include "devices/assemble/runtimes.h"

namespace rumbo {
namespace {

// Host CPU, then GPUs with the secondary ones last, NPUs, software renderers; by id within each.
int Rank(const Device& d) {
  if (d.software) return 4;
  switch (d.kind) {
    case DeviceKind::kCpu:
      return 0;
    case DeviceKind::kGpu:
      return d.secondary ? 2 : 1;
    case DeviceKind::kNpu:
      return 3;
  }
  return 5;
}

std::string Summary(const Topology& t) {
  std::string out;
  for (const Device& d : t.devices) {
    if (d.software || !d.parent.empty()) continue;
    out += (out.empty() ? "" : " + ") + d.name;
  }
  return out;
}

}  // namespace

Topology Assemble(const Facts& facts, const ChipTable& chips) {
  Topology out;
  out.source = "probe";
  out.system = "linux";
  out.findings = facts.findings;
  AddHost(facts, out);
  AddGpus(facts, chips, out);
  AddNpus(facts, chips, out);
  AddRuntimeFindings(facts, out);

  std::stable_sort(out.devices.begin(), out.devices.end(), [](const Device& a, const Device& b) {
    return Rank(a) != Rank(b) ? Rank(a) < Rank(b) : a.id < b.id;
  });
  std::sort(out.pools.begin(), out.pools.end(),
            [](const MemoryPool& a, const MemoryPool& b) { return a.id < b.id; });
  std::stable_sort(out.findings.begin(), out.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  out.name = Summary(out);
  const bool xgmi =
      std::any_of(facts.kfd.gpus.begin(), facts.kfd.gpus.end(), [](const KfdNode& n) { return n.xgmi; });
  if (xgmi) out.interconnect = "xgmi";
  return out;
}

}  // namespace rumbo
