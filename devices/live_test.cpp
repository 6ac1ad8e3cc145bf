#include "devices/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "devices/testing/machines.h"

namespace rumbo {
namespace {

using ::testing::HasSubstr;

constexpr char kCard[] = "gpu-0000:03:00.0";

struct Live : ::testing::Test {
  Live() {
    AddStrixHalo(tree, 512 * kMiB, 96 * kGiB, 124, 60);
    dir = AddR9700(tree, 0);
    tree.File(dir + "/power/runtime_status", "active\n").File(dir + "/gpu_busy_percent", "37\n");
    tree.File(dir + "/hwmon/hwmon3/power1_average", "151000000\n");
    topology = TopologyOf(tree);
  }
  LiveReading Read() { return LiveReader(topology, tree.root()).Read(); }
  Topology Applied() {
    Topology t = topology;
    ApplyLive(Read(), t);
    return t;
  }
  const DeviceReading& Card(const LiveReading& r) {
    for (const DeviceReading& d : r.devices) {
      if (d.id == kCard) return d;
    }
    ADD_FAILURE() << "no reading of the card";
    return r.devices.front();
  }
  FakeTree tree;
  std::string dir;
  Topology topology;
};

using LiveReaderTest = Live;

TEST_F(LiveReaderTest, ReadsFreeMemoryLoadAndPower) {
  tree.File(dir + "/mem_info_vram_used", std::to_string(20 * kGiB) + "\n");
  AddMemory(tree, 124, 40);
  const Topology t = Applied();
  EXPECT_EQ(t.FindPool("pool-vram-0000:03:00.0")->free_bytes, 34208743424u - 20 * kGiB);
  EXPECT_EQ(t.FindPool("pool-system")->free_bytes, 40 * kGiB);
  const LiveReading reading = Read();
  EXPECT_EQ(Card(reading).busy, 0.37);
  EXPECT_EQ(Card(reading).power_watts, 151.0);
}

TEST_F(LiveReaderTest, ReadsTemperatureAndTheProcessorsLoadBetweenTwoReadings) {
  tree.File(dir + "/hwmon/hwmon3/temp1_input", "63500\n");
  tree.File("/proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n");
  LiveReader reader(topology, tree.root());
  const LiveReading first = reader.Read();
  EXPECT_EQ(Card(first).temperature_c, 63.5);
  for (const DeviceReading& d : first.devices) EXPECT_NE(d.id, "cpu0");
  tree.File("/proc/stat", "cpu  130 0 120 740 110 0 0 0 0 0\ncpu0 1 1 1 1\n");
  const LiveReading second = reader.Read();
  const auto cpu = std::find_if(second.devices.begin(), second.devices.end(),
                                [](const DeviceReading& d) { return d.id == "cpu0"; });
  ASSERT_NE(cpu, second.devices.end());
  EXPECT_DOUBLE_EQ(*cpu->busy, 0.5);
}

TEST_F(LiveReaderTest, GttUseOfAnApuIsALimitReading) {
  tree.File("/sys/devices/pci0000:00/0000:c5:00.0/mem_info_gtt_used", std::to_string(30 * kGiB) + "\n");
  const Topology t = Applied();
  for (const MemoryLimit& l : t.FindPool("pool-system")->limits) {
    if (l.kind == LimitKind::kGtt) {
      EXPECT_EQ(l.used_bytes, 30 * kGiB);
    }
  }
}

TEST_F(LiveReaderTest, ASuspendedCardIsNotAskedForItsLoad) {
  LiveReader reader(topology, tree.root());
  tree.File(dir + "/power/runtime_status", "suspended\n").File(dir + "/mem_info_vram_used", "999\n");
  const LiveReading reading = reader.Read();
  EXPECT_TRUE(Card(reading).suspended);
  EXPECT_EQ(Card(reading).busy, std::nullopt);
  EXPECT_EQ(Card(reading).power_watts, std::nullopt);
  for (const PoolReading& p : reading.pools) EXPECT_NE(p.id, "pool-vram-0000:03:00.0");
}

TEST_F(LiveReaderTest, ALostDeviceIsNoticedAndItsBackendsFail) {
  LiveReader reader(topology, tree.root());
  const std::string before = reader.Read().signature;
  tree.Remove("/sys/bus/pci/devices/0000:03:00.0")
      .Remove(dir)
      .Remove("/sys/class/drm/card2")
      .Remove("/sys/class/drm/renderD130");
  const LiveReading reading = reader.Read();
  EXPECT_TRUE(Card(reading).lost);
  EXPECT_NE(reading.signature, before);
  Topology t = topology;
  ApplyLive(reading, t);
  EXPECT_FALSE(t.FindDevice(kCard)->present);
  EXPECT_FALSE(t.FindDevice(kCard)->usable);
  EXPECT_THAT(t.FindDevice(kCard)->reason, HasSubstr("gone from the bus"));
  EXPECT_TRUE(t.FindDevice("gpu-0000:c5:00.0")->present);
}

TEST_F(LiveReaderTest, AnUnboundDriverIsALostDevice) {
  LiveReader reader(topology, tree.root());
  tree.Remove(dir + "/driver");
  EXPECT_TRUE(Card(reader.Read()).lost);
  EXPECT_THAT(Card(reader.Read()).lost_reason, HasSubstr("amdgpu"));
}

TEST_F(LiveReaderTest, TheSignatureStandsStillOtherwise) {
  LiveReader reader(topology, tree.root());
  const std::string before = reader.Read().signature;
  tree.File(dir + "/gpu_busy_percent", "99\n")
      .Dir("/sys/class/drm/card2-HDMI-A-1");  // a monitor is no device
  EXPECT_EQ(reader.Read().signature, before);
}

TEST_F(LiveReaderTest, ADriverReloadUnderTheSameNamesChangesTheSignature) {
  LiveReader reader(topology, tree.root());
  const std::string before = reader.Read().signature;
  tree.File("/sys/class/kfd/kfd/topology/generation_id", "7\n");
  EXPECT_NE(reader.Read().signature, before);
}

TEST_F(LiveReaderTest, NonsenseReadsAreUnknown) {
  tree.File(dir + "/gpu_busy_percent", "250\n").File(dir + "/mem_info_vram_used", "-1\n");
  tree.File(dir + "/hwmon/hwmon3/power1_average", "99999999999999\n");
  const LiveReading reading = Read();
  EXPECT_EQ(Card(reading).busy, std::nullopt);
  EXPECT_EQ(Card(reading).power_watts, std::nullopt);
  for (const PoolReading& p : reading.pools) EXPECT_NE(p.id, "pool-vram-0000:03:00.0");
}

TEST_F(LiveReaderTest, UseAboveTheTotalLeavesNothing) {
  tree.File(dir + "/mem_info_vram_used", std::to_string(90 * kGiB) + "\n");
  EXPECT_EQ(Applied().FindPool("pool-vram-0000:03:00.0")->free_bytes, 0u);
}

TEST(LiveCgroupTest, TheLimitFollows) {
  FakeTree tree;
  AddMemory(tree, 32, 29);
  tree.File("/proc/self/cgroup", "0::/svc\n").File("/sys/fs/cgroup/svc/memory.max", GibBytes(8));
  tree.File("/sys/fs/cgroup/svc/memory.current", GibBytes(1));
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(t.FindPool("pool-system")->free_bytes, 7 * kGiB);
  LiveReader reader(t, tree.root());
  tree.File("/sys/fs/cgroup/svc/memory.current", GibBytes(6));
  Topology now = t;
  ApplyLive(reader.Read(), now);
  EXPECT_EQ(now.FindPool("pool-system")->free_bytes, 2 * kGiB);
  EXPECT_EQ(now.FindPool("pool-system")->limits.at(0).used_bytes, 6 * kGiB);
}

TEST(LiveHereTest, ThisMachineIsReadWithoutHarm) {
  GatherOptions options;
  options.vendor_libraries = false;
  const Topology t = Assemble(Gather(Root("/"), options).facts);
  LiveReader reader(t);
  const LiveReading reading = reader.Read();
  ASSERT_FALSE(reading.pools.empty());
  EXPECT_GT(reading.pools[0].free_bytes.value_or(0), 0u);
  EXPECT_EQ(reader.Read().signature, reading.signature);
}

}  // namespace
}  // namespace rumbo
