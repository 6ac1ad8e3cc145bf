#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/core/calibration.h"

namespace rumbo {

// What was measured on this machine, kept between runs in `path` (SQLite, WAL, mode 0600). Holds the newest
// 2,000 measurements and of each kind the newest 40; older ones go.
//
// Threading: one thread at a time; calls block on the disk. A file that is damaged is put aside as
// `path`.damaged and a new one is begun: measurements are worth nothing against a daemon that does not start.
class CalibrationStore {
 public:
  virtual ~CalibrationStore() = default;

  // Everything, oldest first.
  virtual absl::StatusOr<Calibration> Load() = 0;
  // All of them or none.
  virtual absl::Status Add(const std::vector<Measurement>& batch) = 0;
  // Forgets what was measured of this engine, backend and device; empty fields match all. Returns how many.
  virtual absl::StatusOr<int> Forget(const std::string& engine, const std::string& backend,
                                     const std::string& device) = 0;
};

absl::StatusOr<std::unique_ptr<CalibrationStore>> OpenCalibrationStore(const std::string& path);

}  // namespace rumbo
