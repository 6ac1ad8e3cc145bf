#include <algorithm>

#include "base/bytes.h"
#include "sdk/cli/render.h"

namespace rumbo::cli {
namespace {

constexpr int kBarWidth = 24;

struct Branches {
  explicit Branches(const Screen& screen)
      : fork(screen.utf8 ? "├─ " : "|- "),
        last(screen.utf8 ? "└─ " : "`- "),
        trunk(screen.utf8 ? "│  " : "|  ") {}
  std::string fork, last, trunk;
};

std::string Amount(const std::optional<uint64_t>& bytes) { return bytes ? FormatBytes(*bytes) : "unknown"; }

// Used, by a bar where both figures are known.
std::string UsedBar(const Screen& screen, const std::optional<uint64_t>& used,
                    const std::optional<uint64_t>& total) {
  if (!used || !total || *total == 0) return "";
  return Bar(screen, static_cast<double>(*used) / static_cast<double>(*total), kBarWidth) + " ";
}

std::string PoolLine(const MemoryPool& pool, const Screen& screen) {
  std::optional<uint64_t> used;
  if (pool.total_bytes && pool.free_bytes) used = SaturatingSub(*pool.total_bytes, *pool.free_bytes);
  std::string line = Paint(screen, Style::kBold, Safe(pool.id));
  if (pool.kind != pool.id) line += " (" + Safe(pool.kind) + ")";
  line += "  " + UsedBar(screen, used, pool.total_bytes) + Amount(pool.free_bytes) + " free of " +
          Amount(pool.total_bytes);
  if (pool.reserved_bytes && *pool.reserved_bytes > 0)
    line += ", " + FormatBytes(*pool.reserved_bytes) + " promised";
  if (!pool.source.empty()) line += "  " + Paint(screen, Style::kDim, Safe(pool.source));
  return line;
}

std::string LimitLine(const MemoryLimit& limit, const Screen& screen) {
  std::string line = "limit " + Safe(limit.id) + "  " + UsedBar(screen, limit.used_bytes, limit.max_bytes);
  line += "at most " + Amount(limit.max_bytes);
  if (limit.used_bytes) line += ", " + FormatBytes(*limit.used_bytes) + " used";
  if (!limit.source.empty()) line += "  " + Paint(screen, Style::kDim, Safe(limit.source));
  return line;
}

std::string Verdict(const Device& device, const Screen& screen) {
  if (device.usable) return Paint(screen, Style::kGood, "usable");
  if (!device.present) return Paint(screen, Style::kBad, "not present");
  if (!device.accessible) return Paint(screen, Style::kBad, "not accessible");
  return Paint(screen, Style::kBad, "not usable");
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// How much of `pool` the backend may take on `device`, others and promises aside; nullopt where unknown.
std::optional<uint64_t> Reach(const MemoryPool& pool, const Device& device, const Backend& backend) {
  std::optional<uint64_t> most = pool.total_bytes;
  const std::string key = device.id.substr(device.id.find('-') + 1);
  for (const auto& limit : pool.limits) {
    // Limits of one device end with its name; KFD's are for HIP alone.
    const bool mine = EndsWith(limit.id, key) || limit.id == "limit-ttm" || limit.kind == "cgroup";
    if (!mine || (limit.kind == "kfd" && backend.name != "hip") || !limit.max_bytes) continue;
    most = std::min(most.value_or(*limit.max_bytes), *limit.max_bytes);
  }
  return most;
}

// "vulkan sees 94.7 GiB", "hip sees 64.0 GiB in one pool": only where there are several pools.
std::string View(const Topology& topology, const Device& device, const Backend& backend) {
  if (!backend.usable || backend.pools.size() < 2) return "";
  uint64_t sum = 0, largest = 0;
  for (const auto& pool : topology.pools) {
    if (std::find(backend.pools.begin(), backend.pools.end(), pool.id) == backend.pools.end()) continue;
    const auto reach = Reach(pool, device, backend);
    if (!reach) return "";
    sum = SaturatingAdd(sum, *reach);
    largest = std::max(largest, *reach);
  }
  return backend.may_span_pools ? " sees " + FormatBytes(sum)
                                : " sees " + FormatBytes(largest) + " in one pool";
}

std::string DeviceFigures(const Topology& topology, const Device& device) {
  std::vector<std::string> parts;
  if (device.cores_physical) parts.push_back(std::to_string(*device.cores_physical) + " cores");
  if (device.threads_allowed) parts.push_back(std::to_string(*device.threads_allowed) + " threads allowed");
  if (device.compute_units) parts.push_back(std::to_string(*device.compute_units) + " compute units");
  if (device.bandwidth_bytes_s) {
    parts.push_back(Short(*device.bandwidth_bytes_s / 1e9) + " GB/s" +
                    (device.bandwidth_source.empty() ? "" : " (" + Safe(device.bandwidth_source) + ")"));
  }
  for (const auto& backend : device.backends) {
    parts.push_back(Safe(backend.name) +
                    (backend.usable ? View(topology, device, backend) : std::string(" unusable")));
  }
  return Join(parts, ", ");
}

std::vector<std::string> DeviceLines(const Topology& topology, const Device& device, const std::string& under,
                                     const Screen& screen) {
  std::vector<std::string> lines;
  std::string head =
      Paint(screen, Style::kBold, Safe(device.id)) + "  " + Safe(device.kind) + "  " + Safe(device.name);
  if (device.software) head += " (software)";
  lines.push_back(head + "  " + Verdict(device, screen));
  std::string figures = DeviceFigures(topology, device);
  std::vector<std::string> others;
  for (const auto& pool : device.pools) {
    if (pool != under) others.push_back(Safe(pool));
  }
  if (!others.empty()) figures += (figures.empty() ? "" : ", ") + ("also uses " + Join(others, " and "));
  if (!figures.empty()) lines.push_back("  " + figures);
  if (!device.reason.empty()) lines.push_back("  why: " + Safe(device.reason));
  if (!device.remedy.empty()) lines.push_back("  do:  " + Safe(device.remedy));
  for (const auto& backend : device.backends) {
    if (!backend.usable && !backend.reason.empty()) {
      lines.push_back("  " + Safe(backend.name) + ": " + Safe(backend.reason));
    }
  }
  return lines;
}

// A pool's head line and below it its children, each of one or more lines.
std::string Tree(const std::string& head, const std::vector<std::vector<std::string>>& children,
                 const Branches& branch) {
  std::string out = head + "\n";
  for (size_t i = 0; i < children.size(); ++i) {
    const bool last = i + 1 == children.size();
    for (size_t k = 0; k < children[i].size(); ++k) {
      out += k == 0 ? (last ? branch.last : branch.fork) : (last ? "   " : branch.trunk);
      out += children[i][k] + "\n";
    }
  }
  return out;
}

}  // namespace

std::string RenderTopology(const Topology& topology, const Screen& screen) {
  const Branches branch(screen);
  std::string out;
  if (topology.source.rfind("profile:", 0) == 0) {
    out += "Profile " + Safe(topology.source.substr(8)) +
           (topology.name.empty() ? "" : ": " + Safe(topology.name)) + "\n";
  }
  std::vector<bool> shown(topology.devices.size());
  for (const auto& pool : topology.pools) {
    std::vector<std::vector<std::string>> children;
    for (const auto& limit : pool.limits) children.push_back({LimitLine(limit, screen)});
    for (size_t i = 0; i < topology.devices.size(); ++i) {
      const Device& device = topology.devices[i];
      if (device.pools.empty() || device.pools.front() != pool.id) continue;
      shown[i] = true;
      children.push_back(DeviceLines(topology, device, pool.id, screen));
    }
    out += Tree(PoolLine(pool, screen), children, branch);
  }
  std::vector<std::vector<std::string>> rest;
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    if (!shown[i]) rest.push_back(DeviceLines(topology, topology.devices[i], "", screen));
  }
  if (!rest.empty()) out += Tree("without known memory", rest, branch);
  for (const auto& finding : topology.findings) {
    const Style style = finding.severity == "broken"    ? Style::kBad
                        : finding.severity == "warning" ? Style::kWarn
                                                        : Style::kDim;
    out += Paint(screen, style, Safe(finding.severity)) + "  " + Safe(finding.text);
    if (!finding.remedy.empty()) out += " " + Safe(finding.remedy);
    out += "\n";
  }
  if (topology.devices.empty() && topology.pools.empty()) out += "The daemon knows of no device.\n";
  return out;
}

}  // namespace rumbo::cli
