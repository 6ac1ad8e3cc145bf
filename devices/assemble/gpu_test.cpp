#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "devices/testing/machines.h"

namespace rumbo {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kHalo[] = "gpu-0000:c5:00.0";
constexpr char kHaloCarveout[] = "pool-carveout-0000:c5:00.0";

const MemoryLimit* Limit(const Topology& t, const std::string& id) {
  for (const MemoryPool& p : t.pools) {
    for (const MemoryLimit& l : p.limits) {
      if (l.id == id) return &l;
    }
  }
  return nullptr;
}

const Finding* Find(const Topology& t, std::string_view code) {
  for (const Finding& f : t.findings) {
    if (f.code == code) return &f;
  }
  return nullptr;
}

// --- memory of APUs ---

TEST(ApuMemoryTest, WithASmallCarveoutSystemMemoryComesFirst) {
  FakeTree tree;
  AddStrixHalo(tree, 512 * kMiB, 96 * kGiB, 124, 60);
  const Topology t = TopologyOf(tree);
  const Device& gpu = *t.FindDevice(kHalo);
  EXPECT_EQ(gpu.kind, DeviceKind::kGpu);
  EXPECT_EQ(gpu.gfx_target, "gfx1151");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kUnified);
  EXPECT_EQ(gpu.compute_units, 40);
  EXPECT_THAT(gpu.pools, ElementsAre("pool-system", kHaloCarveout));
  EXPECT_EQ(t.FindPool("pool-system")->total_bytes, 124 * kGiB);
  EXPECT_EQ(t.FindPool("pool-system")->free_bytes, 60 * kGiB);
  EXPECT_EQ(t.FindPool(kHaloCarveout)->total_bytes, 512 * kMiB);
  EXPECT_EQ(Limit(t, "limit-gtt-0000:c5:00.0")->max_bytes, 96 * kGiB);
  EXPECT_THAT(Limit(t, "limit-gtt-0000:c5:00.0")->devices, ElementsAre(kHalo));
  EXPECT_EQ(Limit(t, "limit-ttm")->max_bytes, 96 * kGiB);
  EXPECT_THAT(Limit(t, "limit-kfd-0000:c5:00.0")->backends, ElementsAre("hip"));
}

TEST(ApuMemoryTest, CarveoutIsItsOwnPoolAndComesFirstWhereItIsLarger) {
  FakeTree tree;
  AddStrixHalo(tree, 96 * kGiB, 16 * kGiB, 31, 28);
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(t.FindDevice(kHalo)->memory_kind, MemoryKind::kUnified);
  EXPECT_THAT(t.FindDevice(kHalo)->pools, ElementsAre(kHaloCarveout, "pool-system"));
  EXPECT_EQ(t.FindPool(kHaloCarveout)->total_bytes, 96 * kGiB);
  EXPECT_EQ(t.FindPool(kHaloCarveout)->free_bytes,
            96 * kGiB);  // not capped by MemAvailable: not part of MemTotal
  EXPECT_EQ(t.FindPool(kHaloCarveout)->kind, PoolKind::kCarveout);
}

TEST(ApuMemoryTest, RocmTakesOnePoolAndVulkanBoth) {
  FakeTree tree;
  AddStrixHalo(tree, 96 * kGiB, 16 * kGiB, 31, 28);
  const Topology t = TopologyOf(tree);
  for (const BackendSupport& b : t.FindDevice(kHalo)->backends) {
    EXPECT_EQ(b.may_span_pools, b.name == "vulkan") << b.name;
    EXPECT_EQ(b.pools.size(), 2u) << b.name;
  }
}

TEST(ApuMemoryTest, PhoenixWithALargeCarveout) {
  FakeTree tree;
  AddMemory(tree, 16, 13);
  const std::string dir = AddPci(tree, {"0000:c1:00.0", "0x1002", "0x15bf", "0x00", "0x030000", "amdgpu"});
  AddDrm(tree, "0000:c1:00.0", 1);
  AddAmdMemory(tree, dir, 17179869184u, 104857600, 8589934592u, 0);
  const Topology t = TopologyOf(tree);
  EXPECT_THAT(t.FindDevice("gpu-0000:c1:00.0")->pools,
              ElementsAre("pool-carveout-0000:c1:00.0", "pool-system"));
  EXPECT_EQ(t.FindPool("pool-carveout-0000:c1:00.0")->free_bytes, 17179869184u - 104857600);
}

TEST(ApuMemoryTest, AFullCarveoutDoesNotHideAFreeGtt) {
  FakeTree tree;
  const std::string dir = AddStrixHalo(tree, 2147483648u, 133143986176u, 125, 80);
  tree.File(dir + "/mem_info_vram_used", "2123861327\n").File(dir + "/mem_info_gtt_used", "42606075576\n");
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(t.FindDevice(kHalo)->pools.at(0), "pool-system");
  EXPECT_EQ(t.FindPool("pool-system")->free_bytes, 80 * kGiB);
  EXPECT_EQ(Limit(t, "limit-gtt-0000:c5:00.0")->used_bytes, 42606075576u);
}

