#include "engines/api/vectors.h"

#include <cmath>
#include <string>

#include "base/status.h"

namespace rumbo {

absl::Status Shorten(uint32_t dimensions, bool normalize, std::vector<float>* vector) {
  if (dimensions > vector->size()) {
    return InvalidArgument("dimensions is " + std::to_string(dimensions) + ", but the model's vectors have " +
                               std::to_string(vector->size()) + " values",
                           "Ask for at most so many, or leave dimensions out.");
  }
  if (dimensions == 0 || dimensions == vector->size()) return absl::OkStatus();
  vector->resize(dimensions);
  if (!normalize) return absl::OkStatus();
  double sum = 0;
  for (const float value : *vector) sum += double{value} * value;
  const double factor = sum > 0 ? 1 / std::sqrt(sum) : 0;
  for (float& value : *vector) value = static_cast<float>(value * factor);
  return absl::OkStatus();
}

}  // namespace rumbo
