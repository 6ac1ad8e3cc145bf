#include "base/utf8.h"

#include <cstdint>
#include <cstdio>

namespace rumbo {
namespace {

// Length of the well-formed sequence at `at`, 0 where it is ill-formed, -1 where the text ends
// inside a sequence that is well-formed so far. Table 3-7 of the Unicode standard.
int SequenceLength(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char b0 = byte(0);
  if (b0 < 0x80) return 1;
  int length;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (b0 >= 0xC2 && b0 <= 0xDF) {
    length = 2;
  } else if (b0 >= 0xE0 && b0 <= 0xEF) {
    length = 3;
    if (b0 == 0xE0) low = 0xA0;
    if (b0 == 0xED) high = 0x9F;
  } else if (b0 >= 0xF0 && b0 <= 0xF4) {
    length = 4;
    if (b0 == 0xF0) low = 0x90;
    if (b0 == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  for (int i = 1; i < length; ++i) {
    if (at + i >= text.size()) return -1;
    const unsigned char b = byte(i);
    if (b < low || b > high) return 0;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const int length = SequenceLength(text, i);
    if (length <= 0) return false;
    i += length;
  }
  return true;
}

size_t CompleteUtf8Prefix(std::string_view text) {
  const size_t start = text.size() > 3 ? text.size() - 3 : 0;
  for (size_t i = text.size(); i > start; --i) {
    const auto b = static_cast<unsigned char>(text[i - 1]);
    if (b < 0x80) break;
    if (b >= 0xC0) return SequenceLength(text, i - 1) < 0 ? i - 1 : text.size();
  }
  return text.size();
}

std::string SanitizeUtf8(std::string_view text) {
  if (IsValidUtf8(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 8);
  for (size_t i = 0; i < text.size();) {
    const int length = SequenceLength(text, i);
    if (length > 0) {
      out.append(text.substr(i, length));
      i += length;
      continue;
    }
    out += "\xEF\xBF\xBD";
    if (length < 0) break;
    ++i;
    while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) ++i;
  }
  return out;
}

std::string EscapeForLog(std::string_view text, size_t max_bytes) {
  const std::string clean = SanitizeUtf8(text.substr(0, max_bytes));
  std::string out;
  for (size_t i = 0; i < clean.size();) {
    const int length = SequenceLength(clean, i);
    const auto b = static_cast<unsigned char>(clean[i]);
    const bool bidi =
        length == 3 && b == 0xE2 && static_cast<unsigned char>(clean[i + 1]) <= 0x81 &&
        (static_cast<unsigned char>(clean[i + 1]) == 0x80 ? static_cast<unsigned char>(clean[i + 2]) >= 0xAA
                                                          : static_cast<unsigned char>(clean[i + 2]) >= 0xA6);
    if (b < 0x20 || b == 0x7F || b == '\\' || bidi ||
        (length == 2 && b == 0xC2 && static_cast<unsigned char>(clean[i + 1]) < 0xA0)) {
      for (int k = 0; k < length; ++k) {
        char hex[8];
        std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(clean[i + k]));
        out += hex;
      }
    } else {
      out.append(clean, i, length);
    }
    i += length;
  }
  if (text.size() > max_bytes) out += "...";
  return out;
}

}  // namespace rumbo