TEST(ApuMemoryTest, GttAboveMemoryIsClampedAndSaid) {
  FakeTree tree;
  AddStrixHalo(tree, 512 * kMiB, 137438953472u, 124, 120);
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(Limit(t, "limit-gtt-0000:c5:00.0")->max_bytes, 124 * kGiB);
  EXPECT_THAT(Limit(t, "limit-gtt-0000:c5:00.0")->source, HasSubstr("clamped"));
  ASSERT_NE(Find(t, "gpu.gtt_above_memory"), nullptr);
}

TEST(ApuMemoryTest, MixedGttsizeAndTtmIsReported) {
  FakeTree tree;
  AddStrixHalo(tree, 512 * kMiB, 96 * kGiB, 124, 60);
  tree.File("/sys/module/amdgpu/parameters/gttsize", "65536\n");
  EXPECT_NE(Find(TopologyOf(tree), "gpu.gtt_ttm_mismatch"), nullptr);
  tree.File("/sys/module/amdgpu/parameters/gttsize", "-1\n");
  EXPECT_EQ(Find(TopologyOf(tree), "gpu.gtt_ttm_mismatch"), nullptr);
}

TEST(ApuMemoryTest, HiddenVramFilesMeanNoCarveout) {
  FakeTree tree;
  AddMemory(tree, 125, 100);
  AddPci(tree, {"0000:01:00.0", "0x1002", "0x74a0", "0x00", "0x120000", "amdgpu"});
  AddDrm(tree, "0000:01:00.0", 1);
  AddKfd(tree, {1, 912, 90402, 0x0100, 0x74a0, 129, 0, 7, ""});
  const Topology t = TopologyOf(tree);
  const Device& gpu = *t.FindDevice("gpu-0000:01:00.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kUnified);
  EXPECT_EQ(gpu.gfx_target, "gfx942");
  EXPECT_THAT(gpu.pools, ElementsAre("pool-system"));
}

TEST(ApuMemoryTest, FreeIsNeverAboveATotalThatAnotherFileGave) {
  FakeTree tree;  // found by fuzzing: MemAvailable without MemTotal, and KFD says less
  tree.File("/proc/meminfo", "MemAvailable: 99000000 kB\n");
  tree.File("/sys/class/kfd/kfd/topology/nodes/0/properties", "simd_count 0\n");
  tree.File("/sys/class/kfd/kfd/topology/nodes/0/mem_banks/0/properties",
            "heap_type 0\nsize_in_bytes 4096\n");
  const MemoryPool pool = *TopologyOf(tree).FindPool("pool-system");
  EXPECT_EQ(pool.total_bytes, 4096u);
  EXPECT_EQ(pool.free_bytes, 4096u);
  EXPECT_THAT(pool.source, HasSubstr("clamped"));
}

// --- memory of cards ---

TEST(CardMemoryTest, GttIsNeverAddedToACard) {
  FakeTree tree;
  AddMemory(tree, 125, 100);
  AddR9700(tree, 0, kGiB);
  const Topology t = TopologyOf(tree);
  const Device& gpu = *t.FindDevice("gpu-0000:03:00.0");
  EXPECT_EQ(gpu.name, "AMD Radeon AI PRO R9700");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kDiscrete);
  EXPECT_EQ(gpu.gfx_target, "gfx1201");
  EXPECT_THAT(gpu.pools, ElementsAre("pool-vram-0000:03:00.0"));
  EXPECT_EQ(t.FindPool(gpu.pools[0])->total_bytes, 34208743424u);
  EXPECT_EQ(t.FindPool(gpu.pools[0])->free_bytes, 34208743424u - kGiB);
  EXPECT_THAT(t.FindPool("pool-system")->limits, IsEmpty());
  EXPECT_EQ(gpu.bandwidth_bytes_s.value, 640e9);
  EXPECT_THAT(gpu.bandwidth_bytes_s.source, HasSubstr("table"));
  EXPECT_THAT(gpu.evidence, Contains("ReBAR: on"));
}

TEST(CardMemoryTest, TheLinkIsWhatTheSlotCanDoNotWhatAnIdleCardShows) {
  FakeTree tree;
  AddMemory(tree, 125, 100);
  AddR9700(tree, 0);
  EXPECT_NEAR(*TopologyOf(tree).FindDevice("gpu-0000:03:00.0")->link_bytes_s.value, 63.0e9, 0.1e9);
}

TEST(CardMemoryTest, VisibleVramBelowTotalMeansNoRebar) {
  FakeTree tree;
  AddMemory(tree, 125, 100);
  const std::string dir = AddR9700(tree, 0);
  tree.File(dir + "/mem_info_vis_vram_total", "268435456\n");
  const Topology t = TopologyOf(tree);
  EXPECT_NE(Find(t, "gpu.rebar_off"), nullptr);
  EXPECT_EQ(t.FindPool("pool-vram-0000:03:00.0")->total_bytes, 34208743424u);
}

TEST(CardMemoryTest, UsedAboveTotalLeavesNothingAndIsSaid) {
  FakeTree tree;
  AddMemory(tree, 125, 100);
  AddR9700(tree, 0, 90 * kGiB);
  const MemoryPool pool = *TopologyOf(tree).FindPool("pool-vram-0000:03:00.0");
  EXPECT_EQ(pool.free_bytes, 0u);
  EXPECT_THAT(pool.source, HasSubstr("clamped"));
}

