#pragma once

#include <string>
#include <vector>

namespace rumbo {

// Confines this worker for good, as RUMBO_WORKER_SANDBOX (base/os/sandbox.h) says, with `also_readable`
// beside what that names. Call first of all, while there is one thread. Says on stderr what is in force, in a
// line that the supervisor reads: "rumbo-sandbox level ...", and from then on each path that was denied,
// once: "rumbo-sandbox denied /path".
//
// False where a protection that was asked for could not be put in force, after a line that says why: the
// worker must end. True without a sandbox where the variable is not set: whoever started us decided so.
bool ConfineSelf(const std::vector<std::string>& also_readable);

}  // namespace rumbo
