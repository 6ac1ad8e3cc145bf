#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "devices/assemble/facts.h"
#include "devices/probe/probe.h"

namespace rumbo {

struct GatherOptions {
  std::chrono::milliseconds deadline{10000};  // for everything together
  bool vendor_libraries = true;               // ask Vulkan, HIP and NVML (only on the running machine)
  std::string self = "/proc/self/exe";        // program that answers `--vendor NAME`
};

struct Gathered {
  Facts facts;
  bool thread_stuck = false;  // a reader hangs in the kernel: leave with _exit, it cannot be joined
};

// Runs every probe: vendor libraries in processes of their own, readers side by side on threads. What crashes
// or comes late costs its own part only and leaves a finding.
Gathered Gather(const Root& root, const GatherOptions& options);

// The same with given readers, for tests.
Gathered GatherWith(const Root& root, const GatherOptions& options, const Probe& pci,
                    const std::vector<const Probe*>& enriching);

}  // namespace rumbo
