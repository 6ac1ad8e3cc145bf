#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rumbo {

// True where `text` is well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF).
bool IsValidUtf8(std::string_view text);

// The length of the longest prefix of `text` that ends on a character border. What follows it is
// at most 3 bytes of a character whose rest may still come; ill-formed bytes count as complete.
size_t CompleteUtf8Prefix(std::string_view text);

// `text` with each ill-formed sequence replaced by U+FFFD.
std::string SanitizeUtf8(std::string_view text);

// For logs and terminals: control characters, ESC and bidi overrides escaped; valid UTF-8 kept; cut to
// `max_bytes` with "..." where longer.
std::string EscapeForLog(std::string_view text, size_t max_bytes = 400);

}  // namespace rumbo
