// Trees and texts captured on real machines, where they stand beside the project. What is expected was
// written by hand from the files and from what is known about the hardware, not from this program's output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/os/files.h"
#include "devices/nvidia/nvidia_text.h"
#include "devices/testing/machines.h"
#include "devices/tools/tool_texts.h"

namespace rumbo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

#define NEED_CAPTURES() \
  if (CaptureDir().empty()) GTEST_SKIP() << "no captures beside the project (../shared/captures)"

Topology Probe(const std::string& tree) {
  GatherOptions options;
  options.vendor_libraries = false;
  options.deadline = std::chrono::minutes(2);
  return Assemble(Gather(Root(CaptureDir() + "/" + tree), options).facts);
}

struct Card {
  const char* tree;
  const char* id;
  MemoryKind memory;
  const char* gfx;
  std::optional<Bytes> vram;
  double link;  // bytes/s, 0 unknown
};

constexpr double kGen3x16 = 15.75e9, kGen4x16 = 31.5e9, kGen5x16 = 63.0e9;

TEST(CapturedTreeTest, EveryCardHasItsKindTargetAndMemory) {
  NEED_CAPTURES();
  const MemoryKind discrete = MemoryKind::kDiscrete, unified = MemoryKind::kUnified;
  const Card cards[] = {
      {"amd-hd7870", "gpu-0000:01:00.0", discrete, "", {}, 0.98e9},
      {"amd-r7-240", "gpu-0000:01:00.0", discrete, "", 2147483648u, 3.94e9},
      {"amd-r9-280", "gpu-0000:01:00.0", discrete, "", {}, 4.0e9},
      {"amd-rx5500xt", "gpu-0000:04:00.0", discrete, "gfx1012", {}, kGen4x16},
      {"amd-rx5700xt", "gpu-0000:28:00.0", discrete, "gfx1010", {}, kGen4x16},
      {"amd-rx580", "gpu-0000:09:00.0", discrete, "gfx803", 4294967296u, kGen3x16},
      {"amd-rx6600", "gpu-0000:12:00.0", discrete, "gfx1032", {}, kGen4x16},
      {"amd-rx6600xt", "gpu-0000:0b:00.0", discrete, "gfx1032", {}, kGen4x16},
      {"amd-rx6900xt", "gpu-0000:0c:00.0", discrete, "gfx1030", 17163091968u, kGen4x16},
      {"amd-rx7700s", "gpu-0000:03:00.0", discrete, "gfx1102", {}, kGen4x16 / 2},
      {"amd-rx7800xt", "gpu-0000:03:00.0", discrete, "gfx1101", {}, kGen4x16},
      {"amd-rx9070", "gpu-0000:03:00.0", discrete, "gfx1201", {}, kGen5x16},
      {"amd-rx9070xt", "gpu-0000:0f:00.0", discrete, "gfx1201", {}, kGen5x16},
      {"amd-vega56", "gpu-0000:0b:00.0", discrete, "gfx900", 8573157376u, kGen3x16},
      {"amd-strixpoint", "gpu-0000:c1:00.0", unified, "gfx1150", {}, 0},
      {"amd-vangogh", "gpu-0000:04:00.0", unified, "gfx1033", {}, 0},
      {"intel-a380-i915", "gpu-0000:0b:00.0", discrete, "", {}, 0},  // 2.5 GT/s x1 is the card's own switch
      {"intel-a380-xe", "gpu-0000:08:00.0", discrete, "", {}, 0},
      {"intel-b580", "gpu-0000:09:00.0", discrete, "", {}, 0},
      {"intel-b580-6.16", "gpu-0000:0b:00.0", discrete, "", {}, 0},
      {"intel-cometlake", "gpu-0000:00:02.0", unified, "", {}, 0},
      {"nvidia-rtx4080", "gpu-0000:09:00.0", discrete, "sm_89", {}, 8.0e9},
  };
  // No captured tree is without expected values: these, and those of the tests below.
  std::set<std::string> expected{"nogpu-firecracker-vm"};
  for (const Card& c : cards) expected.insert(c.tree);
  EXPECT_THAT(Root(CaptureDir()).List("sysfs"), testing::ElementsAreArray(expected));
  EXPECT_THAT(
      Root(CaptureDir()).List("kfd"),
      ElementsAre("mi210-8gpu-xgmi", "mi300x-cpx-8gpu-63of64partitions", "vega20-mi50-old-kernel-2gpu"));
  for (const Card& c : cards) {
    SCOPED_TRACE(c.tree);
    const Topology t = Probe(std::string("sysfs/") + c.tree);
    const Device* d = t.FindDevice(c.id);
    ASSERT_NE(d, nullptr);
    EXPECT_EQ(t.devices.size(), 2u);  // the CPU and this card
    EXPECT_EQ(d->kind, DeviceKind::kGpu);
    EXPECT_EQ(d->memory_kind, c.memory);
    EXPECT_EQ(d->gfx_target, c.gfx);
    EXPECT_TRUE(d->present);
    EXPECT_FALSE(d->accessible);  // these trees have no /dev
    EXPECT_FALSE(d->usable);
    EXPECT_EQ(d->link_bytes_s.value.has_value(), c.link != 0);
    EXPECT_NEAR(d->link_bytes_s.value.value_or(0), c.link, c.link * 0.01);
    if (c.memory == discrete) {
      EXPECT_EQ(t.FindPool(d->pools.at(0))->total_bytes, c.vram);
      EXPECT_EQ(t.FindPool(d->pools.at(0))->kind, PoolKind::kVram);
    } else {
      EXPECT_EQ(d->pools.at(0), "pool-system");
    }
  }
}

