#pragma once

#include "devices/api/topology.h"
#include "devices/assemble/facts.h"

namespace rumbo {

// "pool-system" with its cgroup limit, and "cpu0".
void AddHost(const Facts& facts, Topology& topology);

// How many threads this process may keep busy: floor(min(quota, affinity, cpuset)), at least 1; nullopt
// where not even the number of CPUs is known. `source` says which one decided.
std::optional<int> ThreadsAllowed(const HostFacts& host, std::string& source);

}  // namespace rumbo
