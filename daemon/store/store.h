#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"
#include "daemon/core/ports.h"

namespace rumbo {

using InspectFn = std::function<absl::StatusOr<ModelDescriptor>(const std::string& path)>;

// Models on disk: content-addressed files under `dir`/blobs (sha256-<hex>, mode 0400) and an index in
// `dir`/models.sqlite (WAL). A file is in the store only once its hash is known, it is synced, renamed and
// indexed; what an interrupted import left is removed at the next start.
//
// Threading: everything runs on `executor`, which may block on the disk and which nothing else needs quickly.
// Errors: kResourceExhausted (kDiskFull) leaves the store as it was.
std::unique_ptr<ModelStore> NewModelStore(std::string dir, InspectFn inspect, Executor* executor,
                                          WallClock* wall);

// kInvalidArgument unless `name` can be a model's: 1 to 200 bytes of letters, digits and ._:/@+- , beginning
// with a letter or digit, without "..", "//" or a trailing slash.
absl::Status CheckModelName(const std::string& name);

}  // namespace rumbo