TEST(CapturedTreeTest, StrixPointHasACarveoutAndAGttLimit) {
  NEED_CAPTURES();
  const Topology t = Probe("sysfs/amd-strixpoint");
  const Device& gpu = *t.FindDevice("gpu-0000:c1:00.0");
  EXPECT_EQ(gpu.compute_units, 12);  // an 880M: 24 SIMDs, two per CU
  EXPECT_THAT(gpu.pools, ElementsAre("pool-system", "pool-carveout-0000:c1:00.0"));
  const MemoryPool& carveout = *t.FindPool("pool-carveout-0000:c1:00.0");
  EXPECT_EQ(carveout.total_bytes, 536870912u);
  EXPECT_EQ(carveout.free_bytes, 536870912u - 514580480u);
  const MemoryPool& system = *t.FindPool("pool-system");
  EXPECT_EQ(system.total_bytes, 32882008064u);  // the tree has no meminfo; KFD says it
  ASSERT_GE(system.limits.size(), 1u);
  EXPECT_EQ(system.limits[0].id, "limit-gtt-0000:c1:00.0");
  EXPECT_EQ(system.limits[0].max_bytes, 16441004032u);
  EXPECT_EQ(system.limits[0].used_bytes, 3946811392u);
}

TEST(CapturedTreeTest, RebarIsReadFromVisibleVram) {
  NEED_CAPTURES();
  EXPECT_THAT(Probe("sysfs/amd-rx6900xt").FindDevice("gpu-0000:0c:00.0")->evidence,
              testing::Contains("ReBAR: on"));
  for (const auto& [tree, id] :
       {std::pair("amd-rx580", "gpu-0000:09:00.0"), std::pair("amd-vega56", "gpu-0000:0b:00.0"),
        std::pair("amd-r7-240", "gpu-0000:01:00.0")}) {
    EXPECT_THAT(Probe(std::string("sysfs/") + tree).FindDevice(id)->evidence,
                testing::Contains(HasSubstr("ReBAR: off")))
        << tree;
  }
}

TEST(CapturedTreeTest, AVirtualMachineWithoutAGpuHasNone) {
  NEED_CAPTURES();
  const Topology t = Probe("sysfs/nogpu-firecracker-vm");
  ASSERT_EQ(t.devices.size(), 1u);
  EXPECT_EQ(t.FindPool("pool-system")->total_bytes, 24684092 * kKiB);
}

