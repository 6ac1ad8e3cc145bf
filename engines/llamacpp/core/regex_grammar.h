#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rumbo {

// A regular expression as llama.cpp's GBNF, for answers that must match it as a whole. Pure.
//
// Understood: literals, ., classes, \d \w \s and their opposites, \n \t \r \f \v \xHH \uHHHH and escaped
// punctuation, groups (plain, (?:), named), |, * + ? {m} {m,} {m,n} and their lazy forms (same language), ^
// at the beginning and $ at the end. Everything else is refused rather than ignored: look-around, back
// references, \b, flags, possessive forms.
//
// kInvalidArgument naming the character offset and what stands there. O(size); at most kMaxRegexBytes, groups
// at most kMaxRegexDepth deep, repetitions at most kMaxRepeat.
absl::StatusOr<std::string> RegexToGrammar(std::string_view regex);

inline constexpr size_t kMaxRegexBytes = 16 * 1024;
inline constexpr int kMaxRegexDepth = 64;
inline constexpr int kMaxRepeat = 1000;

}  // namespace rumbo