TEST(CardMemoryTest, NonsenseFilesAreUnknownAndSaid) {
  for (const char* text :
       {"-5\n", "lots\n", "99999999999999999999999\n", "4611686018427387904\n", "", "1 2\n"}) {
    FakeTree tree;
    AddMemory(tree, 125, 100);
    const std::string dir = AddR9700(tree, 0);
    tree.File(dir + "/mem_info_vram_total", text);
    tree.Remove("/sys/class/kfd");
    const Topology t = TopologyOf(tree);
    EXPECT_EQ(t.FindPool("pool-vram-0000:03:00.0")->total_bytes, std::nullopt) << text;
    EXPECT_NE(Find(t, "gpu.malformed_files"), nullptr) << text;
  }
}

TEST(CardMemoryTest, NulPaddingIsNormal) {
  FakeTree tree;
  AddMemory(tree, 125, 100);
  const std::string dir = AddR9700(tree, 0);
  tree.File(dir + "/mem_info_vram_total", std::string("34208743424\n") + std::string(4084, '\0'));
  EXPECT_EQ(TopologyOf(tree).FindPool("pool-vram-0000:03:00.0")->total_bytes, 34208743424u);
}

// --- partitions ---

TEST(PartitionTest, SpxIsOneDevice) {
  FakeTree tree;
  AddMemory(tree, 1500, 1400);
  const std::string dir = AddPci(tree, {"0000:05:00.0", "0x1002", "0x74a1", "0x00", "0x120000", "amdgpu"});
  AddDrm(tree, "0000:05:00.0", 0);
  AddAmdMemory(tree, dir, 206141652992u, 0, 800000000000u, 0);
  tree.File(dir + "/current_compute_partition", "SPX\n").File(dir + "/current_memory_partition", "NPS1\n");
  AddKfd(tree, {2, 1216, 90402, 0x0500, 0x74a1, 128, 206141652992u, 77, ""});
  const Topology t = TopologyOf(tree);
  const Device& gpu = *t.FindDevice("gpu-0000:05:00.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kDiscrete);
  EXPECT_EQ(gpu.compute_units, 304);
  EXPECT_EQ(gpu.bandwidth_bytes_s.value, 5300e9);
  EXPECT_THAT(t.FindPool("pool-vram-0000:05:00.0")->limits, IsEmpty());
  EXPECT_EQ(t.devices.size(), 2u);
}

void AddCpx(FakeTree& tree, const char* nps) {
  AddMemory(tree, 1500, 1400);
  const std::string dir = AddPci(tree, {"0000:05:00.0", "0x1002", "0x74a1", "0x00", "0x120000", "amdgpu"});
  AddDrm(tree, "0000:05:00.0", 0);
  AddAmdMemory(tree, dir, 206141652992u, 0, 800000000000u, 0);
  tree.File(dir + "/current_compute_partition", "CPX\n")
      .File(dir + "/current_memory_partition", std::string(nps) + "\n");
  for (int i = 0; i < 8; ++i) {
    AddKfd(tree, {2 + i, 152, 90402, static_cast<uint64_t>(0x0500 + i), 0x74a1, 128 + i, 206141652992u / 8,
                  77, ""});
    if (i == 0) continue;
    // Extra render nodes hang off platform devices without a PCI address.
    tree.File("/sys/devices/platform/amdgpu_xcp_" + std::to_string(i) + "/uevent", "DRIVER=amdgpu\n");
    tree.Link("/sys/class/drm/renderD" + std::to_string(128 + i) + "/device",
              "../../../devices/platform/amdgpu_xcp_" + std::to_string(i));
  }
}

TEST(PartitionTest, CpxPartitionsShareOnePoolAndAreCappedEach) {
  FakeTree tree;
  AddCpx(tree, "NPS4");
  const Topology t = TopologyOf(tree);
  int gpus = 0;
  Bytes caps = 0;
  for (const Device& d : t.devices) {
    if (d.kind != DeviceKind::kGpu) continue;
    ++gpus;
    EXPECT_THAT(d.pools, ElementsAre("pool-vram-0000:05:00.0"));
    EXPECT_EQ(d.compute_units, 38);
    EXPECT_EQ(d.parent, d.id == "gpu-0000:05:00.0" ? "" : "gpu-0000:05:00.0");
    EXPECT_EQ(d.bandwidth_bytes_s.value, std::nullopt);  // a share nobody stated
    const MemoryLimit* limit = Limit(t, "limit-partition-" + d.pci_address);
    ASSERT_NE(limit, nullptr) << d.id;
    EXPECT_THAT(limit->devices, ElementsAre(d.id));
    caps += *limit->max_bytes;
  }
  EXPECT_EQ(gpus, 8);
  EXPECT_EQ(caps, 206141652992u);
  EXPECT_EQ(t.FindPool("pool-vram-0000:05:00.0")->total_bytes, 206141652992u);  // once, not eight times
  EXPECT_EQ(t.pools.size(), 2u);
}

TEST(PartitionTest, OfACardWithUnknownMemoryUsesWhatTheCardUses) {
  FakeTree tree;  // found by fuzzing: the partition named a pool that nobody made
  tree.File("/sys/class/kfd/kfd/topology/nodes/0/properties",
            "simd_count 4\nlocation_id 1280\nunique_id 7\n");
  tree.File("/sys/class/kfd/kfd/topology/nodes/1/properties",
            "simd_count 4\nlocation_id 1281\nunique_id 7\n");
  const Topology t = TopologyOf(tree);
  EXPECT_THAT(t.FindDevice("gpu-0000:05:00.0")->pools, ElementsAre("pool-system"));
  EXPECT_THAT(t.FindDevice("gpu-0000:05:00.1")->pools, ElementsAre("pool-system"));
}

TEST(PartitionTest, AVirtualFunctionIsACardOfItsOwnAndSaysSo) {
  FakeTree tree;
  AddMemory(tree, 1500, 1400);
  const std::string dir = AddPci(tree, {"0000:05:02.0", "0x1002", "0x74b5", "0x00", "0x120000", "amdgpu"});
  tree.Dir("/sys/devices/pci0000:00/0000:05:00.0").Link(dir + "/physfn", "../0000:05:00.0");
  AddDrm(tree, "0000:05:02.0", 0);
  AddAmdMemory(tree, dir, 206141652992u, 0, 800000000000u, 0);
  tree.File(dir + "/gpu_busy_percent", "N/A\n");  // what a guest sees of metrics
  AddKfd(tree, {2, 1216, 90402, 0x0510, 0x74b5, 128, 206141652992u, 77, ""});
  const Topology t = TopologyOf(tree);
  const Device& gpu = *t.FindDevice("gpu-0000:05:02.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kDiscrete);
  EXPECT_EQ(gpu.gfx_target, "gfx942");
  EXPECT_EQ(t.FindPool("pool-vram-0000:05:02.0")->total_bytes, 206141652992u);
  EXPECT_THAT(gpu.evidence, Contains("SR-IOV: a virtual function"));
}

// --- several GPUs ---

TEST(HybridTest, ApuAndTwoCardsKeepTheirOwnMemory) {
  FakeTree tree;
  AddStrixHalo(tree, 512 * kMiB, 64 * kGiB, 124, 100);
  AddR9700(tree, 0);
  AddR9700(tree, 1);
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(t.FindDevice("gpu-0000:03:00.0")->pools.at(0), "pool-vram-0000:03:00.0");
  EXPECT_EQ(t.FindDevice("gpu-0000:23:00.0")->pools.at(0), "pool-vram-0000:23:00.0");
  EXPECT_EQ(t.FindDevice(kHalo)->pools.at(0), "pool-system");
  EXPECT_FALSE(t.FindDevice(kHalo)->secondary);  // 40 CUs are no display core
  EXPECT_EQ(t.pools.size(), 4u);
}

void AddDesktopDisplayCore(FakeTree& tree, int node, int render) {
  const std::string dir = AddPci(tree, {"0000:0e:00.0", "0x1002", "0x13c0", "0xc9", "0x030000", "amdgpu"});
  AddAmdMemory(tree, dir, 512 * kMiB, 0, 16 * kGiB, 0);
  AddKfd(tree, {node, 4, 100306, 0x0e00, 0x13c0, render, 0, 0, ""});
}

TEST(HybridTest, ADisplayCoreIsKeptLastAndNeverDecidesForTheCard) {
  for (const bool core_first : {false, true}) {
    FakeTree tree;
    AddMemory(tree, 64, 60);
    AddR9700(tree, 0);
    AddDesktopDisplayCore(tree, core_first ? 1 : 3, core_first ? 127 : 131);
    const Topology t = TopologyOf(tree);
    EXPECT_FALSE(t.FindDevice("gpu-0000:03:00.0")->secondary);
    EXPECT_EQ(t.FindDevice("gpu-0000:03:00.0")->gfx_target, "gfx1201");
    const Device& core = t.devices.back();
    EXPECT_EQ(core.id, "gpu-0000:0e:00.0");
    EXPECT_TRUE(core.secondary);
    EXPECT_EQ(core.gfx_target, "gfx1036");
    EXPECT_EQ(core.memory_kind, MemoryKind::kUnified);
  }
}

TEST(HybridTest, KfdAloneIsEnoughAndZeroTargetsDoNoHarm) {
  FakeTree tree;
  tree.File("/sys/class/kfd/kfd/topology/nodes/0/properties", "simd_count 0\n");
  tree.File(
      "/sys/class/kfd/kfd/topology/nodes/1/properties",
      "gfx_target_version 120001\nvendor_id 4098\ndevice_id 30033\nsimd_count 128\ndrm_render_minor 128\n");
  tree.File("/sys/class/kfd/kfd/topology/nodes/2/properties",
            "gfx_target_version 0\nvendor_id 4098\ndevice_id 5056\nsimd_count 4\ndrm_render_minor 129\n");
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(t.FindDevice("gpu-render128")->gfx_target, "gfx1201");
  EXPECT_EQ(t.FindDevice("gpu-render128")->pci_id, "1002:7551");
  EXPECT_EQ(t.FindDevice("gpu-render129")->gfx_target, "gfx1036");  // by its id
}

TEST(HybridTest, VisibleDevicesAreHonouredAndSaid) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddR9700(tree, 0);
  AddR9700(tree, 1);
  Facts facts = FactsOf(tree);
  facts.environment = {{"HIP_VISIBLE_DEVICES", "0"}};
  const Topology t = Assemble(facts);
  for (const BackendSupport& b : t.FindDevice("gpu-0000:23:00.0")->backends) {
    if (b.name != "hip") continue;
    EXPECT_THAT(b.reason, HasSubstr("HIP_VISIBLE_DEVICES=0"));
  }
  for (const BackendSupport& b : t.FindDevice("gpu-0000:03:00.0")->backends) {
    if (b.name != "hip") continue;
    EXPECT_THAT(b.reason, testing::Not(HasSubstr("HIP_VISIBLE_DEVICES")));
  }
}

TEST(HybridTest, ACardWithoutAnAddressIsJoinedByItsIds) {
  FakeTree tree;
  AddMemory(tree, 124, 60);
  tree.File("/sys/class/drm/card0/device/vendor", "0x1002\n")
      .File("/sys/class/drm/card0/device/device", "0x1586\n");
  AddAmdMemory(tree, "/sys/class/drm/card0/device", 536870912, 400000000, 115964116992u, 0);
  AddKfd(tree, {1, 80, 110501, 0xc500, 0x1586, 128, 0, 0, ""});
  const Topology t = TopologyOf(tree);
  int gpus = 0;
  for (const Device& d : t.devices) gpus += d.kind == DeviceKind::kGpu;
  EXPECT_EQ(gpus, 1);
  EXPECT_EQ(t.FindDevice("gpu-card0")->pci_address, "0000:c5:00.0");
  EXPECT_EQ(t.FindDevice("gpu-card0")->memory_kind, MemoryKind::kUnified);
  EXPECT_EQ(Limit(t, "limit-gtt-card0")->max_bytes, 115964116992u);
}

// --- discrete or unified ---

TEST(MemoryKindTest, TheDriversFlagBeatsEverything) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddR9700(tree, 0);
  Facts facts = FactsOf(tree);
  facts.drm["0000:03:00.0"].fusion = true;
  const Topology t = Assemble(facts);
  const Device& gpu = *t.FindDevice("gpu-0000:03:00.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kUnified);
  EXPECT_THAT(gpu.memory_kind_rule, HasSubstr("FUSION"));
  EXPECT_THAT(gpu.evidence, Contains(HasSubstr("board_info")));  // later rules stay as evidence
}

// An id no table knows, so that the later rules show.
std::string AddUnknownAmd(FakeTree& tree, uint64_t vram, uint64_t gtt) {
  AddMemory(tree, 124, 100);
  const std::string dir = AddPci(tree, {"0000:03:00.0", "0x1002", "0xfff0", "0x00", "0x030000", "amdgpu"});
  AddAmdMemory(tree, dir, vram, 0, gtt, 0);
  return dir;
}

TEST(MemoryKindTest, UmaFolderMeansUnified) {
  FakeTree tree;
  const std::string dir = AddUnknownAmd(tree, 96 * kGiB, 16 * kGiB);
  tree.File(dir + "/uma/carveout", "2\n")
      .File(dir + "/uma/carveout_options", "0: Minimum (512 MB)\n1: Medium (32 GB)\n2: High (96 GB)\n");
  const Topology t = TopologyOf(tree);
  const Device& gpu = *t.FindDevice("gpu-0000:03:00.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kUnified);
  EXPECT_THAT(gpu.memory_kind_rule, HasSubstr("uma/"));
  EXPECT_THAT(gpu.evidence, Contains(HasSubstr("High (96 GB)")));
}

TEST(MemoryKindTest, ABoardOrAVramVendorMeansDiscrete) {
  for (const char* file : {"/board_info", "/mem_info_vram_vendor"}) {
    FakeTree tree;
    const std::string dir = AddUnknownAmd(tree, 2 * kGiB, 32 * kGiB);
    tree.File(dir + file, "hynix\n");
    EXPECT_EQ(TopologyOf(tree).FindDevice("gpu-0000:03:00.0")->memory_kind, MemoryKind::kDiscrete) << file;
  }
}

TEST(MemoryKindTest, AnUnknownVramVendorSaysNothing) {
  FakeTree tree;
  const std::string dir = AddUnknownAmd(tree, 512 * kMiB, 32 * kGiB);
  tree.File(dir + "/mem_info_vram_vendor", "unknown\n");
  const Device gpu = *TopologyOf(tree).FindDevice("gpu-0000:03:00.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kUnified);
  EXPECT_THAT(gpu.memory_kind_rule, HasSubstr("size rule"));
}

TEST(MemoryKindTest, VulkanOfTheSameAddressDecidesBeforeSize) {
  FakeTree tree;
  AddUnknownAmd(tree, 512 * kMiB, 32 * kGiB);
  Facts facts = FactsOf(tree);
  VulkanDevice v;
  v.type = "discrete", v.address = "0000:03:00.0", v.driver = "radv";
  facts.vulkan = VulkanFacts{"", {v}};
  EXPECT_EQ(Assemble(facts).FindDevice("gpu-0000:03:00.0")->memory_kind, MemoryKind::kDiscrete);
}

TEST(MemoryKindTest, UnknownStaysUnknownAndGttIsNotCounted) {
  FakeTree tree;
  AddUnknownAmd(tree, 64 * kGiB, 16 * kGiB);
  const Topology t = TopologyOf(tree);
  const Device& gpu = *t.FindDevice("gpu-0000:03:00.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kUnknown);
  ASSERT_EQ(gpu.pools.size(), 1u);
  EXPECT_EQ(t.FindPool(gpu.pools[0])->total_bytes, 64 * kGiB);
}

// --- Intel, NVIDIA, virtual ---

TEST(IntelTest, TheLinkIsReadAboveTheCardsOwnSwitch) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  const std::string bridges = "0000:00:01.0/0000:01:00.0/0000:02:01.0";
  const std::string dir =
      AddPci(tree, {"0000:03:00.0", "0x8086", "0xe20b", "0x00", "0x030000", "xe"}, bridges);
  const auto link = [&](const std::string& at, const char* speed, const char* width) {
    tree.File(at + "/max_link_speed", speed)
        .File(at + "/current_link_speed", speed)
        .File(at + "/current_link_width", width);
  };
  link(dir, "2.5 GT/s PCIe\n", "1\n");
  link("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0", "2.5 GT/s PCIe\n", "1\n");
  link("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0", "16.0 GT/s PCIe\n", "8\n");
  link("/sys/devices/pci0000:00/0000:00:01.0", "32.0 GT/s PCIe\n", "8\n");
  const Device gpu = *TopologyOf(tree).FindDevice("gpu-0000:03:00.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kDiscrete);
  EXPECT_NEAR(*gpu.link_bytes_s.value, 15.75e9, 0.01e9);
  EXPECT_THAT(gpu.link_bytes_s.source, HasSubstr("bridge"));
}

TEST(IntelTest, MemoryRegionsGiveTheSize) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddPci(tree, {"0000:03:00.0", "0x8086", "0xe20b", "0x00", "0x030000", "xe"});
  Facts facts = FactsOf(tree);
  facts.drm["0000:03:00.0"].local_total = 12809404416u;
  const Topology t = Assemble(facts);
  EXPECT_EQ(t.FindPool("pool-vram-0000:03:00.0")->total_bytes, 12809404416u);
  EXPECT_EQ(t.FindPool("pool-vram-0000:03:00.0")->free_bytes,
            std::nullopt);  // 0 used without CAP_PERFMON is no knowledge
}

TEST(IntelTest, IntegratedGraphicsMayTakeWhatVulkanOffersOfSystemMemory) {
  FakeTree tree;
  AddMemory(tree, 32, 30);
  AddPci(tree, {"0000:00:02.0", "0x8086", "0x64a0", "0x04", "0x030000", "xe"});
  Facts facts = FactsOf(tree);
  VulkanDevice v;
  v.type = "integrated", v.address = "0000:00:02.0", v.driver = "Intel open-source Mesa driver";
  v.heaps = {{16 * kGiB, {}, {}, true}};
  facts.vulkan = VulkanFacts{"", {v}};
  const Topology t = Assemble(facts);
  const Device& gpu = *t.FindDevice("gpu-0000:00:02.0");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kUnified);
  EXPECT_THAT(gpu.pools, ElementsAre("pool-system"));
  EXPECT_EQ(Limit(t, "limit-vulkan-0000:00:02.0")->max_bytes, 16 * kGiB);
  EXPECT_THAT(Limit(t, "limit-vulkan-0000:00:02.0")->backends, ElementsAre("vulkan"));
}

Facts NvidiaFactsOf(FakeTree& tree, NvidiaGpu gpu, const char* device) {
  AddMemory(tree, 119, 110);
  AddPci(tree, {gpu.address, "0x10de", device, "0xa1", "0x030200", "nvidia"});
  Facts facts = FactsOf(tree);
  facts.nvidia = NvidiaFacts{"nvml", "", "580.1", "13.0", {std::move(gpu)}};
  return facts;
}

TEST(NvidiaTest, Gb10IsUnifiedAndUsesSystemMemory) {
  FakeTree tree;
  NvidiaGpu gpu;
  gpu.address = "000f:01:00.0", gpu.name = "NVIDIA GB10", gpu.memory_not_supported = true,
  gpu.compute_capability = "12.1";
  const Topology t = Assemble(NvidiaFactsOf(tree, gpu, "0x2e12"));
  const Device& d = *t.FindDevice("gpu-000f:01:00.0");
  EXPECT_EQ(d.memory_kind, MemoryKind::kUnified);
  EXPECT_THAT(d.pools, ElementsAre("pool-system"));
  EXPECT_EQ(d.gfx_target, "sm_121");
  EXPECT_TRUE(d.usable);
  EXPECT_EQ(t.pools.size(), 1u);
}

TEST(NvidiaTest, MigInstancesHaveTheirOwnMemoryAndTheParentIsNotUsed) {
  FakeTree tree;
  NvidiaGpu gpu;
  gpu.address = "0000:83:00.0", gpu.name = "NVIDIA H200", gpu.total = 143771 * kMiB, gpu.free = 143158 * kMiB;
  gpu.mig_enabled = true;
  gpu.mig = {{"MIG-a", "MIG 1g.18gb", 7, 0, 18 * kGiB, kGiB}, {"MIG-b", "MIG 3g.71gb", 1, 0, 70 * kGiB, 0}};
  const Topology t = Assemble(NvidiaFactsOf(tree, gpu, "0x2335"));
  EXPECT_FALSE(t.FindDevice("gpu-0000:83:00.0")->usable);
  const Device& small = *t.FindDevice("gpu-0000:83:00.0-mig7");
  EXPECT_TRUE(small.usable);
  EXPECT_EQ(small.parent, "gpu-0000:83:00.0");
  EXPECT_EQ(small.backends.at(0).selector, "MIG-a");
  EXPECT_EQ(t.FindPool(small.pools.at(0))->free_bytes, 17 * kGiB);
  EXPECT_EQ(t.FindPool("pool-vram-0000:83:00.0"), nullptr);  // or the memory would be counted twice
  EXPECT_EQ(small.bandwidth_bytes_s.value, std::nullopt);
}

TEST(NvidiaTest, NouveauHasNoCuda) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddPci(tree, {"0000:09:00.0", "0x10de", "0x2704", "0xa1", "0x030000", "nouveau"});
  AddDrm(tree, "0000:09:00.0", 1);
  Facts facts = FactsOf(tree);
  facts.nvidia = NvidiaFacts{"", "NVML cannot be loaded", "", "", {}};
  const Topology t = Assemble(facts);
  EXPECT_THAT(t.FindDevice("gpu-0000:09:00.0")->backends.at(0).reason, HasSubstr("nouveau"));
}

TEST(VirtualDisplayTest, IsNoGpu) {
  FakeTree tree;
  AddMemory(tree, 16, 15);
  AddPci(tree, {"0000:00:02.0", "0x1af4", "0x1050", "0x01", "0x030000", "virtio-pci"});
  const Topology t = TopologyOf(tree);
  EXPECT_EQ(t.devices.size(), 1u);
  EXPECT_NE(Find(t, "gpu.virtual_display"), nullptr);
}

// --- access ---

TEST(AccessTest, NoDriverIsPresentOnly) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddPci(tree, {"0000:03:00.0", "0x1002", "0x7551", "0xc0", "0x030000", ""});
  tree.Dir("/dev");
  const Topology t = TopologyOf(tree);
  const Device& gpu = *t.FindDevice("gpu-0000:03:00.0");
  EXPECT_TRUE(gpu.present);
  EXPECT_FALSE(gpu.accessible);
  EXPECT_FALSE(gpu.usable);
  EXPECT_THAT(gpu.remedy, HasSubstr("amdgpu"));
  EXPECT_EQ(Find(t, "gpu.no_driver")->severity, Severity::kBroken);
}

