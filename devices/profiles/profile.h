#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/topology.h"
#include "devices/chips/chips.h"

// Machines you do not have, as topologies of the same shape as a probe's: profiles/*.yaml.
namespace rumbo {

// Where profiles are looked for, first match wins: $RUMBO_SHARE/profiles, then share/rumbo/profiles beside
// the folder of the running program.
std::vector<std::string> ProfileDirs();

// Names of all profiles, sorted. Empty where no folder is found.
std::vector<std::string> ListProfiles();

// The profile as `source` "profile:<name>". Figures come from the chip table, "profile <name>: <source>"
// each. Errors:
//   kNotFound (kProfileNotFound)  there is none of that name; the next step names some that exist.
//   kInvalidArgument              the file is malformed; the message says where.
absl::StatusOr<Topology> LoadProfile(std::string_view name);

// One profile's text. Pure.
absl::StatusOr<Topology> ParseProfile(std::string_view name, std::string_view yaml, const ChipTable& chips);

}  // namespace rumbo
