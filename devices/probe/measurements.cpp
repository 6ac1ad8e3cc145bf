#include "devices/probe/measurements.h"

#include <fmt/format.h>

#include <chrono>

#include "base/os/files.h"
#include "devices/probe/child.h"

namespace rumbo {
namespace {

constexpr size_t kMaxCache = 1 * kMiB;

std::string CachePath(const std::string& dir) { return dir + "/gpu-measured.json"; }

// Faster than any memory or chip, or slower than any: not ours.
bool Plausible(const DeviceMeasurement& m) {
  return (!m.copy_bytes_s || (*m.copy_bytes_s > 1e6 && *m.copy_bytes_s < 1e15)) &&
         (!m.matmul_flops || (*m.matmul_flops > 1e6 && *m.matmul_flops < 1e18));
}

std::vector<DeviceMeasurement> Parse(std::string_view text) {
  auto parsed = json_fields::FromJson<Measurements>(text, "measurements", "");
  if (!parsed.ok()) return {};
  std::vector<DeviceMeasurement> out;
  for (DeviceMeasurement& m : parsed->devices) {
    if (Plausible(m)) out.push_back(std::move(m));
  }
  return out;
}

}  // namespace

std::vector<DeviceMeasurement> MeasureGpus(const std::string& self, std::vector<Finding>& findings) {
  std::vector<DeviceMeasurement> out;
  // One after the other: two at once would share the memory they measure.
  for (const char* what : {"vulkan-measure", "hip-measure"}) {
    const auto outcome = ProbeChild({self, "--vendor", what})
                             .Finish(std::chrono::steady_clock::now() + std::chrono::minutes(1));
    if (!outcome.ok) {
      findings.push_back({Severity::kWarning, "probe.measure_failed", "",
                          fmt::format("{}: {}.", what, outcome.error),
                          "Figures of a table are used instead. Update the GPU's driver and measure again."});
      continue;
    }
    for (DeviceMeasurement& m : Parse(outcome.output)) {
      if (!m.error.empty()) {
        findings.push_back({Severity::kWarning, "probe.measure_failed", "",
                            fmt::format("{} on {}: {}.", what, m.name.empty() ? m.key : m.name, m.error),
                            "Figures of a table are used instead."});
      }
      out.push_back(std::move(m));
    }
  }
  return out;
}

std::vector<DeviceMeasurement> LoadMeasurements(const std::string& cache_dir) {
  if (cache_dir.empty()) return {};
  const auto text = ReadFile(CachePath(cache_dir), kMaxCache);
  return text.ok() ? Parse(*text) : std::vector<DeviceMeasurement>();
}

bool StoreMeasurements(const std::string& cache_dir, const std::vector<DeviceMeasurement>& measured) {
  if (cache_dir.empty() || !MakeDirectories(cache_dir).ok()) return false;
  return WriteFileAtomically(CachePath(cache_dir), json_fields::ToJson(Measurements{"", measured})).ok();
}

}  // namespace rumbo
