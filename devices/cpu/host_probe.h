#pragma once

#include "devices/cpu/host_facts.h"
#include "devices/sys/root.h"

namespace rumbo {

// Reads /proc/{cpuinfo,meminfo,cmdline,version,self/*}, /sys/devices/system and the cgroup files. Whatever
// is missing or malformed stays unknown. A few milliseconds on 400 CPUs.
HostFacts ReadHost(const Root& root);

// The pieces, for tests and the fuzzers: text in, facts out, never a crash.
CpuFacts ParseCpuInfo(std::string_view text);
MemoryFacts ParseMemInfo(std::string_view text);

// Memory and CPU limits of every cgroup that `self_cgroup` (/proc/self/cgroup) names and of their ancestors.
CgroupFacts ReadCgroups(const Root& root, std::string_view self_cgroup);

}  // namespace rumbo
