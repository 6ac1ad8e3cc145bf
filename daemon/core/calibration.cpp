#include "daemon/core/calibration.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>

namespace rumbo {
namespace {

constexpr size_t kNewest = 10;
constexpr double kMinRatio = 0.02, kMaxRatio = 50;  // outside: a broken clock, not a machine

bool SameEngine(const CalibrationKey& a, const CalibrationKey& b) {
  return a.engine == b.engine && a.engine_version == b.engine_version && a.engine_build == b.engine_build &&
         a.backend == b.backend && a.device == b.device && a.driver_version == b.driver_version;
}

bool SameFiles(const CalibrationKey& a, const CalibrationKey& b) {
  return !a.model_sha256.empty() && a.model_sha256 == b.model_sha256;
}

std::optional<double> Ratio(std::optional<double> measured, std::optional<double> predicted) {
  if (!measured || !predicted || !(*measured > 0) || !(*predicted > 0)) return std::nullopt;
  const double ratio = *measured / *predicted;
  if (!std::isfinite(ratio) || ratio < kMinRatio || ratio > kMaxRatio) return std::nullopt;
  return ratio;
}

std::optional<double> DecodeRatio(const Measurement& m) {
  return Ratio(m.measured_decode_tok_s, m.predicted_decode_tok_s);
}
std::optional<double> AggregateRatio(const Measurement& m) {
  return Ratio(m.measured_aggregate_tok_s, m.predicted_aggregate_tok_s);
}
std::optional<double> TtftRatio(const Measurement& m) {
  return Ratio(m.measured_ttft_ms, m.predicted_ttft_ms);
}
std::optional<double> LoadRatio(const Measurement& m) { return Ratio(m.measured_load_s, m.predicted_load_s); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : std::sqrt(values[n / 2 - 1] * values[n / 2]);
}

Bytes Sum(const std::vector<MemoryItem>& items, const std::string& what) {
  Bytes sum = 0;
  for (const MemoryItem& item : items) {
    if (item.what == what) sum = SaturatingAdd(sum, item.bytes);
  }
  return sum;
}

// Measurements that stand for each other.
bool SameKind(const Measurement& a, const Measurement& b) {
  return a.tuned == b.tuned && a.measured_memory.empty() == b.measured_memory.empty() &&
         a.measured_decode_tok_s.has_value() == b.measured_decode_tok_s.has_value() &&
         a.measured_ttft_ms.has_value() == b.measured_ttft_ms.has_value() &&
         CalibrationBucket(a.sessions) == CalibrationBucket(b.sessions) &&
         CalibrationBucket(a.prompt_tokens) == CalibrationBucket(b.prompt_tokens) && a.knobs == b.knobs &&
         a.key == b.key;
}

}  // namespace

uint32_t CalibrationBucket(uint32_t n) {
  if (n <= 1) return n;
  const uint32_t low = std::bit_floor(n);
  // 1.41 times the lower power is as near to the one as to the other.
  return uint64_t{n} * n > 2 * uint64_t{low} * low && low < 1u << 31 ? low * 2 : low;
}

std::string TuningKnobs::Text() const {
  std::string out;
  const auto add = [&](const char* name, const std::optional<uint32_t>& value) {
    if (value) out += (out.empty() ? "" : " ") + std::string(name) + "=" + std::to_string(*value);
  };
  add("batch", batch);
  add("threads", threads);
  add("ubatch", ubatch);
  return out;
}

TuningKnobs TuningKnobs::Parse(const std::string& text) {
  TuningKnobs knobs;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const unsigned long value = std::strtoul(word.c_str() + equals + 1, nullptr, 10);
    if (value == 0 || value > 1u << 20) continue;
    const std::string name = word.substr(0, equals);
    if (name == "batch") knobs.batch = static_cast<uint32_t>(value);
    if (name == "threads") knobs.threads = static_cast<uint32_t>(value);
    if (name == "ubatch") knobs.ubatch = static_cast<uint32_t>(value);
  }
  return knobs;
}