TEST(CapturedKfdTest, SixtyThreePartitionsOfEightCards) {
  NEED_CAPTURES();
  const Topology t = Probe("kfd/mi300x-cpx-8gpu-63of64partitions");
  int gpus = 0;
  std::map<std::string, int> per_card;
  for (const Device& d : t.devices) {
    if (d.kind != DeviceKind::kGpu) continue;
    ++gpus;
    ++per_card[d.parent.empty() ? d.id : d.parent];
    EXPECT_EQ(d.gfx_target, "gfx942");
    EXPECT_EQ(d.compute_units, 38);  // 152 SIMDs
    EXPECT_EQ(d.memory_kind, MemoryKind::kDiscrete);
    EXPECT_EQ(d.bandwidth_bytes_s.value, std::nullopt) << d.id;  // a partition has a share of the card's
  }
  EXPECT_EQ(gpus, 63);
  ASSERT_EQ(per_card.size(), 8u);
  EXPECT_EQ(std::count_if(per_card.begin(), per_card.end(), [](const auto& c) { return c.second == 8; }), 7);
  EXPECT_EQ(per_card.rbegin()->second, 7);
  EXPECT_EQ(t.pools.size(), 9u);  // eight cards and the system: never 63
  EXPECT_EQ(t.FindPool("pool-vram-0000:05:00.0")->total_bytes, std::nullopt);  // the capture has no banks
  EXPECT_EQ(t.interconnect, "xgmi");
}

TEST(CapturedKfdTest, EightMi210) {
  NEED_CAPTURES();
  const Topology t = Probe("kfd/mi210-8gpu-xgmi");
  std::set<std::string> ids;
  for (const Device& d : t.devices) {
    if (d.kind != DeviceKind::kGpu) continue;
    ids.insert(d.id);
    EXPECT_EQ(d.gfx_target, "gfx90a");
    EXPECT_EQ(d.compute_units, 104);
    EXPECT_EQ(d.parent, "");
  }
  EXPECT_THAT(ids,
              ElementsAre("gpu-0000:03:00.0", "gpu-0000:26:00.0", "gpu-0000:43:00.0", "gpu-0000:63:00.0",
                          "gpu-0000:83:00.0", "gpu-0000:a3:00.0", "gpu-0000:c3:00.0", "gpu-0000:e3:00.0"));
}

TEST(CapturedKfdTest, AnOldKernelWithoutTargetsIsReadByIds) {
  NEED_CAPTURES();
  const Topology t = Probe("kfd/vega20-mi50-old-kernel-2gpu");
  std::vector<const Device*> gpus;
  for (const Device& d : t.devices) {
    if (d.kind == DeviceKind::kGpu) gpus.push_back(&d);
  }
  // Its authors copied node 1 to make node 2: same address, other unique id and render node.
  ASSERT_EQ(gpus.size(), 2u);
  for (const Device* d : gpus) {
    EXPECT_EQ(d->pci_id, "1002:6860");
    EXPECT_EQ(d->gfx_target, "gfx900");  // PCI 6860 is Vega 10, whatever the folder is called
    EXPECT_EQ(d->compute_units, 64);
    EXPECT_EQ(d->parent, "");
    EXPECT_EQ(t.FindPool(d->pools.at(0))->total_bytes, 17163091968u);
  }
}

TEST(CapturedTreeTest, NothingGuessesInAnyTree) {
  NEED_CAPTURES();
  for (const char* kind : {"sysfs", "kfd"}) {
    for (const std::string& name : Root(CaptureDir()).List(kind)) {
      const Topology t = Probe(std::string(kind) + "/" + name);
      for (const MemoryPool& p : t.pools) {
        EXPECT_FALSE(p.source.empty()) << name << " " << p.id;
        EXPECT_LE(p.free_bytes.value_or(0), p.total_bytes.value_or(0)) << name << " " << p.id;
      }
      for (const Device& d : t.devices) {
        EXPECT_TRUE(d.present) << name;
        EXPECT_FALSE(d.reason.empty()) << name << " " << d.id;
        EXPECT_FALSE(d.memory_kind_rule.empty()) << name << " " << d.id;
        for (const std::string& pool : d.pools) EXPECT_NE(t.FindPool(pool), nullptr) << name << " " << pool;
      }
    }
  }
}

// --- texts of tools ---

