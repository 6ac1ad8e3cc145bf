#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace rumbo {

// Checks that every constraint of a JSON Schema will really be kept by llama.cpp's conversion to a grammar,
// which silently ignores what it does not know. Pure.
//
// `pattern_supported` says whether the conversion keeps a "pattern".
// kInvalidArgument with the JSON pointer of the first construct that would not be kept, for text that is no
// JSON or no schema, nested deeper than kMaxSchemaDepth, or with more than kMaxSchemaNodes values.
// Annotations (title, default, unknown formats ...) constrain nothing and are fine. O(size).
absl::Status CheckSchema(std::string_view schema,
                         const std::function<bool(std::string_view)>& pattern_supported);

inline constexpr size_t kMaxSchemaDepth = 64;
inline constexpr size_t kMaxSchemaNodes = 20000;
inline constexpr int64_t kMaxSchemaRepeat = 2000;  // minLength, maxItems, ...

}  // namespace rumbo
