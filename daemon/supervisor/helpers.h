#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"
#include "daemon/core/ports.h"

// The short-lived programs beside the daemon, each run in a process of its own with a deadline: whatever a
// driver or a hostile file does to one of them, the daemon gets an answer or an error.
namespace rumbo {

// Runs `bin_dir`/rumbo-inspect on `path`. Blocking, a few seconds at most.
// Errors: what rumbo-inspect reports (kModelInvalid, kFileNotFound, kNotAFile ...); kModelInvalid where it
// crashed or hung on the file.
absl::StatusOr<ModelDescriptor> InspectFile(const std::string& bin_dir, const std::string& path);

// InspectFile on `executor`, which may block.
std::unique_ptr<ModelInspector> NewModelInspector(std::string bin_dir, Executor* executor);

// The sandbox that this machine can give, as rumbo-inspect finds it by entering one. Blocking, milliseconds.
// Severity: info where all of it is there, warning where the kernel lacks a part, broken where it cannot be
// had.
Finding SandboxHere(const std::string& bin_dir);

// rumbo-probe on `executor`; its findings about itself become part of the topology. Memory is refreshed from
// /proc, /sys and cgroup files without it. `root`: the folder below which these are; another one than "/" is
// a synthetic machine for tests, about which no vendor library is asked.
std::unique_ptr<TopologySource> NewTopologySource(std::string bin_dir, std::string cache_dir,
                                                  Executor* executor, std::string root = "/");

}  // namespace rumbo
