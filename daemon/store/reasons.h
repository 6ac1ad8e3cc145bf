#pragma once

#include "base/reason.h"

namespace rumbo {

// What has no word of its own in errors.proto yet.
inline constexpr Reason kDownloadFailed = Reason::kBackendUnavailable;  // the server is unreachable, or lies
inline constexpr Reason kModelIncomplete = Reason::kModelInvalid;       // not downloaded to its end

}  // namespace rumbo