TEST(AccessTest, ASandboxWithoutNodesIsTold) {
  FakeTree tree;
  AddStrixHalo(tree, 512 * kMiB, 62 * kGiB, 124, 100);
  tree.Remove("/dev/kfd").Remove("/dev/dri");
  const Topology t = TopologyOf(tree);
  EXPECT_TRUE(t.FindDevice(kHalo)->present);
  EXPECT_FALSE(t.FindDevice(kHalo)->accessible);
  EXPECT_THAT(t.FindDevice(kHalo)->reason, HasSubstr("/dev/dri/renderD129 is missing"));
  EXPECT_THAT(t.FindDevice(kHalo)->remedy, HasSubstr("--device=/dev/kfd"));
}

TEST(AccessTest, AMissingGroupIsNamed) {
  FakeTree tree;
  AddStrixHalo(tree, 512 * kMiB, 62 * kGiB, 124, 100);
  Facts facts = FactsOf(tree);
  for (NodeAccess* node : {&facts.pci.at(0).render_node, &facts.kfd.node}) {
    *node = {true, false, 0, 993, 0660, "render"};
  }
  const Topology t = Assemble(facts);
  EXPECT_FALSE(t.FindDevice(kHalo)->accessible);
  EXPECT_THAT(t.FindDevice(kHalo)->reason, HasSubstr("group render, mode 0660"));
  EXPECT_THAT(t.FindDevice(kHalo)->remedy, HasSubstr("usermod -aG render"));
  EXPECT_NE(Find(t, "gpu.no_render_group"), nullptr);
  EXPECT_NE(Find(t, "gpu.no_kfd_access"), nullptr);
}

