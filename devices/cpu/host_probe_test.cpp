#include "devices/cpu/host_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "devices/assemble/assemble.h"
#include "devices/assemble/host.h"
#include "devices/testing/fake_tree.h"

namespace rumbo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Gib(int n) { return std::to_string(n * kGiB); }

std::string MemInfo(double total_gib, double available_gib) {
  const auto kb = [](double gib) { return std::to_string(static_cast<uint64_t>(gib * 1024 * 1024)); };
  return "MemTotal: " + kb(total_gib) + " kB\nMemFree: 1 kB\nMemAvailable: " + kb(available_gib) + " kB\n";
}

MemoryPool PoolOf(const FakeTree& tree) {
  Facts facts;
  facts.host = ReadHost(tree.root());
  return *Assemble(facts).FindPool("pool-system");
}

bool HasFinding(const FakeTree& tree, std::string_view code) {
  Facts facts;
  facts.host = ReadHost(tree.root());
  for (const Finding& f : Assemble(facts).findings) {
    if (f.code == code) return true;
  }
  return false;
}

TEST(CgroupMemoryTest, MaxMeansNoLimitEvenWhenTheCacheIsFull) {
  FakeTree tree;
  tree.File("/proc/meminfo", MemInfo(32, 29)).File("/proc/self/cgroup", "0::/svc\n");
  tree.File("/sys/fs/cgroup/svc/memory.max", "max\n").File("/sys/fs/cgroup/svc/memory.current", Gib(28));
  const MemoryPool pool = PoolOf(tree);
  EXPECT_EQ(pool.free_bytes, 29 * kGiB);
  EXPECT_TRUE(pool.limits.empty());
}

TEST(CgroupMemoryTest, ReclaimableCacheIsGivenBack) {
  FakeTree tree;
  tree.File("/proc/meminfo", MemInfo(32, 29)).File("/proc/self/cgroup", "0::/svc\n");
  tree.File("/sys/fs/cgroup/svc/memory.max", Gib(8)).File("/sys/fs/cgroup/svc/memory.current", Gib(6));
  tree.File("/sys/fs/cgroup/svc/memory.stat", "anon 1\ninactive_file " + Gib(5) + "\n");
  const MemoryPool pool = PoolOf(tree);
  EXPECT_EQ(pool.free_bytes, 7 * kGiB);
  ASSERT_EQ(pool.limits.size(), 1u);
  EXPECT_EQ(pool.limits[0].id, "limit-cgroup");
  EXPECT_EQ(pool.limits[0].max_bytes, 8 * kGiB);
  EXPECT_EQ(pool.limits[0].used_bytes, kGiB);
  EXPECT_EQ(pool.total_bytes, 32 * kGiB);
}

TEST(CgroupMemoryTest, AParentsLimitCounts) {
  FakeTree tree;
  tree.File("/proc/meminfo", MemInfo(32, 29)).File("/proc/self/cgroup", "0::/slice/svc\n");
  tree.File("/sys/fs/cgroup/slice/svc/memory.max", "max").File("/sys/fs/cgroup/slice/memory.max", Gib(4));
  const MemoryPool pool = PoolOf(tree);
  EXPECT_EQ(pool.free_bytes, 4 * kGiB);
  EXPECT_THAT(pool.limits.at(0).source, HasSubstr("/slice"));
}

