#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace rumbo {

// Makes the folder where an engine keeps the prompts of one model (0700), and deletes those of the models
// that were used longest ago where there are more than `most` beside it. Each model's folder keeps within its
// own quota.
absl::Status PreparePromptFolder(const std::string& folder, size_t most = 7);

}  // namespace rumbo