TEST(AccessTest, HipAndVulkanMakeItUsable) {
  FakeTree tree;
  AddStrixHalo(tree, 512 * kMiB, 62 * kGiB, 124, 100);
  Facts facts = FactsOf(tree);
  VulkanDevice v;
  v.index = 1, v.type = "integrated", v.address = "0000:c5:00.0", v.driver = "radv",
  v.driver_info = "Mesa 26.1.3";
  facts.vulkan = VulkanFacts{"", {v}};
  facts.hip = HipFacts{
      "", "libamdhip64.so.6", "6.4.1", {{0, "AMD Radeon Graphics", "0000:c5:00.0", 62 * kGiB, 60 * kGiB}}};
  const Topology t = Assemble(facts);
  const Device& gpu = *t.FindDevice(kHalo);
  EXPECT_TRUE(gpu.usable);
  ASSERT_EQ(gpu.backends.size(), 2u);
  EXPECT_TRUE(gpu.backends[0].usable && gpu.backends[1].usable);
  EXPECT_EQ(gpu.backends[0].name, "hip");
  EXPECT_EQ(gpu.backends[1].selector, "1");
  EXPECT_EQ(gpu.backends[1].version, "Mesa 26.1.3");
  EXPECT_EQ(gpu.name, "AMD Radeon 8060S Graphics");
}

