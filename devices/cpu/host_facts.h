#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

// What the host probe read: the CPU, main memory, and the limits this process runs under.
namespace rumbo {

struct CpuFacts {
  std::string model;             // "AMD EPYC 9654 96-Core Processor"; "" unknown
  std::string vendor;            // "AMD", "Intel", "ARM", else what the kernel says
  std::vector<std::string> isa;  // words of Device::isa
  std::optional<int> logical;    // online
  std::optional<int> physical;   // distinct (package, core)
  std::optional<int> sockets;
  std::optional<int> numa_nodes;
};

struct MemoryFacts {
  std::optional<Bytes> total;
  std::optional<Bytes> available;   // MemAvailable, at most total
  std::string available_source;     // "MemAvailable", or what stood in for it on an old kernel
  std::optional<Bytes> huge_pages;  // reserved by HugeTLB: inside total, outside available
  bool clamped = false;             // MemAvailable said more than MemTotal
};

// The tightest of all cgroup limits above this process.
struct CgroupFacts {
  std::string version;  // "v2", "v1", "hybrid v1", "" none mounted
  // Memory: the ancestor that leaves the least.
  std::optional<Bytes> memory_limit;
  std::optional<Bytes> memory_used;  // without file cache that can be given back
  std::string memory_source;         // "memory.max of /user.slice"
  bool memory_unreadable = false;    // a limit file exists that we could not read or parse
  // CPU.
  std::optional<double> cpu_quota;  // CPUs' worth of time
  std::string cpu_quota_source;
  std::optional<int> cpuset;
  std::string cpuset_source;
  bool cpu_unreadable = false;
};

struct HostFacts {
  CpuFacts cpu;
  MemoryFacts memory;
  CgroupFacts cgroup;
  std::optional<int> affinity;         // CPUs this process may run on
  std::optional<Bytes> memlock_limit;  // RLIMIT_MEMLOCK, soft; nullopt unknown or unlimited
  bool memlock_unlimited = false;
  std::string kernel;        // "6.18.44"
  std::string command_line;  // /proc/cmdline
  bool wsl = false;          // /dev/dxg or a Microsoft kernel
};

}  // namespace rumbo
