#include "daemon/http/json_out.h"

#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace rumbo::json_out {
namespace {

// 0: as it is, 1: needs an escape, 2: not ASCII.
struct ByteClasses {
  uint8_t of[256] = {};
  constexpr ByteClasses() {
    for (int i = 0; i < 256; ++i) of[i] = i < 0x20 || i == '"' || i == '\\' ? 1 : i >= 0x80 ? 2 : 0;
  }
};
constexpr ByteClasses kClasses;

void AppendEscape(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u00";
  out += kHex[(c >> 4) & 15];
  out += kHex[c & 15];
}

void AppendWellFormed(std::string& out, std::string_view text) {
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (kClasses.of[static_cast<uint8_t>(text[i])] != 1) continue;
    out.append(text, start, i - start);
    AppendEscape(out, text[i]);
    start = i + 1;
  }
  out.append(text, start);
}

template <typename T>
void AppendNumber(std::string& out, T value) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

}  // namespace

void AppendEscaped(std::string& out, std::string_view text) {
  uint8_t seen = 0;
  for (const char c : text) seen |= kClasses.of[static_cast<uint8_t>(c)];
  if (seen == 0) {
    out += text;
  } else if ((seen & 2) != 0 && !IsValidUtf8(text)) {
    AppendWellFormed(out, SanitizeUtf8(text));
  } else {
    AppendWellFormed(out, text);
  }
}

void AppendString(std::string& out, std::string_view text) {
  out += '"';
  AppendEscaped(out, text);
  out += '"';
}

void AppendInt(std::string& out, int64_t value) { AppendNumber(out, value); }
void AppendUint(std::string& out, uint64_t value) { AppendNumber(out, value); }

void AppendDouble(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
  } else {
    AppendNumber(out, value);
  }
}

void AppendFloat(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += "null";
  } else {
    AppendNumber(out, value);
  }
}

}  // namespace rumbo::json_out