TEST(AccessTest, RadvIsJoinedByItsUuid) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddR9700(tree, 0);
  AddR9700(tree, 1);
  Facts facts = FactsOf(tree);
  VulkanDevice a, b;
  a.index = 0, a.type = "discrete", a.driver = "radv", a.uuid = "00000000230000000000000000000000";
  b.index = 1, b.type = "discrete", b.driver = "radv", b.uuid = "00000000030000000000000000000000";
  facts.vulkan = VulkanFacts{"", {a, b}};
  const Topology t = Assemble(facts);
  EXPECT_EQ(t.FindDevice("gpu-0000:23:00.0")->backends.at(1).selector, "0");
  EXPECT_EQ(t.FindDevice("gpu-0000:03:00.0")->backends.at(1).selector, "1");
}

TEST(AccessTest, OverridesAndSuspensionAreSaid) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  const std::string dir = AddR9700(tree, 0);
  tree.File(dir + "/power/runtime_status", "suspended\n");
  Facts facts = FactsOf(tree);
  facts.environment = {{"HSA_OVERRIDE_GFX_VERSION", "11.0.0"}};
  const Topology t = Assemble(facts);
  EXPECT_NE(Find(t, "gpu.suspended"), nullptr);
  EXPECT_NE(Find(t, "gpu.hsa_override"), nullptr);
}

