#pragma once

#include <string>
#include <vector>

#include "daemon/http/json_out.h"

namespace rumbo {

// The first `dimensions` values, brought back to unit length; the whole vector for 0 or more than there are.
std::vector<float> Shortened(std::vector<float> vector, uint32_t dimensions);

void AppendVector(JsonWriter& w, const std::vector<float>& vector);

// Little-endian 32-bit floats in base64, what the OpenAI clients ask for.
std::string VectorBase64(const std::vector<float>& vector);

}  // namespace rumbo
