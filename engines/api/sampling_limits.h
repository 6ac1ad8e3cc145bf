#pragma once

#include "absl/status/status.h"
#include "engines/api/request.h"

namespace rumbo {

// The ranges of rumbo.v1.Sampling, checked in one place for every front door and again by workers.
// kInvalidArgument naming the field, the value and the range; NaN and infinities are in no range (but
// -infinity as a logit bias). kInvalidUtf8 where text is not UTF-8.
absl::Status ValidateSampling(const SamplingParams& sampling);

// The same for a whole request: its input (not empty, valid UTF-8, known roles, limits on counts and sizes)
// and sampling.
absl::Status ValidateGenerateRequest(const GenerateRequest& request);

}  // namespace rumbo
