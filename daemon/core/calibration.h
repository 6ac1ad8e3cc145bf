#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "engines/api/settings.h"

// What was measured on this machine, as values, and how it corrects predictions. The store keeps it
// (daemon/store/calibration_store.h); the planner reads a snapshot.
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
  std::optional<double> predicted_ttft_ms, measured_ttft_ms;
  std::optional<double> predicted_load_s, measured_load_s;
  uint32_t prompt_tokens = 0;
  int64_t unix_s = 0;
  bool tuned = false;  // by a tuning run, on an otherwise idle machine
};

struct Calibration {
  std::vector<Measurement> measurements;  // newest last
};

// How a prediction is to be corrected. Factors multiply it.
struct Correction {
  double factor = 1;
  double uncertainty = 0.5;  // relative, of the corrected value
  std::string source;        // "measured here: this model", "measured here: other models" ...
};

// The corrections for decode tokens/s and time to first token of `key` with `sessions` sessions; nullopt
// where nothing comparable was measured. The closest measurements win: this model with as many sessions, this
// model, models of the same quantisation, any model through this backend on this device. Among equals, the
// median of the newest ten.
std::optional<Correction> DecodeCorrection(const Calibration& calibration, const CalibrationKey& key,
                                           uint32_t sessions);
std::optional<Correction> TtftCorrection(const Calibration& calibration, const CalibrationKey& key,
                                         uint32_t sessions);
std::optional<Correction> LoadCorrection(const Calibration& calibration, const CalibrationKey& key);

// Measured over predicted bytes of one kind of memory, for this model with this engine on this device, else
// for any model with them (kinds that do not depend on the model: "engine", "compute"); nullopt where
// unknown. Between 0.25 and 8: anything else is a mistake, not a measurement.
std::optional<double> MemoryCorrection(const Calibration& calibration, const CalibrationKey& key,
                                       const std::string& what);

}  // namespace rumbo
