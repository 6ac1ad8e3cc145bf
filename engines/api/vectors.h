#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace rumbo {

// Keeps the first `dimensions` values (0: all), at unit length again where `normalize`. kInvalidArgument
// where the vector has fewer. O(values).
absl::Status Shorten(uint32_t dimensions, bool normalize, std::vector<float>* vector);

}  // namespace rumbo
