#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "devices/testing/machines.h"

namespace rumbo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kNpu[] = "npu-0000:c6:00.1";

// XDNA 2 of a Strix Halo in working order, as a root user sees it.
std::string AddXdna2(FakeTree& tree, const char* driver = "amdxdna") {
  AddMemory(tree, 124, 100);
  const std::string dir = AddPci(tree, {"0000:c6:00.1", "0x1022", "0x17f0", "0x11", "0x118000", driver});
  tree.File(dir + "/vbnv", "RyzenAI-npu5\n").File(dir + "/fw_version", "1.1.2.65\n");
  tree.Link("/sys/class/accel/accel0/device", "../../../bus/pci/devices/0000:c6:00.1");
  tree.File("/dev/accel/accel0", "");
  tree.File("/lib/firmware/amdnpu/17f0_11/npu.sbin.zst", "x");
  tree.File("/proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\n");
  tree.File("/proc/version", "Linux version 6.17.0-35-generic (x) #1\n");
  tree.File("/proc/cmdline", "quiet splash\n");
  return dir;
}

std::string Code(const Topology& t) {
  for (const Finding& f : t.findings) {
    if (f.device == kNpu) return f.code;
  }
  return "";
}

TEST(NpuTest, ReadyIsUsable) {
  FakeTree tree;
  AddXdna2(tree);
  const Topology t = TopologyOf(tree);
  const Device& npu = *t.FindDevice(kNpu);
  EXPECT_EQ(npu.kind, DeviceKind::kNpu);
  EXPECT_TRUE(npu.present && npu.accessible && npu.usable);
  EXPECT_EQ(npu.name, "AMD NPU (XDNA 2, Strix Halo)");
  EXPECT_THAT(npu.pools, ElementsAre("pool-system"));
  EXPECT_EQ(npu.backends.at(0).name, "xdna");
  EXPECT_EQ(npu.backends.at(0).selector, "/dev/accel/accel0");
  EXPECT_EQ(npu.int8_ops.value, 50e12);
  EXPECT_EQ(Code(t), "");
}

TEST(NpuTest, SwitchedOffInTheFirmwareIsAbsent) {
  FakeTree tree;
  AddMemory(tree, 124, 100);
  EXPECT_EQ(TopologyOf(tree).FindDevice(kNpu), nullptr);
}

TEST(NpuTest, NoDriverIsPresentOnly) {
  FakeTree tree;
  AddXdna2(tree, "");
  tree.Remove("/sys/class/accel").Remove("/dev/accel");
  const Topology t = TopologyOf(tree);
  EXPECT_TRUE(t.FindDevice(kNpu)->present);
  EXPECT_FALSE(t.FindDevice(kNpu)->accessible);
  EXPECT_EQ(Code(t), "npu.no_driver");
  tree.File("/proc/version", "Linux version 6.8.0-45-generic (x) #1\n");
  EXPECT_EQ(Code(TopologyOf(tree)), "npu.kernel_too_old");
}

TEST(NpuTest, MissingFirmwareIsNamed) {
  FakeTree tree;
  AddXdna2(tree);
  tree.Remove("/sys/class/accel").Remove("/dev/accel").Remove("/lib/firmware/amdnpu/17f0_11");
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(Code(t), "npu.firmware_missing");
  EXPECT_THAT(t.FindDevice(kNpu)->reason, HasSubstr("amdnpu/17f0_11"));
}

TEST(NpuTest, BoundWithoutNodeAndWithFirmwareIsAMismatch) {
  FakeTree tree;
  AddXdna2(tree);
  tree.Remove("/sys/class/accel").Remove("/dev/accel");
  EXPECT_EQ(Code(TopologyOf(tree)), "npu.no_node");
}

TEST(NpuTest, AContainerWithoutTheNodeIsTold) {
  FakeTree tree;
  AddXdna2(tree);
  tree.Remove("/dev/accel").Dir("/dev");
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(Code(t), "npu.no_device_node");
  EXPECT_THAT(t.FindDevice(kNpu)->remedy, HasSubstr("--device=/dev/accel/accel0"));
}

