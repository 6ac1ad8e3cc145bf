#include "daemon/core/calibration.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace rumbo {
namespace {

constexpr size_t kNewest = 10;
constexpr double kMinRatio = 0.02, kMaxRatio = 50;  // outside: a broken clock, not a machine

bool SameEngine(const CalibrationKey& a, const CalibrationKey& b) {
  return a.engine == b.engine && a.engine_version == b.engine_version && a.engine_build == b.engine_build &&
         a.backend == b.backend && a.device == b.device && a.driver_version == b.driver_version;
}

bool SameModel(const CalibrationKey& a, const CalibrationKey& b) {
  return !a.model_sha256.empty() && a.model_sha256 == b.model_sha256;
}

std::optional<double> Ratio(std::optional<double> measured, std::optional<double> predicted) {
  if (!measured || !predicted || !(*measured > 0) || !(*predicted > 0)) return std::nullopt;
  const double ratio = *measured / *predicted;
  if (!std::isfinite(ratio) || ratio < kMinRatio || ratio > kMaxRatio) return std::nullopt;
  return ratio;
}

struct Level {
  const char* source;
  double uncertainty;
  std::function<bool(const Measurement&)> fits;
};

std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : std::sqrt(values[n / 2 - 1] * values[n / 2]);
}

std::optional<Correction> Closest(const Calibration& calibration, const std::vector<Level>& levels,
                                  const std::function<std::optional<double>(const Measurement&)>& ratio_of) {
  for (const Level& level : levels) {
    std::vector<double> ratios;
    bool tuned = false;
    for (auto m = calibration.measurements.rbegin(); m != calibration.measurements.rend(); ++m) {
      if (!level.fits(*m) || ratios.size() >= kNewest) continue;
      const auto ratio = ratio_of(*m);
      if (!ratio) continue;
      // A tuning run had the machine to itself: it outranks what was seen under other load.
      if (m->tuned && !tuned) ratios.clear(), tuned = true;
      if (tuned == m->tuned) ratios.push_back(*ratio);
    }
    if (const auto median = Median(ratios)) return Correction{*median, level.uncertainty, level.source};
  }
  return std::nullopt;
}

std::vector<Level> SpeedLevels(const CalibrationKey& key, uint32_t sessions) {
  return {
      {"measured here: this model with as many sessions", 0.1,
       [=](const Measurement& m) {
         return SameEngine(m.key, key) && SameModel(m.key, key) && m.sessions == sessions;
       }},
      {"measured here: this model", 0.2,
       [=](const Measurement& m) { return SameEngine(m.key, key) && SameModel(m.key, key); }},
      {"measured here: models of this quantisation", 0.25,
       [=](const Measurement& m) {
         return SameEngine(m.key, key) && m.key.quantization == key.quantization;
       }},
      {"measured here: other models", 0.35, [=](const Measurement& m) { return SameEngine(m.key, key); }}};
}

Bytes Sum(const std::vector<MemoryItem>& items, const std::string& what) {
  Bytes sum = 0;
  for (const MemoryItem& item : items) {
    if (item.what == what) sum = SaturatingAdd(sum, item.bytes);
  }
  return sum;
}

}  // namespace

std::optional<Correction> DecodeCorrection(const Calibration& calibration, const CalibrationKey& key,
                                           uint32_t sessions) {
  return Closest(calibration, SpeedLevels(key, sessions), [](const Measurement& m) {
    return Ratio(m.measured_decode_tok_s, m.predicted_decode_tok_s);
  });
}

std::optional<Correction> TtftCorrection(const Calibration& calibration, const CalibrationKey& key,
                                         uint32_t sessions) {
  return Closest(calibration, SpeedLevels(key, sessions),
                 [](const Measurement& m) { return Ratio(m.measured_ttft_ms, m.predicted_ttft_ms); });
}

std::optional<Correction> LoadCorrection(const Calibration& calibration, const CalibrationKey& key) {
  return Closest(calibration, SpeedLevels(key, 0),
                 [](const Measurement& m) { return Ratio(m.measured_load_s, m.predicted_load_s); });
}

std::optional<double> MemoryCorrection(const Calibration& calibration, const CalibrationKey& key,
                                       const std::string& what) {
  const bool general = what == "engine" || what == "compute";
  for (const bool same_model : {true, false}) {
    if (!same_model && !general) break;
    for (auto m = calibration.measurements.rbegin(); m != calibration.measurements.rend(); ++m) {
      if (!SameEngine(m->key, key) || (same_model && !SameModel(m->key, key))) continue;
      const Bytes predicted = Sum(m->predicted_memory, what), measured = Sum(m->measured_memory, what);
      if (predicted == 0 || measured == 0) continue;
      const double ratio = static_cast<double>(measured) / static_cast<double>(predicted);
      if (ratio >= 0.25 && ratio <= 8) return ratio;
    }
  }
  return std::nullopt;
}

}  // namespace rumbo
