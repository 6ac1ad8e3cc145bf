#include "daemon/http/vectors.h"

#include <bit>

#include "daemon/http/base64.h"

namespace rumbo {

void AppendVector(JsonWriter& w, const std::vector<float>& vector) {
  w.Open('[');
  for (const float v : vector) w.Float(v);
  w.Close(']');
}

std::string VectorBase64(const std::vector<float>& vector) {
  std::string bytes;
  bytes.reserve(vector.size() * 4);
  for (const float v : vector) {
    const auto bits = std::bit_cast<uint32_t>(v);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((bits >> shift) & 0xff);
  }
  return Base64Encode(bytes);
}

}  // namespace rumbo
