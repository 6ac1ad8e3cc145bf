#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rumbo {

// Standard alphabet; padding may be missing. nullopt for anything else.
std::optional<std::string> Base64Decode(std::string_view text);
std::string Base64Encode(std::string_view bytes);

}  // namespace rumbo