namespace {

// Powers of two between both numbers.
double Octaves(uint32_t a, uint32_t b) {
  return std::abs(std::log2(std::max(CalibrationBucket(a), 1u)) -
                  std::log2(std::max(CalibrationBucket(b), 1u)));
}

}  // namespace

struct Corrections::Level {
  const char* source;
  double uncertainty;
  const std::vector<const Measurement*>* among;
  std::function<bool(const Measurement&)> fits;
};

Corrections::Corrections(const Calibration& calibration, const CalibrationKey& key) : key_(key) {
  for (const Measurement& m : calibration.measurements) {
    if (m.key.backend != key.backend || m.key.device != key.device) continue;
    if (SameEngine(m.key, key)) {
      same_.push_back(&m);
    } else if (m.key.engine == key.engine && m.key.engine_build == key.engine_build) {
      if (SameFiles(m.key, key)) stale_.push_back(&m);
    } else if (m.key.driver_version == key.driver_version) {
      kin_.push_back(&m);
    }
  }
}

bool Corrections::SameModel(const Measurement& m) const { return SameFiles(m.key, key_); }

// Of the first level that has any: the measurements at the smallest distance, tuned ones before others, the
// newest ten.
std::optional<Correction> Corrections::Closest(
    const std::vector<Level>& levels, RatioOf ratio_of,
    const std::function<double(const Measurement&)>& distance) const {
  for (const Level& level : levels) {
    std::vector<double> ratios;
    double nearest = 0;
    bool tuned = false;
    for (auto at = level.among->rbegin(); at != level.among->rend(); ++at) {
      const Measurement& m = **at;
      if (!level.fits(m)) continue;
      const auto ratio = ratio_of(m);
      if (!ratio) continue;
      const double far = distance(m);
      // A tuning run had the machine to itself: it outranks what was seen under other load.
      if (ratios.empty() || far < nearest || (far == nearest && m.tuned && !tuned)) {
        ratios.clear();
        nearest = far;
        tuned = m.tuned;
      }
      if (far == nearest && m.tuned == tuned && ratios.size() < kNewest) ratios.push_back(*ratio);
    }
    if (ratios.empty()) continue;
    return Correction{Median(std::move(ratios)), level.uncertainty + (nearest > 0 ? 0.1 : 0), level.source};
  }
  return std::nullopt;
}

bool Corrections::Has(uint32_t sessions, const std::string& knobs, RatioOf ratio_of) const {
  return std::any_of(same_.begin(), same_.end(), [&](const Measurement* m) {
    return SameModel(*m) && m->knobs == knobs && Octaves(m->sessions, sessions) == 0 &&
           ratio_of(*m).has_value();
  });
}

std::optional<Correction> Corrections::OfSessions(uint32_t sessions, const std::string& knobs,
                                                  RatioOf ratio_of) const {
  return Closest(
      {{Has(sessions, knobs, ratio_of) ? "measured here: this model with as many sessions"
                                       : "measured here: this model",
        0.1, &same_, [&](const Measurement& m) { return SameModel(m) && m.knobs == knobs; }},
       {"measured here: this model with other settings", 0.25, &same_,
        [&](const Measurement& m) { return SameModel(m); }},
       {"measured here: models of this quantisation", 0.25, &same_,
        [&](const Measurement& m) { return m.key.quantization == key_.quantization; }},
       {"measured here: other models", 0.35, &same_, [](const Measurement&) { return true; }},
       {"measured here: other builds or engines, this model", 0.35, &kin_,
        [&](const Measurement& m) { return SameModel(m); }},
       {"measured here: other builds or engines", 0.4, &kin_, [](const Measurement&) { return true; }}},
      ratio_of, [&](const Measurement& m) { return Octaves(m.sessions, sessions); });
}

std::optional<Correction> Corrections::Decode(uint32_t sessions, const std::string& knobs) const {
  return OfSessions(sessions, knobs, DecodeRatio);
}

// Only tuning runs measure it; where there is none with as many sessions, it follows each session's own rate.
std::optional<Correction> Corrections::Aggregate(uint32_t sessions, const std::string& knobs) const {
  if (Has(sessions, knobs, AggregateRatio)) return OfSessions(sessions, knobs, AggregateRatio);
  return Decode(sessions, knobs);
}

