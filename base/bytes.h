#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rumbo {

using Bytes = uint64_t;

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

// "512 B", "98.2 MiB", "31.9 GiB": binary units, one decimal from KiB on.
std::string FormatBytes(Bytes bytes);

// a + b and a * b, or nullopt where the result does not fit 64 bits. Sizes that come from files
// or people go through these.
std::optional<Bytes> CheckedAdd(Bytes a, Bytes b);
std::optional<Bytes> CheckedMul(Bytes a, Bytes b);

// The same, ending at the largest value instead of wrapping: for sums that are only compared.
Bytes SaturatingAdd(Bytes a, Bytes b);
Bytes SaturatingMul(Bytes a, Bytes b);
Bytes SaturatingSub(Bytes a, Bytes b);  // 0 where b > a

// `value` rounded up to a multiple of `unit` (> 0), saturating.
Bytes RoundUp(Bytes value, Bytes unit);

}  // namespace rumbo