std::string Capture(const std::string& path) {
  auto text = ReadFile(CaptureDir() + "/" + path, 4 * kMiB);
  EXPECT_TRUE(text.ok()) << path;
  return text.ok() ? *text : "";
}

// The part of a capture file that one command printed ("# $ command" above, "####" around).
std::string Section(const std::string& text, const std::string& command, int occurrence = 0) {
  const std::string head = "# $ " + command + "\n";
  size_t at = text.find(head);
  while (occurrence-- > 0 && at != std::string::npos) at = text.find(head, at + 1);
  if (at == std::string::npos) return "";
  at = text.find('\n', at + head.size()) + 1;  // past the line of ####
  return text.substr(at, text.find("\n####", at) - at);
}

TEST(CapturedNvidiaTest, TheLongTextOfAnH200) {
  NEED_CAPTURES();
  const std::string file = Capture("nvidia/linux-x86_64__nvidia-h200__590.48.01.txt");
  const NvidiaFacts facts = ParseNvidiaSmi(Section(file, "nvidia-smi -q"));
  EXPECT_EQ(facts.driver_version, "590.48.01");
  EXPECT_EQ(facts.cuda_version, "13.1");
  ASSERT_EQ(facts.gpus.size(), 1u);
  const NvidiaGpu& gpu = facts.gpus[0];
  EXPECT_EQ(gpu.address, "0000:83:00.0");
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(gpu.total, 143771 * kMiB);
  EXPECT_EQ(gpu.reserved, 614 * kMiB);
  EXPECT_EQ(gpu.free, 143158 * kMiB);
  EXPECT_EQ(gpu.bar1_total, 262144 * kMiB);
  EXPECT_EQ(gpu.mig_enabled, false);
  EXPECT_EQ(gpu.pcie_generation, 5);
  EXPECT_EQ(gpu.pcie_width, 16);
  EXPECT_FALSE(gpu.memory_not_supported);
}

TEST(CapturedNvidiaTest, TheTableOfAnH200AndOfOthers) {
  NEED_CAPTURES();
  const NvidiaFacts h200 =
      ParseNvidiaSmi(Section(Capture("nvidia/linux-x86_64__nvidia-h200__590.48.01.txt"), "nvidia-smi "));
  ASSERT_EQ(h200.gpus.size(), 1u);
  EXPECT_EQ(h200.gpus[0].name, "NVIDIA H200");
  EXPECT_EQ(h200.gpus[0].total, 143771 * kMiB);
  EXPECT_EQ(h200.driver_version, "590.48.01");
  const NvidiaFacts ada = ParseNvidiaSmi(
      Section(Capture("nvidia/linux-x86_64__nvidia-geforce-rtx-4080-super__595.71.05.txt"), "nvidia-smi -q"));
  ASSERT_EQ(ada.gpus.size(), 1u);
  EXPECT_THAT(ada.gpus[0].name, HasSubstr("4080 SUPER"));
  EXPECT_EQ(ada.gpus[0].mig_enabled, std::nullopt);  // N/A is unknown, not "off"
  EXPECT_GT(ada.gpus[0].total.value_or(0), 15 * kGiB);
}

TEST(CapturedNvidiaTest, AnL40sIdleAndUnderLoad) {
  NEED_CAPTURES();
  const std::string file = Capture("nvidia/linux-x86_64__nvidia-l40s__595.80.txt");
  for (const auto& [occurrence, used, free] : {std::tuple(0, 0, 45460), std::tuple(1, 1235, 44225)}) {
    const NvidiaFacts facts = ParseNvidiaSmi(Section(file, "nvidia-smi -q", occurrence));
    ASSERT_EQ(facts.gpus.size(), 1u);
    EXPECT_EQ(facts.gpus[0].name, "NVIDIA L40S");
    EXPECT_EQ(facts.gpus[0].total, 46068 * kMiB);
    EXPECT_EQ(facts.gpus[0].reserved, 609 * kMiB);
    EXPECT_EQ(facts.gpus[0].used, static_cast<Bytes>(used) * kMiB);
    EXPECT_EQ(facts.gpus[0].free, static_cast<Bytes>(free) * kMiB);
  }
}

