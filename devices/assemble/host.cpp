#include "devices/assemble/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rumbo {
namespace {

MemoryPool SystemPool(const Facts& facts, std::vector<Finding>& findings) {
  const HostFacts& host = facts.host;
  MemoryPool pool;
  pool.id = "pool-system";
  pool.kind = PoolKind::kSystem;
  pool.total_bytes = host.memory.total;
  pool.free_bytes = host.memory.available;
  pool.source = "meminfo MemTotal";
  if (!pool.total_bytes) {
    pool.total_bytes = facts.kfd.system_bytes;
    pool.source = pool.total_bytes ? "KFD mem_banks of the CPU nodes (no meminfo)" : "nothing readable says";
    const Severity severity = facts.live ? Severity::kBroken : Severity::kInfo;
    findings.push_back({severity, "host.no_meminfo", "", "/proc/meminfo could not be read.",
                        facts.live ? "Mount /proc in this container." : ""});
  }
  if (!host.memory.available_source.empty()) pool.source += ", " + host.memory.available_source;
  const CgroupFacts& cgroup = host.cgroup;
  if (cgroup.memory_limit) {
    const Bytes left = SaturatingSub(*cgroup.memory_limit, cgroup.memory_used.value_or(0));
    pool.limits.push_back({"limit-cgroup",
                           LimitKind::kCgroup,
                           cgroup.memory_limit,
                           cgroup.memory_used,
                           {},
                           {},
                           cgroup.memory_source});
    if (!pool.free_bytes || left < *pool.free_bytes) {
      pool.free_bytes = left;
      pool.source += ", free capped by " + cgroup.memory_source;
    }
  }
  if (pool.total_bytes && pool.free_bytes && *pool.free_bytes > *pool.total_bytes) {
    pool.free_bytes = pool.total_bytes;
    pool.source += ", free clamped to the total";
  }
  if (cgroup.memory_unreadable) {
    findings.push_back(
        {Severity::kWarning, "host.cgroup_memory_unreadable", "",
         "A cgroup memory limit exists but could not be read, so free memory may be overstated.",
         "Make the memory files under /sys/fs/cgroup readable for this user."});
  }
  return pool;
}

std::vector<std::string> CpuFormats(const std::vector<std::string>& isa) {
  const auto has = [&](const char* word) { return std::find(isa.begin(), isa.end(), word) != isa.end(); };
  std::vector<std::string> out{"fp32"};
  if (has("avx512_fp16") || has("fp16")) out.push_back("fp16");
  if (has("avx512_bf16") || has("amx_bf16") || has("bf16")) out.push_back("bf16");
  if (has("avx512_vnni") || has("avx_vnni") || has("amx_int8") || has("dotprod") || has("i8mm"))
    out.push_back("int8");
  return out;
}

void AddEvidence(const HostFacts& host, Device& cpu) {
  const CpuFacts& c = host.cpu;
  if (c.sockets) cpu.evidence.push_back(fmt::format("sockets: {}", *c.sockets));
  if (c.numa_nodes) cpu.evidence.push_back(fmt::format("NUMA nodes: {}", *c.numa_nodes));
  cpu.evidence.push_back("cgroup: " + (host.cgroup.version.empty() ? "none mounted" : host.cgroup.version));
  if (host.cgroup.cpu_quota) {
    cpu.evidence.push_back(
        fmt::format("{}: {:.2f} CPUs", host.cgroup.cpu_quota_source, *host.cgroup.cpu_quota));
  }
  if (host.memory.huge_pages) {
    cpu.evidence.push_back("HugeTLB reserves " + FormatBytes(*host.memory.huge_pages) +
                           " that nothing else can use");
  }
  if (!host.kernel.empty()) cpu.evidence.push_back("kernel: " + host.kernel);
}

}  // namespace

std::optional<int> ThreadsAllowed(const HostFacts& host, std::string& source) {
  std::optional<int> allowed;
  const auto take = [&](std::optional<int> value, const std::string& from) {
    if (!value || (allowed && *value >= *allowed)) return;
    allowed = *value;
    source = from;
  };
  take(host.cpu.logical, "CPUs online");
  take(host.affinity, "CPU affinity");
  take(host.cgroup.cpuset, host.cgroup.cpuset_source);
  if (host.cgroup.cpu_quota) {
    // Down, never up: one thread too many already makes the kernel throttle the group.
    const double whole = std::clamp(std::floor(*host.cgroup.cpu_quota), 1.0, 65536.0);
    take(static_cast<int>(whole), host.cgroup.cpu_quota_source);
  }
  if (allowed) allowed = std::max(1, *allowed);
  return allowed;
}

void AddHost(const Facts& facts, Topology& topology) {
  const HostFacts& host = facts.host;
  topology.pools.push_back(SystemPool(facts, topology.findings));

  Device cpu;
  cpu.id = "cpu0";
  cpu.kind = DeviceKind::kCpu;
  cpu.name = host.cpu.model.empty() ? "CPU" : host.cpu.model;
  cpu.vendor = host.cpu.vendor;
  cpu.memory_kind = MemoryKind::kHost;
  cpu.memory_kind_rule = "a CPU uses host memory";
  cpu.pools = {"pool-system"};
  cpu.present = cpu.accessible = cpu.usable = true;
  cpu.reason = "the CPU this process runs on";
  cpu.cores_logical = host.cpu.logical;
  cpu.cores_physical = host.cpu.physical;
  cpu.threads_allowed = ThreadsAllowed(host, cpu.threads_allowed_source);
  cpu.isa = host.cpu.isa;
  cpu.number_formats = CpuFormats(host.cpu.isa);
  if (facts.cpu_bandwidth) {
    cpu.bandwidth_bytes_s.value = std::round(facts.cpu_bandwidth->bytes_per_s);
    cpu.bandwidth_bytes_s.source =
        fmt::format("measured here: reading {} with {} threads",
                    FormatBytes(facts.cpu_bandwidth->buffer_bytes), facts.cpu_bandwidth->threads);
  }
  BackendSupport backend;
  backend.name = "cpu";
  backend.usable = true;
  backend.reason = "always there";
  backend.pools = {"pool-system"};
  cpu.backends.push_back(std::move(backend));
  AddEvidence(host, cpu);
  if (host.cgroup.cpu_unreadable) {
    topology.findings.push_back(
        {Severity::kWarning, "host.cgroup_cpu_unreadable", cpu.id,
         "A cgroup CPU limit exists but could not be read, so threads may be throttled.",
         "Make the cpu files under /sys/fs/cgroup readable for this user."});
  }
  topology.devices.push_back(std::move(cpu));
}

}  // namespace rumbo
