#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rumbo {

// The one of `names` that a person who typed `word` most likely meant: by edit distance, up to a third of the
// word's length, or by completing it; "" where none is near. Words over 64 bytes are never near.
std::string Nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace rumbo
