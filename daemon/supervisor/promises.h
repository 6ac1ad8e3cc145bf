#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/core/ports.h"

namespace rumbo {

// The promises of all daemons on this machine: a sticky folder that every user may write to, with one lock
// file and one file per daemon ("pid start-time" in its name, "pool bytes" lines in it). What a daemon that
// is gone has left behind does not count and is removed; nor does a file that does not belong to the user of
// the daemon it names.
//
// A user who keeps the lock makes others wait 50 ms, not longer: then they go on with what they read.
// Errors: where the folder cannot be used; a daemon then goes on without.
absl::StatusOr<std::unique_ptr<PromiseBoard>> NewPromiseBoard(const std::string& dir);

// "/dev/shm/rumbo-promises" where that is a folder in memory, else below /tmp.
std::string DefaultPromiseDir();

}  // namespace rumbo