TEST(MeasuredTest, BeatsTheTableUnlessTheDriverChanged) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddR9700(tree, 0);
  Facts facts = FactsOf(tree);
  VulkanDevice v;
  v.type = "discrete", v.address = "0000:03:00.0", v.driver = "radv", v.driver_info = "Mesa 26.1",
  v.uuid = "aa";
  facts.vulkan = VulkanFacts{"", {v}};
  facts.hip = HipFacts{"", "", "6.4.1", {{0, "", "0000:03:00.0", {}, {}}}};
  facts.measured = {{"vulkan", "aa", "Mesa 26.1", "", 560e9, 20e12, 256 * kMiB, ""},
                    {"hip", "0000:03:00.0", "6.4.1", "", 575e9, {}, 256 * kMiB, ""}};
  Device gpu = *Assemble(facts).FindDevice("gpu-0000:03:00.0");
  EXPECT_EQ(gpu.bandwidth_bytes_s.value, 575e9);
  EXPECT_EQ(gpu.bandwidth_bytes_s.source, "measured here: copying 256.0 MiB with hip");
  EXPECT_EQ(gpu.fp32_flops.value, 20e12);
  EXPECT_THAT(gpu.fp32_flops.source, HasSubstr("lower bound"));
  EXPECT_EQ(gpu.fp16_flops.value, 191e12);  // no kernel of ours measures that
  facts.measured[0].driver_info = "Mesa 25.0";
  facts.measured[1].key = "0000:23:00.0";
  gpu = *Assemble(facts).FindDevice("gpu-0000:03:00.0");
  EXPECT_EQ(gpu.bandwidth_bytes_s.value, 640e9);
}

