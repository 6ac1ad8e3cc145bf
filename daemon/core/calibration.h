#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "engines/api/settings.h"

// What was measured on this machine, as values, and how it corrects predictions. The store keeps it
// (daemon/store/calibration_store.h); the core adds to it; the planner reads a snapshot.
namespace rumbo {

// What a measurement is about. A new engine version or driver makes older ones stale: they no longer match.
struct CalibrationKey {
  std::string engine;
  std::string engine_version;
  std::string engine_build;
  std::string backend;
  std::string device;  // Device::name of every device, joined by '+'
  std::string driver_version;
  std::string model_sha256;  // "" unknown
  std::string quantization;

  bool operator==(const CalibrationKey&) const = default;
};

// One finished load or run, predicted (before corrections) beside measured.
struct Measurement {
  CalibrationKey key;
  uint32_t sessions = 1;  // running together
  uint32_t context_total = 0;
  std::vector<MemoryItem> predicted_memory;
  std::vector<MemoryItem> measured_memory;
  std::optional<double> predicted_decode_tok_s, measured_decode_tok_s;  // one session
  // All sessions together, prompts included; only of tuning runs.
  std::optional<double> predicted_aggregate_tok_s, measured_aggregate_tok_s;
  // `predicted` is of one request alone; `measured` is the median while `sessions` began together.
  std::optional<double> predicted_ttft_ms, measured_ttft_ms;
  std::optional<double> predicted_load_s, measured_load_s;
  uint32_t prompt_tokens = 0;
  std::string knobs;  // settings other than the planner's own, as TuningKnobs::Text(); "" none
  int64_t unix_s = 0;
  bool tuned = false;  // by a tuning run, on an otherwise idle machine
};

struct Calibration {
  std::vector<Measurement> measurements;  // newest last
};

// Settings of a layered engine that change its speed and not its answers, for a tuning run to try. Absent:
// the planner's own.
struct TuningKnobs {
  std::optional<uint32_t> threads, batch, ubatch;

  // "threads=2 ubatch=256"; "" where nothing is set. Equal knobs, equal text.
  std::string Text() const;
  // The inverse; what is not understood is left out.
  static TuningKnobs Parse(const std::string& text);
};

// How a prediction is to be corrected. Factors multiply it.
struct Correction {
  double factor = 1;
  double uncertainty = 0.5;  // relative, of the corrected value
  std::string source;        // "measured here: this model", "measured here: other models" ...
};

// The power of two nearest to `n`: session counts and prompt lengths are compared by it.
uint32_t CalibrationBucket(uint32_t n);

// The measurements that concern one engine, backend, device and model, picked once, so that each correction
// is cheap. Borrows `calibration`. One thread.
class Corrections {
 public:
  Corrections() = default;
  Corrections(const Calibration& calibration, const CalibrationKey& key);

  bool empty() const { return same_.empty() && kin_.empty(); }

  // Of decode tokens/s of each and of all sessions; nullopt where nothing comparable was measured. The
  // closest measurements win: this model, models of the same quantisation, any model, and at last other
  // builds and engines on this backend and device: so that one is not preferred because it alone was never
  // measured. Of these, the ones with the nearest number of sessions; among equals, the median of the newest
  // ten; a tuning run outranks what was seen under other load.
  std::optional<Correction> Decode(uint32_t sessions, const std::string& knobs = "") const;
  std::optional<Correction> Aggregate(uint32_t sessions, const std::string& knobs = "") const;
  // Of the time to first token of one request alone, and of one among `sessions` that begin together.
  std::optional<Correction> Ttft(uint32_t prompt_tokens, const std::string& knobs = "") const;
  std::optional<Correction> LoadedTtft(uint32_t sessions, uint32_t prompt_tokens,
                                       const std::string& knobs = "") const;
  std::optional<Correction> Load() const;

  // Measured over predicted bytes of one kind of memory, for this model with this engine on this device, else
  // for any model with them (kinds that do not depend on the model: "engine", "compute"); nullopt where
  // unknown. Between 0.25 and 8: anything else is a mistake, not a measurement.
  std::optional<double> Memory(const std::string& what) const;

  // Knobs that a tuning run tried for this model with about so many sessions, "" among them where it was.
  std::vector<std::string> TunedKnobs(uint32_t sessions) const;
  // This model was tuned with another version of the engine or driver, and not with this one: "0.4.0".
  std::string StaleTuning() const;

 private:
  struct Level;
  using RatioOf = std::optional<double> (*)(const Measurement&);
  std::optional<Correction> Closest(const std::vector<Level>& levels, RatioOf ratio_of,
                                    const std::function<double(const Measurement&)>& distance) const;
  // This model was measured with about so many sessions.
  bool Has(uint32_t sessions, const std::string& knobs, RatioOf ratio_of) const;
  std::optional<Correction> OfSessions(uint32_t sessions, const std::string& knobs, RatioOf ratio_of) const;
  bool SameModel(const Measurement& m) const;

  CalibrationKey key_;
  std::vector<const Measurement*> same_;   // this engine, build, backend, device, driver
  std::vector<const Measurement*> kin_;    // other engines or builds on this backend and device
  std::vector<const Measurement*> stale_;  // this engine and model with another version or driver
  mutable std::map<std::string, std::optional<double>> memory_;
};

// Adds `measurement`, and drops the oldest of its kind beyond the ten newest, which are all that is looked
// at: so many keys cannot crowd each other out and plans stay quick.
void AddMeasurement(Calibration& calibration, Measurement measurement);

}  // namespace rumbo
