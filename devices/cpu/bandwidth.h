#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace rumbo {

// What reading main memory sustains here, with `threads` threads at once.
struct BandwidthMeasurement {
  double bytes_per_s = 0;
  int threads = 0;
  Bytes buffer_bytes = 0;
  std::string cpu;  // CpuFacts::model it was measured on
};

// Reads a buffer well above the caches again and again for about `budget`, all threads together, and
// keeps the best pass (STREAM's rule). nullopt where the buffer cannot be had. Blocks; uses every CPU
// it is given, so callers run it in the background or on request.
std::optional<BandwidthMeasurement> MeasureReadBandwidth(int threads, std::optional<Bytes> available,
                                                         std::chrono::milliseconds budget);

// The measurement kept in `cache_dir` ("cpu-bandwidth.json"), if it was made on this CPU with this many
// threads; nullopt otherwise, also where the file is broken.
std::optional<BandwidthMeasurement> LoadBandwidth(const std::string& cache_dir, const std::string& cpu,
                                                  int threads);
// Best effort: a cache that cannot be written costs the next measurement, nothing else.
bool StoreBandwidth(const std::string& cache_dir, const BandwidthMeasurement& measurement);

}  // namespace rumbo