// --- software renderers ---

TEST(SoftwareTest, LlvmpipeIsListedAndNeverAGpu) {
  for (const char* type : {"cpu", "other", "virtual"}) {
    FakeTree tree;
    AddMemory(tree, 23, 20);
    Facts facts = FactsOf(tree);
    VulkanDevice v;
    v.name = "llvmpipe (LLVM 15.0.6, 256 bits)", v.type = type, v.vendor = 0x10005, v.driver = "llvmpipe";
    v.heaps = {{2 * kGiB, {}, {}, true}};
    facts.vulkan = VulkanFacts{"", {v}};
    const Topology t = Assemble(facts);
    const Device& d = *t.FindDevice("software-llvmpipe");
    EXPECT_EQ(d.kind, DeviceKind::kCpu);
    EXPECT_TRUE(d.software);
    EXPECT_FALSE(d.usable);
    EXPECT_THAT(d.pools, ElementsAre("pool-system"));
    EXPECT_EQ(t.pools.size(), 1u);  // its 2 GiB "device-local" heap is no memory
  }
}

TEST(SoftwareTest, ARealCardBesideItIsUnharmed) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddR9700(tree, 0);
  Facts facts = FactsOf(tree);
  VulkanDevice soft, card;
  soft.type = "cpu", soft.driver = "llvmpipe", soft.vendor = 0x10005, soft.index = 0;
  card.type = "discrete", card.driver = "radv", card.address = "0000:03:00.0", card.index = 1;
  facts.vulkan = VulkanFacts{"", {soft, card}};
  const Topology t = Assemble(facts);
  EXPECT_TRUE(t.FindDevice("gpu-0000:03:00.0")->usable);
  EXPECT_EQ(t.devices.back().id, "software-llvmpipe");
  EXPECT_EQ(Find(t, "vulkan.software_only"), nullptr);
}

TEST(SoftwareTest, AMissingLoaderIsAFact) {
  FakeTree tree;
  AddMemory(tree, 23, 20);
  Facts facts = FactsOf(tree);
  facts.vulkan = VulkanFacts{"the Vulkan loader cannot be loaded: x", {}};
  const Topology t = Assemble(facts);
  EXPECT_EQ(Find(t, "vulkan.unavailable")->severity, Severity::kInfo);
  EXPECT_EQ(t.devices.size(), 1u);
}

}  // namespace
}  // namespace rumbo
