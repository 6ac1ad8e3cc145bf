#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/api/topology.h"

namespace rumbo {

// The JSON that rumbo-probe prints and rumbod reads: the keys of design section 8 (`devices[]`, `pools[]`)
// plus every other field of Topology under its own name. Unknown numbers are null.
std::string TopologyToJson(const Topology& topology);

// The inverse. Errors: kInvalidArgument where the text is not JSON, nests deeper than 32, or a field has
// the wrong type; unknown keys are ignored.
absl::StatusOr<Topology> TopologyFromJson(std::string_view json);

}  // namespace rumbo
