#pragma once

#include <memory>

#include "base/executor.h"
#include "daemon/core/ports.h"
#include "daemon/store/calibration_store.h"

namespace rumbo {

// Writes measurements to `store` in batches on `executor`, which may block on the disk and outlives this:
// two seconds after the first of a batch, or as soon as there are 64. A daemon that is killed loses the batch
// that was not written yet and nothing else. At most 1,024 wait; beyond that, the oldest go. A disk that
// fails is logged once per batch, and the batch is lost: the daemon runs on.
//
// Threading: Add from any thread. The destructor writes what waits, on the calling thread.
std::unique_ptr<MeasurementLog> NewMeasurementLog(std::unique_ptr<CalibrationStore> store,
                                                  Executor* executor);

}  // namespace rumbo