TEST(CapturedNvidiaTest, Gb10HasNoMemoryOfItsOwn) {
  NEED_CAPTURES();
  const NvidiaFacts facts =
      ParseNvidiaSmi(Capture("nvidia/nvidia-smi-gb10-memory-not-supported-excerpt.txt"));
  ASSERT_EQ(facts.gpus.size(), 1u);
  EXPECT_EQ(facts.gpus[0].address, "000f:01:00.0");
  EXPECT_EQ(facts.gpus[0].name, "NVIDIA GB10");
  EXPECT_TRUE(facts.gpus[0].memory_not_supported);
  EXPECT_EQ(facts.gpus[0].total, std::nullopt);
}

TEST(CapturedNvidiaTest, XmlWithMigInstances) {
  NEED_CAPTURES();
  const NvidiaFacts facts = ParseNvidiaSmi(Capture("nvidia/telegraf-xml/a100-sxm4-v12.xml"));
  EXPECT_EQ(facts.driver_version, "535.54.03");
  ASSERT_FALSE(facts.gpus.empty());
  const NvidiaGpu& gpu = facts.gpus[0];
  EXPECT_EQ(gpu.address, "0000:01:00.0");
  EXPECT_EQ(gpu.name, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(gpu.mig_enabled, true);
  ASSERT_EQ(gpu.mig.size(), 4u);
  EXPECT_EQ(gpu.mig[0].gpu_instance, 3);
  EXPECT_EQ(gpu.mig[0].total, 19968 * kMiB);
  EXPECT_EQ(gpu.mig[0].used, 12 * kMiB);
}

TEST(CapturedNvidiaTest, OtherXmlVersions) {
  NEED_CAPTURES();
  const NvidiaFacts rtx = ParseNvidiaSmi(Capture("nvidia/telegraf-xml/rtx-3080-v13.xml"));
  ASSERT_EQ(rtx.gpus.size(), 1u);
  EXPECT_EQ(rtx.gpus[0].total, 10240 * kMiB);
  EXPECT_EQ(rtx.gpus[0].used, 9184 * kMiB);
  EXPECT_EQ(rtx.gpus[0].free, 660 * kMiB);
  for (const std::string& file : Root(CaptureDir()).List("nvidia/telegraf-xml")) {
    const NvidiaFacts facts = ParseNvidiaSmi(Capture("nvidia/telegraf-xml/" + file));
    ASSERT_FALSE(facts.gpus.empty()) << file;
    for (const NvidiaGpu& gpu : facts.gpus) {
      EXPECT_FALSE(gpu.name.empty()) << file;
      EXPECT_FALSE(gpu.address.empty()) << file;
      EXPECT_TRUE(gpu.total.has_value()) << file;
    }
  }
}

TEST(CapturedNvidiaTest, ProcInformationNamesTheCard) {
  NEED_CAPTURES();
  FakeTree tree;
  tree.File("/proc/driver/nvidia/gpus/0000:01:00.0/information",
            Capture("proc-nvidia/gpus/0000:01:00.0/information"));
  const NvidiaFacts facts = ReadNvidiaProc(tree.root());
  ASSERT_EQ(facts.gpus.size(), 1u);
  EXPECT_EQ(facts.gpus[0].name, "NVIDIA GeForce RTX 3090");
  EXPECT_EQ(facts.gpus[0].address, "0000:01:00.0");
  EXPECT_EQ(facts.gpus[0].total, std::nullopt);
  EXPECT_EQ(facts.driver_version, "590.48.01");
  EXPECT_EQ(facts.source, "proc");
}

// --- what tools printed, beside an otherwise empty tree ---

Topology WithTool(const char* file, const std::string& text, FakeTree& tree) {
  tree.File(std::string("/tools/") + file, text);
  return TopologyOf(tree);
}

TEST(CapturedToolTest, RocminfoOfAnApu) {
  NEED_CAPTURES();
  FakeTree tree;
  AddMemory(tree, 124, 100);
  const Topology t =
      WithTool("rocminfo.txt", Capture("rocminfo/gfx1151-radeon-8060s-128gb-default-ttm.txt"), tree);
  const Device* gpu = t.FindDevice("gpu-0000:f4:00.0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->gfx_target, "gfx1151");
  EXPECT_EQ(gpu->compute_units, 40);
  EXPECT_EQ(gpu->pci_id, "1002:1586");
  EXPECT_EQ(gpu->memory_kind, MemoryKind::kUnified);
  EXPECT_EQ(gpu->memory_kind_rule, "rocminfo Memory Properties");
  EXPECT_THAT(gpu->pools, ElementsAre("pool-system"));
  EXPECT_EQ(t.FindPool("pool-system")->limits.at(0).max_bytes, 65507932 * kKiB);
  EXPECT_EQ(t.devices.size(), 2u);  // its CPU agent is no second device
}

TEST(CapturedToolTest, RocminfoOfThreeCards) {
  NEED_CAPTURES();
  FakeTree tree;
  const Topology t = WithTool("rocminfo.txt", Capture("rocminfo/gfx1201-3x-r9700-agents-only.txt"), tree);
  for (const char* address : {"0000:0a:00.0", "0000:0d:00.0", "0000:45:00.0"}) {
    const Device* gpu = t.FindDevice(std::string("gpu-") + address);
    ASSERT_NE(gpu, nullptr) << address;
    EXPECT_EQ(gpu->name, "AMD Radeon AI PRO R9700");
    EXPECT_EQ(gpu->gfx_target, "gfx1201");
    EXPECT_EQ(gpu->memory_kind, MemoryKind::kDiscrete);
    EXPECT_EQ(t.FindPool(gpu->pools.at(0))->total_bytes, 33406976 * kKiB);
  }
}

TEST(CapturedToolTest, RocminfoUnderWslHasNoAddress) {
  NEED_CAPTURES();
  FakeTree tree;
  tree.File("/dev/dxg", "");
  const Topology t = WithTool("rocminfo.txt", Capture("rocminfo/gfx1030-rx6800xt-wsl2-agent-only.txt"), tree);
  const Device* gpu = t.FindDevice("gpu-hip0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->gfx_target, "gfx1030");
  EXPECT_EQ(gpu->memory_kind, MemoryKind::kDiscrete);
  EXPECT_EQ(t.FindPool(gpu->pools.at(0))->total_bytes, 16730340 * kKiB);
  EXPECT_TRUE(gpu->usable);
}

TEST(CapturedToolTest, ATruncatedRocminfoStillNamesTheCard) {
  NEED_CAPTURES();
  FakeTree tree;
  const Topology t = WithTool("rocminfo.txt", Capture("rocminfo/gfx1200-rx9060xt-head-truncated.txt"), tree);
  const Device* gpu = t.FindDevice("gpu-hip0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->gfx_target, "gfx1200");
  EXPECT_EQ(t.FindPool(gpu->pools.at(0))->total_bytes, std::nullopt);
}

TEST(CapturedToolTest, VulkaninfoOfTwoCardsAndASoftwareRenderer) {
  NEED_CAPTURES();
  FakeTree tree;
  const Topology t = WithTool("vulkaninfo.txt",
                              Capture("vulkan/vulkaninfo-summary-2x-r9700-plus-llvmpipe-excerpt.txt"), tree);
  int gpus = 0;
  for (const Device& d : t.devices) {
    if (d.kind != DeviceKind::kGpu) continue;
    ++gpus;
    EXPECT_EQ(d.name, "AMD Radeon AI PRO R9700");
    EXPECT_EQ(d.memory_kind, MemoryKind::kDiscrete);
  }
  EXPECT_EQ(gpus, 2);
  ASSERT_NE(t.FindDevice("software-llvmpipe"), nullptr);
  EXPECT_EQ(t.FindDevice("software-llvmpipe")->kind, DeviceKind::kCpu);
}

TEST(CapturedToolTest, RadvUuidsJoinVulkaninfoWithTheBus) {
  NEED_CAPTURES();
  FakeTree tree;
  AddMemory(tree, 64, 60);
  for (const char* address : {"0000:1b:00.0", "0000:03:00.0"}) {
    AddPci(tree, {address, "0x1002", "0x7551", "0xc0", "0x030000", "amdgpu"});
  }
  const Topology t = WithTool("vulkaninfo.txt",
                              Capture("vulkan/vulkaninfo-summary-2x-r9700-plus-llvmpipe-excerpt.txt"), tree);
  EXPECT_EQ(t.devices.size(), 4u);  // CPU, two cards, llvmpipe
  for (const BackendSupport& b : t.FindDevice("gpu-0000:1b:00.0")->backends) {
    if (b.name == "vulkan") {
      EXPECT_EQ(b.selector, "0");
    }
  }
}

TEST(CapturedToolTest, VulkaninfoOfLlvmpipeAloneIsNoGpu) {
  NEED_CAPTURES();
  for (const char* file : {"vulkan/vulkaninfo-summary-llvmpipe-only-buildhost.txt",
                           "vulkan/vulkaninfo-summary-llvmpipe-mesa25.txt"}) {
    FakeTree tree;
    const Topology t = WithTool("vulkaninfo.txt", Capture(file), tree);
    for (const Device& d : t.devices) EXPECT_NE(d.kind, DeviceKind::kGpu) << file;
    EXPECT_EQ(t.devices.size(), 2u) << file;
  }
}

TEST(CapturedToolTest, VulkaninfoOfAnApuAndOfALaptop) {
  NEED_CAPTURES();
  FakeTree apu, laptop;
  const Topology a =
      WithTool("vulkaninfo.txt", Capture("vulkan/vulkaninfo-summary-radv-strix-halo-excerpt.txt"), apu);
  ASSERT_EQ(a.devices.size(), 2u);
  EXPECT_EQ(a.devices[1].memory_kind, MemoryKind::kUnified);
  EXPECT_EQ(a.devices[1].pci_id, "1002:1586");
  const Topology l =
      WithTool("vulkaninfo.txt",
               Capture("vulkan/vulkaninfo-summary-multi-nvidia-laptop-plus-llvmpipe-partial.txt"), laptop);
  ASSERT_EQ(l.devices.size(), 3u);
  EXPECT_EQ(l.devices[1].name, "NVIDIA GeForce RTX 4070 Laptop GPU");
  EXPECT_TRUE(l.devices[2].software);
}

TEST(CapturedToolTest, RocmSmiOfSeveralVersions) {
  NEED_CAPTURES();
  struct Expected {
    const char* file;
    const char* id;
    size_t cards;
    Bytes vram;
    const char* gfx;
  };
  for (const Expected& e : {Expected{"mi100_rocm602.json", "gpu-0000:83:00.0", 4, 34342961152u, "gfx908"},
                            Expected{"mi100_rocm571.json", "gpu-0000:1e:00.0", 6, 34342961152u, ""},
                            Expected{"rx6700xt_rocm612.json", "gpu-0000:07:00.0", 1, 12868124672u, "gfx1031"},
                            Expected{"rx6700xt_rocm602.json", "gpu-0000:07:00.0", 1, 12868124672u, "gfx1031"},
                            Expected{"rx6700xt_rocm571.json", "gpu-0000:07:00.0", 1, 12868124672u, ""},
                            Expected{"rx6700xt_rocm430.json", "gpu-0000:07:00.0", 1, 12868124672u, ""},
                            Expected{"vega-10-XT.json", "gpu-0000:04:00.0", 1, 17163091968u, ""},
                            Expected{"vega-20-WKS-GL-XE.json", "gpu-0000:63:00.0", 1, 34342961152u, ""}}) {
    SCOPED_TRACE(e.file);
    FakeTree tree;
    const Topology t = WithTool("rocm-smi.json", Capture(std::string("rocm-smi/") + e.file), tree);
    EXPECT_EQ(t.devices.size(), 1 + e.cards);
    const Device* gpu = t.FindDevice(e.id);
    ASSERT_NE(gpu, nullptr);
    EXPECT_EQ(t.FindPool(gpu->pools.at(0))->total_bytes, e.vram);  // GTT is never added
    if (*e.gfx != '\0') {
      EXPECT_EQ(gpu->gfx_target, e.gfx);
    }
  }
}

TEST(CapturedToolTest, XrtSmiNamesTheNpuWhateverTheDriverCallsIt) {
  NEED_CAPTURES();
  FakeTree fedora, ubuntu, sandbox;
  const Topology f = WithTool("xrt-smi.txt", Capture("xrt-smi/strix-halo-xrt2.19-fedora43.txt"), fedora);
  ASSERT_NE(f.FindDevice("npu-0000:be:00.1"), nullptr);
  EXPECT_THAT(f.FindDevice("npu-0000:be:00.1")->evidence, testing::Contains("vbnv: RyzenAI-npu5"));
  EXPECT_EQ(f.FindDevice("npu-0000:be:00.1")->backends.at(0).version, "1.1.2.65");
  const Topology u = WithTool("xrt-smi.txt", Capture("xrt-smi/strix-xrt2.20.txt"), ubuntu);
  EXPECT_THAT(u.FindDevice("npu-0000:65:00.1")->evidence, testing::Contains("vbnv: NPU Strix"));
  const Topology s =
      WithTool("xrt-smi.txt",
               Capture("hosts/strix-halo-sandboxed-no-dev-nodes/xrt-smi-examine-0-devices.txt"), sandbox);
  EXPECT_EQ(s.devices.size(), 1u);
}

TEST(CapturedToolTest, AHostWithoutDeviceNodesTellsNothingThroughItsTools) {
  NEED_CAPTURES();
  const std::string host = "hosts/strix-halo-sandboxed-no-dev-nodes/";
  for (const auto& [file, text] :
       {std::pair("rocminfo.txt", "rocminfo-rc1.txt"), std::pair("rocm-smi.json", "rocm-smi.txt"),
        std::pair("xrt-smi.txt", "xrt-smi-examine-0-devices.txt")}) {
    FakeTree tree;  // their failures and tables hold no device to be sure of
    EXPECT_EQ(WithTool(file, Capture(host + text), tree).devices.size(), 1u) << text;
  }
}

TEST(CapturedToolTest, VulkaninfosMemorySectionIsReadAndCountedAsNoMemory) {
  NEED_CAPTURES();
  const VulkanFacts facts =
      ParseVulkaninfo(Capture("vulkan/vulkaninfo-summary-llvmpipe-only-buildhost.txt") + "\n" +
                      Capture("vulkan/vulkaninfo-memory-llvmpipe-buildhost.txt"));
  ASSERT_EQ(facts.devices.size(), 1u);
  ASSERT_EQ(facts.devices[0].heaps.size(), 1u);
  EXPECT_EQ(facts.devices[0].heaps[0].size, 2 * kGiB);
  EXPECT_TRUE(facts.devices[0].heaps[0].device_local);
  Facts machine;
  machine.vulkan = facts;
  EXPECT_EQ(Assemble(machine).pools.size(), 1u);
}

TEST(CapturedToolTest, NvidiaSmiOfGb10InATreeWithItsMemory) {
  NEED_CAPTURES();
  FakeTree tree;
  AddMemory(tree, 119, 110);
  const Topology t =
      WithTool("nvidia-smi.txt", Capture("nvidia/nvidia-smi-gb10-memory-not-supported-excerpt.txt"), tree);
  const Device* gpu = t.FindDevice("gpu-000f:01:00.0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->memory_kind, MemoryKind::kUnified);
  EXPECT_THAT(gpu->pools, ElementsAre("pool-system"));
}

TEST(CapturedToolTest, MigInstancesOfAnA100) {
  NEED_CAPTURES();
  FakeTree tree;
  const Topology t = WithTool("nvidia-smi.txt", Capture("nvidia/telegraf-xml/a100-sxm4-v12.xml"), tree);
  const Device* slice = t.FindDevice("gpu-0000:01:00.0-mig3");
  ASSERT_NE(slice, nullptr);
  EXPECT_EQ(slice->parent, "gpu-0000:01:00.0");
  EXPECT_EQ(t.FindPool(slice->pools.at(0))->total_bytes, 19968 * kMiB);
  EXPECT_FALSE(slice->usable);  // this nvidia-smi does not print the UUID that selects it
  EXPECT_EQ(t.FindPool("pool-vram-0000:01:00.0"), nullptr);
}

}  // namespace
}  // namespace rumbo