TEST(NpuTest, NoAccessNamesTheGroup) {
  FakeTree tree;
  AddXdna2(tree);
  Facts facts = FactsOf(tree);
  facts.npus.at(0).access = {true, false, 0, 993, 0660, "render"};
  const Topology t = Assemble(facts);
  EXPECT_FALSE(t.FindDevice(kNpu)->accessible);
  EXPECT_EQ(Code(t), "npu.no_access");
  EXPECT_THAT(t.FindDevice(kNpu)->remedy, HasSubstr("render"));
}

TEST(NpuTest, LowMemlockIsAccessibleButNotUsable) {
  FakeTree tree;
  AddXdna2(tree);
  tree.File("/proc/self/limits",
            "Max locked memory         8388608              8388608              bytes\n");
  const Topology t = TopologyOf(tree);
  EXPECT_TRUE(t.FindDevice(kNpu)->accessible);
  EXPECT_FALSE(t.FindDevice(kNpu)->usable);
  EXPECT_EQ(Code(t), "npu.memlock_low");
  EXPECT_THAT(t.FindDevice(kNpu)->remedy, HasSubstr("LimitMEMLOCK"));
}

TEST(NpuTest, AnIommuThatIsOffIsTheReason) {
  FakeTree tree;
  AddXdna2(tree);
  tree.File("/proc/cmdline", "quiet amd_iommu=off\n");
  EXPECT_EQ(Code(TopologyOf(tree)), "npu.iommu_off");
}

TEST(NpuTest, TheSensorHubOfTheSameClassIsNoNpu) {
  FakeTree tree;
  AddMemory(tree, 16, 15);
  AddPci(tree, {"0000:c6:00.7", "0x1022", "0x15e4", "0x00", "0x118000", "pcie_mp2_amd"});
  EXPECT_EQ(TopologyOf(tree).devices.size(), 1u);
}

TEST(NpuTest, TheRevisionTellsStrixFromStrixHalo) {
  FakeTree tree;
  const std::string dir = AddXdna2(tree);
  tree.File(dir + "/revision", "0x10\n");
  EXPECT_EQ(TopologyOf(tree).FindDevice(kNpu)->name, "AMD NPU (XDNA 2, Strix Point)");
}

TEST(NpuTest, IntelNpuUsesItsOwnBackend) {
  FakeTree tree;
  AddMemory(tree, 32, 30);
  AddPci(tree, {"0000:00:0b.0", "0x8086", "0x643e", "0x04", "0x120000", "intel_vpu"});
  tree.Link("/sys/class/accel/accel0/device", "../../../bus/pci/devices/0000:00:0b.0")
      .File("/dev/accel/accel0", "");
  const Device npu = *TopologyOf(tree).FindDevice("npu-0000:00:0b.0");
  EXPECT_EQ(npu.backends.at(0).name, "openvino");
  EXPECT_TRUE(npu.usable);
  EXPECT_EQ(npu.name, "Intel NPU (Lunar Lake)");
}

TEST(NpuTest, ATreeWithoutAPciBusStillShowsIt) {
  FakeTree tree;
  tree.File("/sys/class/accel/accel0/device/vendor", "0x1022\n")
      .File("/sys/class/accel/accel0/device/device", "0x1502\n");
  tree.File("/sys/class/accel/accel0/device/uevent", "DRIVER=amdxdna\nPCI_SLOT_NAME=0000:c5:00.1\n");
  const Topology t = TopologyOf(tree);
  ASSERT_NE(t.FindDevice("npu-0000:c5:00.1"), nullptr);
  EXPECT_EQ(t.FindDevice("npu-0000:c5:00.1")->name, "AMD NPU (XDNA 1, Phoenix / Hawk Point)");
}

}  // namespace
}  // namespace rumbo
