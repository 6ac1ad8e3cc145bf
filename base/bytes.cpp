#include "base/bytes.h"

#include <cstdio>
#include <limits>

namespace rumbo {
namespace {
constexpr Bytes kMax = std::numeric_limits<Bytes>::max();
}

std::string FormatBytes(Bytes bytes) {
  if (bytes < kKiB) return std::to_string(bytes) + " B";
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024.0;
  int unit = 0;
  while (value >= 1024.0 && unit < 5) {
    value /= 1024.0;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, kUnits[unit]);
  return text;
}

std::optional<Bytes> CheckedAdd(Bytes a, Bytes b) {
  Bytes out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

std::optional<Bytes> CheckedMul(Bytes a, Bytes b) {
  Bytes out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

Bytes SaturatingAdd(Bytes a, Bytes b) { return CheckedAdd(a, b).value_or(kMax); }
Bytes SaturatingMul(Bytes a, Bytes b) { return CheckedMul(a, b).value_or(kMax); }
Bytes SaturatingSub(Bytes a, Bytes b) { return a > b ? a - b : 0; }

Bytes RoundUp(Bytes value, Bytes unit) {
  const Bytes rest = value % unit;
  return rest == 0 ? value : SaturatingAdd(value, unit - rest);
}

}  // namespace rumbo
