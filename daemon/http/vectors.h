#pragma once

#include <string>
#include <vector>

#include "daemon/http/json_out.h"

namespace rumbo {

void AppendVector(JsonWriter& w, const std::vector<float>& vector);

// Little-endian 32-bit floats in base64, what the OpenAI clients ask for.
std::string VectorBase64(const std::vector<float>& vector);

}  // namespace rumbo