TEST(CgroupMemoryTest, TheV1SentinelIsNoLimit) {
  FakeTree tree;
  tree.File("/proc/meminfo", MemInfo(32, 29)).File("/proc/self/cgroup", "4:memory:/a\n");
  tree.File("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(PoolOf(tree).free_bytes, 29 * kGiB);
  EXPECT_TRUE(PoolOf(tree).limits.empty());
}

TEST(CgroupMemoryTest, AV1LimitCountsWithItsCacheGivenBack) {
  FakeTree tree;
  tree.File("/proc/meminfo", MemInfo(32, 29)).File("/proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/a\n");
  tree.File("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", Gib(6));
  tree.File("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", Gib(4));
  tree.File("/sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file " + Gib(3));
  EXPECT_EQ(PoolOf(tree).free_bytes, 5 * kGiB);
  EXPECT_EQ(ReadHost(tree.root()).cgroup.version, "v1");
}

TEST(CgroupMemoryTest, ALimitAboveFreeMemoryChangesNothing) {
  FakeTree tree;
  tree.File("/proc/meminfo", MemInfo(128, 3)).File("/proc/self/cgroup", "0::/svc\n");
  tree.File("/sys/fs/cgroup/svc/memory.max", Gib(64)).File("/sys/fs/cgroup/svc/memory.current", "0");
  EXPECT_EQ(PoolOf(tree).free_bytes, 3 * kGiB);
}

TEST(CgroupMemoryTest, AMalformedLimitIsFlaggedAndMeminfoStands) {
  FakeTree tree;
  tree.File("/proc/meminfo", MemInfo(32, 29)).File("/proc/self/cgroup", "0::/svc\n");
  tree.File("/sys/fs/cgroup/svc/memory.max", "-5\n");
  EXPECT_EQ(PoolOf(tree).free_bytes, 29 * kGiB);
  EXPECT_TRUE(HasFinding(tree, "host.cgroup_memory_unreadable"));
}

TEST(CgroupMemoryTest, UsageAboveTheLimitLeavesNothing) {
  FakeTree tree;
  tree.File("/proc/meminfo", MemInfo(32, 29)).File("/proc/self/cgroup", "0::/svc\n");
  tree.File("/sys/fs/cgroup/svc/memory.max", Gib(2)).File("/sys/fs/cgroup/svc/memory.current", Gib(3));
  EXPECT_EQ(PoolOf(tree).free_bytes, 0u);
}

// 16 cores, 32 threads, as the kernel of such a machine would say.
void AddSixteenCores(FakeTree& tree) {
  std::string info;
  for (int i = 0; i < 32; ++i) {
    info += "processor : " + std::to_string(i) + "\nvendor_id : AuthenticAMD\nmodel name : Test 16-Core\n" +
            "physical id : 0\ncore id : " + std::to_string(i % 16) + "\nflags : fpu avx2 avx512_bf16\n\n";
  }
  tree.File("/proc/cpuinfo", info).File("/proc/self/cgroup", "0::/slice/svc\n");
}

int Threads(const FakeTree& tree) {
  std::string source;
  return ThreadsAllowed(ReadHost(tree.root()), source).value_or(-1);
}

TEST(ThreadsAllowedTest, AQuotaIsRoundedDownButNeverToZero) {
  for (const auto& [quota, want] : std::vector<std::pair<std::string, int>>{
           {"400000 100000", 4}, {"765000 100000", 7}, {"50000 100000", 1}, {"max 100000", 32}}) {
    FakeTree tree;
    AddSixteenCores(tree);
    tree.File("/sys/fs/cgroup/slice/svc/cpu.max", quota);
    EXPECT_EQ(Threads(tree), want) << quota;
  }
}

TEST(ThreadsAllowedTest, AParentsQuotaCounts) {
  FakeTree tree;
  AddSixteenCores(tree);
  tree.File("/sys/fs/cgroup/slice/svc/cpu.max", "max 100000")
      .File("/sys/fs/cgroup/slice/cpu.max", "200000 100000");
  EXPECT_EQ(Threads(tree), 2);
}

TEST(ThreadsAllowedTest, CpusetAndAffinityCount) {
  FakeTree tree;
  AddSixteenCores(tree);
  tree.File("/sys/fs/cgroup/slice/svc/cpuset.cpus.effective", "0-3\n");
  EXPECT_EQ(Threads(tree), 4);
  tree.File("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t4,6\n");
  EXPECT_EQ(Threads(tree), 2);
}

TEST(ThreadsAllowedTest, V1FilesCount) {
  FakeTree tree;
  AddSixteenCores(tree);
  tree.File("/proc/self/cgroup", "1:cpu:/a\n3:cpuset:/a\n");
  tree.File("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "350000")
      .File("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  tree.File("/sys/fs/cgroup/cpuset/a/cpuset.cpus", "0-7");
  std::string source;
  EXPECT_EQ(ThreadsAllowed(ReadHost(tree.root()), source), 3);
  EXPECT_THAT(source, HasSubstr("cpu.cfs_quota_us"));
}

TEST(ThreadsAllowedTest, UnknownStaysUnknown) {
  FakeTree tree;
  std::string source;
  EXPECT_EQ(ThreadsAllowed(ReadHost(tree.root()), source), std::nullopt);
}

TEST(CpuInfoTest, CountsCoresNotThreads) {
  FakeTree tree;
  AddSixteenCores(tree);
  const CpuFacts cpu = ReadHost(tree.root()).cpu;
  EXPECT_EQ(cpu.logical, 32);
  EXPECT_EQ(cpu.physical, 16);
  EXPECT_EQ(cpu.vendor, "AMD");
  EXPECT_THAT(cpu.isa, ElementsAre("avx2", "avx512_bf16"));
}

TEST(CpuInfoTest, TwoPackagesMayShareCoreNumbers) {
  const CpuFacts cpu =
      ParseCpuInfo("processor: 0\nphysical id: 0\ncore id: 0\n\nprocessor: 1\nphysical id: 1\ncore id: 0\n");
  EXPECT_EQ(cpu.physical, 2);
  EXPECT_EQ(cpu.sockets, 2);
}

TEST(CpuInfoTest, ArmHasNoCoreIdsAndOtherWords) {
  const CpuFacts cpu =
      ParseCpuInfo("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm bf16 sve2\nCPU implementer\t: 0x41\n");
  EXPECT_EQ(cpu.logical, 1);
  EXPECT_EQ(cpu.physical, std::nullopt);
  EXPECT_THAT(cpu.isa, ElementsAre("bf16", "dotprod", "i8mm", "neon", "sve2"));
}

TEST(MemInfoTest, AvailableAboveTotalIsClampedAndSaid) {
  const MemoryFacts memory = ParseMemInfo("MemTotal: 100 kB\nMemAvailable: 200 kB\n");
  EXPECT_EQ(memory.available, 100 * kKiB);
  EXPECT_THAT(memory.available_source, HasSubstr("clamped"));
}

TEST(MemInfoTest, NonsenseIsUnknown) {
  for (const char* text : {"", "MemTotal:\n", "MemTotal: -1 kB", "MemTotal: 99999999999999999999 kB",
                           "MemTotal: 18446744073709551615 kB", "MemTotal: 0 kB", "MemTotal: 5 MB"}) {
    EXPECT_EQ(ParseMemInfo(text).total, std::nullopt) << text;
  }
}

TEST(MemInfoTest, HugePagesAreCounted) {
  const MemoryFacts memory = ParseMemInfo("MemTotal: 9 kB\nHugePages_Total: 4\nHugepagesize: 2048 kB\n");
  EXPECT_EQ(memory.huge_pages, 8 * kMiB);
}

TEST(HostProbeTest, MissingTreeIsUnknownAndSaid) {
  FakeTree tree;
  EXPECT_EQ(PoolOf(tree).total_bytes, std::nullopt);
  EXPECT_EQ(PoolOf(tree).free_bytes, std::nullopt);
  EXPECT_TRUE(HasFinding(tree, "host.no_meminfo"));
}

}  // namespace
}  // namespace rumbo