std::optional<Correction> Corrections::Ttft(uint32_t prompt_tokens, const std::string& knobs) const {
  const auto alone = [](const Measurement& m) { return m.sessions <= 1; };
  return Closest({{"measured here: this model", 0.1, &same_,
                   [&](const Measurement& m) { return SameModel(m) && alone(m) && m.knobs == knobs; }},
                  {"measured here: this model with other settings", 0.2, &same_,
                   [&](const Measurement& m) { return SameModel(m) && alone(m); }},
                  {"measured here: models of this quantisation", 0.25, &same_,
                   [&](const Measurement& m) { return alone(m) && m.key.quantization == key_.quantization; }},
                  {"measured here: other models", 0.35, &same_, alone},
                  {"measured here: other builds or engines, this model", 0.35, &kin_,
                   [&](const Measurement& m) { return SameModel(m) && alone(m); }},
                  {"measured here: other builds or engines", 0.4, &kin_, alone}},
                 TtftRatio, [&](const Measurement& m) { return Octaves(m.prompt_tokens, prompt_tokens); });
}

std::optional<Correction> Corrections::LoadedTtft(uint32_t sessions, uint32_t prompt_tokens,
                                                  const std::string& knobs) const {
  if (sessions > 1 && Has(sessions, knobs, TtftRatio)) return OfSessions(sessions, knobs, TtftRatio);
  return Ttft(prompt_tokens, knobs);
}

std::optional<Correction> Corrections::Load() const {
  return Closest(
      {{"measured here: this model", 0.2, &same_, [&](const Measurement& m) { return SameModel(m); }},
       {"measured here: other models", 0.35, &same_, [](const Measurement&) { return true; }}},
      LoadRatio, [](const Measurement&) { return 0.0; });
}

std::optional<double> Corrections::Memory(const std::string& what) const {
  const auto known = memory_.find(what);
  if (known != memory_.end()) return known->second;
  std::optional<double>& answer = memory_[what];
  const bool general = what == "engine" || what == "compute";
  for (const bool same_model : {true, false}) {
    if (!same_model && !general) break;
    for (auto m = same_.rbegin(); m != same_.rend(); ++m) {
      if (same_model && !SameModel(**m)) continue;
      const Bytes predicted = Sum((*m)->predicted_memory, what), measured = Sum((*m)->measured_memory, what);
      if (predicted == 0 || measured == 0) continue;
      const double ratio = static_cast<double>(measured) / static_cast<double>(predicted);
      if (ratio >= 0.25 && ratio <= 8) return answer = ratio;
    }
  }
  return answer;
}

std::vector<std::string> Corrections::TunedKnobs(uint32_t sessions) const {
  std::vector<std::string> out;
  for (const Measurement* m : same_) {
    if (!m->tuned || !SameModel(*m) || CalibrationBucket(m->sessions) != CalibrationBucket(sessions))
      continue;
    if (std::find(out.begin(), out.end(), m->knobs) == out.end()) out.push_back(m->knobs);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string Corrections::StaleTuning() const {
  for (const Measurement* m : same_) {
    if (m->tuned && SameModel(*m)) return "";
  }
  for (auto m = stale_.rbegin(); m != stale_.rend(); ++m) {
    if ((*m)->tuned) {
      return (*m)->key.engine_version != key_.engine_version
                 ? "version " + (*m)->key.engine_version + " of the engine"
                 : "driver " + ((*m)->key.driver_version.empty() ? "unknown" : (*m)->key.driver_version);
    }
  }
  return "";
}

void AddMeasurement(Calibration& calibration, Measurement measurement) {
  size_t of_its_kind = 0;
  std::vector<Measurement>& all = calibration.measurements;
  for (size_t i = all.size(); i-- > 0;) {
    if (SameKind(all[i], measurement) && ++of_its_kind >= kNewest)
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
  }
  all.push_back(std::move(measurement));
}

}  // namespace rumbo
