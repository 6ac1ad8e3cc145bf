#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "engines/api/settings.h"

// What was measured on this machine, as values. The store keeps it; the planner reads a snapshot.
namespace rumbo {

// What a measurement is about. A new engine version or driver makes older ones stale: they no longer match.
struct CalibrationKey {
  std::string engine;
  std::string engine_version;
  std::string engine_build;
  std::string backend;
  std::string device;          // Device::name and id of the first device, "name|id"
  std::string driver_version;
  std::string model_sha256;    // "" unknown
  std::string quantization;
  std::string architecture;
};

// One finished load or run, predicted beside measured.
struct Measurement {
  CalibrationKey key;
  uint32_t sessions = 1;       // running together
  uint32_t context_total = 0;
  std::vector<MemoryItem> predicted_memory;
  std::vector<MemoryItem> measured_memory;
  std::optional<double> predicted_decode_tok_s, measured_decode_tok_s;
  std::optional<double> predicted_ttft_ms, measured_ttft_ms;  // at prompt_tokens
  std::optional<double> predicted_load_s, measured_load_s;
  uint32_t prompt_tokens = 0;
  int64_t unix_s = 0;
  bool tuned = false;          // by `rumbo tune`, on an otherwise idle machine
};

struct Calibration {
  std::vector<Measurement> measurements;  // newest last
};

}  // namespace rumbo
