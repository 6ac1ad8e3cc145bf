// What users of such programs met, each case as a table of machines: their files, through the probes, the
// ledger and the planner. Named by the case: C01 memory of APUs, C02 a small GPU beside a big one, C04
// software renderers, C07 memory limits of containers, C37 threads of containers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/ledger.h"
#include "daemon/core/planner.h"
#include "devices/testing/machines.h"
#include "engines/api/catalog.h"
#include "tests/fakes/core_world.h"

namespace rumbo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const BackendSupport* BackendOf(const Device& device, std::string_view name) {
  for (const BackendSupport& b : device.backends) {
    if (b.name == name) return &b;
  }
  return nullptr;
}

const MemoryLimit* LimitOf(const Topology& t, const std::string& id) {
  for (const MemoryPool& p : t.pools) {
    for (const MemoryLimit& l : p.limits) {
      if (l.id == id) return &l;
    }
  }
  return nullptr;
}

// What the ledger would promise one process of `backend` on `device` in its first pool: pool and limits
// together.
Bytes Room(const Topology& t, const Device& device, const std::string& backend) {
  Ledger ledger;
  ledger.SetTopology(t);
  const LedgerSnapshot now = ledger.Snapshot();
  const std::string& id = BackendOf(device, backend)->pools.front();
  Bytes room = now.pool_free.at(id);
  for (const MemoryLimit& l : t.FindPool(id)->limits) {
    const auto in = [](const std::vector<std::string>& list, const std::string& word) {
      return list.empty() || std::find(list.begin(), list.end(), word) != list.end();
    };
    if (in(l.devices, device.id) && in(l.backends, backend)) room = std::min(room, now.limit_free.at(l.id));
  }
  return room;
}

PlanRequest AnyEngine(ModelDescriptor model) {
  PlanRequest r;
  r.model = "test";
  r.variants = {{"v", std::move(model)}};
  r.assume_installed = true;
  return r;
}

Plan PlanFor(const PlanRequest& request, const Topology& t) {
  Ledger ledger;
  ledger.SetTopology(t);
  PlanRequest r = request;
  r.ledger = ledger.Snapshot();
  static const Calibration calibration;
  auto plan = MakePlan(r, t, BuiltInCatalog(), calibration);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan{};
}

const Rejected* RejectionOf(const Plan& plan, const std::string& device, const std::string& backend) {
  for (const Rejected& r : plan.rejected) {
    if (r.backend == backend && std::find(r.devices.begin(), r.devices.end(), device) != r.devices.end())
      return &r;
  }
  return nullptr;
}

// --- C01: which memory is the GPU's ---

struct Apu {
  const char* row;
  const char* device;  // PCI
  uint64_t vram, vram_used, gtt, gtt_used;
  double total_gib, available_gib;
  const char* pool;  // where one ROCm process goes
  Bytes room;        // how much it may take there
};

Topology TopologyOfApu(const Apu& a) {
  FakeTree tree;
  const auto kb = [](double gib) { return std::to_string(static_cast<uint64_t>(gib * 1024 * 1024)); };
  tree.File("/proc/meminfo",
            "MemTotal: " + kb(a.total_gib) + " kB\nMemAvailable: " + kb(a.available_gib) + " kB\n");
  const std::string card = "/sys/class/drm/card0/device";
  tree.File(card + "/vendor", "0x1002\n").File(card + "/device", std::string(a.device) + "\n");
  AddAmdMemory(tree, card, a.vram, a.vram_used, a.gtt, a.gtt_used);
  const std::string id = a.device;
  AddKfd(tree, {1, 80,
                id == "0x1586"   ? 110501u
                : id == "0x15bf" ? 110003u
                                 : 120001u,
                0xc500, std::stoull(id, nullptr, 16), 128, 0, 0, ""});
  return TopologyOf(tree);
}

const Apu kApus[] = {
    {"a", "0x1586", 536870912, 400000000, 115964116992, 0, 124, 60, "pool-system", 60 * kGiB},
    {"b", "0x15bf", 17179869184, 104857600, 8589934592, 0, 16, 13, "pool-carveout-card0",
     17179869184u - 104857600},
    {"c", "0x1586", 103079215104, 0, 17179869184, 0, 31, 28, "pool-carveout-card0", 103079215104u},
    // Of the GTT 84 GiB are left, of the machine 80.
    {"d", "0x1586", 2147483648, 2123861327, 133143986176, 42606075576, 125, 80, "pool-system", 80 * kGiB},
    {"e", "0x1586", 536870912, 0, 137438953472, 0, 124.92, 120, "pool-system", 120 * kGiB},
    {"f", "0x7551", 34342961152, 0, 67108864000, 0, 125, 100, "pool-vram-card0", 34342961152u},
};

TEST(CaseC01Test, OneRocmProcessGetsTheLargerPoolAndNeverTheSum) {
  for (const Apu& a : kApus) {
    SCOPED_TRACE(a.row);
    const Topology t = TopologyOfApu(a);
    const Device* gpu = t.FindDevice("gpu-card0");
    ASSERT_NE(gpu, nullptr);
    const BackendSupport* hip = BackendOf(*gpu, "hip");
    ASSERT_NE(hip, nullptr);
    EXPECT_FALSE(hip->may_span_pools);
    EXPECT_EQ(hip->pools.front(), a.pool);
    EXPECT_LE(Room(t, *gpu, "hip"), a.room);
    EXPECT_GE(Room(t, *gpu, "hip"), a.room - a.room / 1000);  // MemAvailable comes in whole kB
    // For all together: never more than there is.
    Bytes all = 0;
    for (const MemoryPool& p : t.pools) all += p.total_bytes.value_or(0);
    EXPECT_LE(all, static_cast<Bytes>(a.total_gib * static_cast<double>(kGiB)) + a.vram);
    for (const MemoryPool& p : t.pools) {
      EXPECT_LE(p.free_bytes.value_or(0), p.total_bytes.value_or(0)) << p.id;
      for (const MemoryLimit& l : p.limits) EXPECT_LE(l.max_bytes.value_or(0), *p.total_bytes) << l.id;
    }
  }
}

TEST(CaseC01Test, ACardsGttIsNoMemoryAtAll) {
  const Topology t = TopologyOfApu(kApus[5]);
  EXPECT_EQ(LimitOf(t, "limit-gtt-card0"), nullptr);
  EXPECT_EQ(t.FindDevice("gpu-card0")->pools, std::vector<std::string>{"pool-vram-card0"});
}

TEST(CaseC01Test, RowDAFullCarveoutIsNoPressureAndEvictsNothing) {
  const Topology t = TopologyOfApu(kApus[3]);
  const MemoryLimit* gtt = LimitOf(t, "limit-gtt-card0");
  ASSERT_NE(gtt, nullptr);
  EXPECT_NEAR(static_cast<double>(*gtt->used_bytes) / static_cast<double>(*gtt->max_bytes), 0.32, 0.005);
  testing::CoreWorld world(8);
  world.topology.topology = t;
  world.AddModel("idle");
  world.Start();
  ASSERT_TRUE(world.Load("idle").status().ok());
  const size_t started = world.launcher.processes.size();
  for (int tick = 0; tick < 10; ++tick) world.Advance(std::chrono::seconds(10));
  ASSERT_TRUE(world.InstanceOf("idle").has_value());
  EXPECT_EQ(world.launcher.processes.size(), started);  // nor stopped and started again
}

// --- C02: a small GPU beside the big one ---

// `big` and `small`: KFD nodes of the card and of the display core; 0 leaves one out.
Topology WithDisplayCore(int big, int small, std::map<std::string, std::string> environment = {},
                         uint64_t small_target = 100306) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  tree.Dir("/dev");
  tree.File("/dev/kfd", "");
  HipFacts hip;
  VulkanFacts vulkan;
  const auto add = [&](int node, const char* id, uint64_t target, int simds, const char* address,
                       uint64_t location, int render, const char* name) {
    const std::string dir = AddPci(tree, {address, "0x1002", id, "0xc0", "0x030000", "amdgpu"});
    if (target != 120001) AddAmdMemory(tree, dir, 512 * kMiB, 0, 30 * kGiB, 0);
    if (target == 120001) AddAmdMemory(tree, dir, 34208743424u, 0, 30 * kGiB, 0);
    AddKfd(tree, {node, simds, target, location, std::stoull(id, nullptr, 16), render, 0, 0, ""});
    HipDevice h;
    h.index = node - 1, h.address = address, h.name = name;
    hip.devices.push_back(h);
    VulkanDevice v;
    v.index = node - 1, v.address = address, v.name = name, v.driver = "radv", v.vendor = 0x1002;
    v.type = target == 120001 ? "discrete" : "integrated";
    vulkan.devices.push_back(v);
  };
  if (big > 0) add(big, "0x7551", 120001, 128, "0000:03:00.0", 0x0300, 128, "AMD Radeon AI PRO R9700");
  if (small > 0) add(small, "0x13c0", small_target, 4, "0000:0e:00.0", 0x0e00, 129, "AMD Radeon Graphics");
  const auto by_index = [](const auto& a, const auto& b) { return a.index < b.index; };
  std::sort(hip.devices.begin(), hip.devices.end(), by_index);
  std::sort(vulkan.devices.begin(), vulkan.devices.end(), by_index);
  Facts facts = FactsOf(tree);
  facts.hip = hip;
  facts.vulkan = vulkan;
  facts.environment = std::move(environment);
  return Assemble(facts);
}

PlanRequest OnRocm() {
  ModelDescriptor model = testing::DenseModel(8 * kGiB);
  model.format = "safetensors";
  model.quantization = "BF16";
  PlanRequest r = AnyEngine(model);
  r.overrides.device = "hip";
  return r;
}

constexpr char kBig[] = "gpu-0000:03:00.0", kSmall[] = "gpu-0000:0e:00.0";

TEST(CaseC02Test, TheVerdictIsPerDeviceWhicheverComesFirst) {
  for (const auto& [big, small] : {std::pair(1, 2), std::pair(2, 1)}) {
    SCOPED_TRACE(big);
    const Topology t = WithDisplayCore(big, small);
    EXPECT_EQ(t.FindDevice(kBig)->gfx_target, "gfx1201");
    EXPECT_EQ(t.FindDevice(kSmall)->gfx_target, "gfx1036");
    const Plan plan = PlanFor(OnRocm(), t);
    ASSERT_TRUE(plan.chosen.has_value());
    EXPECT_EQ(plan.chosen->devices, std::vector<std::string>{kBig});
    EXPECT_EQ(plan.chosen->backend, "hip");
    const Rejected* small_one = RejectionOf(plan, kSmall, "hip");
    ASSERT_NE(small_one, nullptr);
    EXPECT_THAT(small_one->reason, HasSubstr("gfx1036"));
    // What the worker is shown is the card alone, by the ordinal that it has here.
    EXPECT_EQ(BackendOf(*t.FindDevice(kBig), "hip")->selector, std::to_string(big - 1));
  }
}

TEST(CaseC02Test, TheSmallOneAloneHasNoRocmButVulkanAndTheCpu) {
  const Topology t = WithDisplayCore(0, 1);
  const Plan rocm = PlanFor(OnRocm(), t);
  EXPECT_FALSE(rocm.chosen.has_value());
  ASSERT_NE(RejectionOf(rocm, kSmall, "hip"), nullptr);
  EXPECT_THAT(RejectionOf(rocm, kSmall, "hip")->reason, HasSubstr("gfx1036"));
  PlanRequest gguf = AnyEngine(testing::DenseModel(2 * kGiB));
  for (const char* backend : {"vulkan", "cpu"}) {
    gguf.overrides.device = backend;
    const Plan plan = PlanFor(gguf, t);
    ASSERT_TRUE(plan.chosen.has_value()) << backend;
    EXPECT_EQ(plan.chosen->backend, backend);
  }
}

TEST(CaseC02Test, AFilterIsHonouredAndShown) {
  // Ordinal 0 is the small one: the card is left out.
  const Topology t = WithDisplayCore(2, 1, {{"HIP_VISIBLE_DEVICES", "0"}});
  EXPECT_FALSE(BackendOf(*t.FindDevice(kBig), "hip")->usable);
  EXPECT_THAT(BackendOf(*t.FindDevice(kBig), "hip")->reason, HasSubstr("HIP_VISIBLE_DEVICES=0"));
  EXPECT_TRUE(BackendOf(*t.FindDevice(kSmall), "hip")->usable);
  EXPECT_TRUE(BackendOf(*t.FindDevice(kBig), "vulkan")->usable);
  EXPECT_FALSE(PlanFor(OnRocm(), t).chosen.has_value());
  const bool said = std::any_of(t.findings.begin(), t.findings.end(),
                                [](const Finding& f) { return f.text.find("HIP_VISIBLE_DEVICES=0") == 0; });
  EXPECT_TRUE(said);
}

TEST(CaseC02Test, FiltersAreReadAsTheRuntimesReadThem) {
  const auto hidden = [](std::map<std::string, std::string> environment) {
    const Topology t = WithDisplayCore(2, 1, std::move(environment));
    return std::pair(!BackendOf(*t.FindDevice(kSmall), "hip")->usable,
                     !BackendOf(*t.FindDevice(kBig), "hip")->usable);
  };
  EXPECT_EQ(hidden({}), std::pair(false, false));
  EXPECT_EQ(hidden({{"HIP_VISIBLE_DEVICES", ""}}), std::pair(true, true));
  EXPECT_EQ(hidden({{"HIP_VISIBLE_DEVICES", "1,0"}}), std::pair(false, false));
  EXPECT_EQ(hidden({{"HIP_VISIBLE_DEVICES", "-1"}}), std::pair(true, true));
  EXPECT_EQ(hidden({{"HIP_VISIBLE_DEVICES", "7,0"}}),
            std::pair(true, true));  // the list ends at what is none
  // HIP counts what ROCr leaves: its 0 is our 1.
  EXPECT_EQ(hidden({{"ROCR_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", "0"}}), std::pair(true, false));
  EXPECT_EQ(hidden({{"CUDA_VISIBLE_DEVICES", "1"}}), std::pair(true, false));  // HIP reads it too
  EXPECT_EQ(hidden({{"CUDA_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", "0"}}), std::pair(false, true));
}

TEST(CaseC02Test, ATargetOfZeroIsNoCrash) {
  const Topology t = WithDisplayCore(1, 2, {}, 0);
  EXPECT_EQ(t.FindDevice(kBig)->gfx_target, "gfx1201");
  ASSERT_NE(t.FindDevice(kSmall), nullptr);
  EXPECT_TRUE(PlanFor(OnRocm(), t).chosen.has_value());
}

// --- C04: a software renderer is no GPU ---

VulkanDevice Llvmpipe(const char* type) {
  VulkanDevice v;
  v.name = "llvmpipe (LLVM 15.0.6, 256 bits)", v.type = type, v.vendor = 0x10005, v.driver = "llvmpipe";
  v.heaps = {{2 * kGiB, {}, {}, true}};
  return v;
}

TEST(CaseC04Test, ARendererIsKeptNotUsedAndPassedToNobody) {
  for (const char* type : {"cpu", "other"}) {
    SCOPED_TRACE(type);
    FakeTree tree;
    AddMemory(tree, 23, 20);
    Facts facts = FactsOf(tree);
    facts.vulkan = VulkanFacts{"", {Llvmpipe(type)}};
    const Topology t = Assemble(facts);
    for (const Device& d : t.devices) EXPECT_NE(d.kind, DeviceKind::kGpu);
    const Device* soft = t.FindDevice("software-llvmpipe");
    ASSERT_NE(soft, nullptr);
    EXPECT_FALSE(soft->usable);
    EXPECT_FALSE(BackendOf(*soft, "vulkan")->usable);
    EXPECT_THAT(BackendOf(*soft, "vulkan")->reason, HasSubstr("software renderer, not used"));
    const Plan plan = PlanFor(AnyEngine(testing::DenseModel(2 * kGiB)), t);
    ASSERT_TRUE(plan.chosen.has_value());
    EXPECT_EQ(plan.chosen->backend, "cpu");
    EXPECT_EQ(plan.chosen->devices, std::vector<std::string>{"cpu0"});
    ASSERT_NE(RejectionOf(plan, "software-llvmpipe", "vulkan"), nullptr);
  }
}

TEST(CaseC04Test, ByNameItMayBeUsedAllTheSame) {
  FakeTree tree;
  AddMemory(tree, 23, 20);
  Facts facts = FactsOf(tree);
  facts.vulkan = VulkanFacts{"", {Llvmpipe("cpu")}};
  PlanRequest request = AnyEngine(testing::DenseModel(2 * kGiB));
  request.overrides.device = "software-llvmpipe";
  const Plan plan = PlanFor(request, Assemble(facts));
  ASSERT_TRUE(plan.chosen.has_value());
  EXPECT_EQ(plan.chosen->backend, "vulkan");
  EXPECT_EQ(plan.chosen->devices, std::vector<std::string>{"software-llvmpipe"});
  EXPECT_GT(plan.chosen->settings.gpu_layers.value_or(0), 0u);
}

TEST(CaseC04Test, ACardBesideItIsChosen) {
  FakeTree tree;
  AddMemory(tree, 64, 60);
  AddR9700(tree, 0);
  Facts facts = FactsOf(tree);
  VulkanDevice card;
  card.type = "discrete", card.driver = "radv", card.address = "0000:03:00.0", card.index = 1;
  facts.vulkan = VulkanFacts{"", {Llvmpipe("cpu"), card}};
  const Plan plan = PlanFor(AnyEngine(testing::DenseModel(8 * kGiB)), Assemble(facts));
  ASSERT_TRUE(plan.chosen.has_value());
  EXPECT_EQ(plan.chosen->devices, std::vector<std::string>{kBig});
}

TEST(CaseC04Test, AMissingOrHangingLoaderIsVulkanUnavailable) {
  for (const char* why : {"the Vulkan loader cannot be loaded: libvulkan.so.1: no such file",
                          "did not answer within its deadline"}) {
    FakeTree tree;
    AddMemory(tree, 64, 60);
    AddR9700(tree, 0);
    Facts facts = FactsOf(tree);
    facts.vulkan = VulkanFacts{why, {}};
    const Topology t = Assemble(facts);
    EXPECT_THAT(BackendOf(*t.FindDevice(kBig), "vulkan")->reason, HasSubstr(why));
    const bool said = std::any_of(t.findings.begin(), t.findings.end(), [&](const Finding& f) {
      return f.text == std::string("Vulkan unavailable: ") + why + ".";
    });
    EXPECT_TRUE(said) << why;
  }
}

// --- C07: memory limits of containers ---

struct Container {
  const char* row;
  std::vector<std::pair<std::string, std::string>> files;
  double total_gib, available_gib;
  Bytes free;
  bool flagged;
};

std::string Gib(double n) { return std::to_string(static_cast<uint64_t>(n * static_cast<double>(kGiB))); }

TEST(CaseC07Test, FreeIsTheLeastOfHostAndEveryLimitWithTheCacheGivenBack) {
  const std::string svc = "/sys/fs/cgroup/slice/svc/memory.", slice = "/sys/fs/cgroup/slice/memory.";
  const std::string v2 = "0::/slice/svc\n";
  const Container rows[] = {
      {"a",
       {{svc + "max", "max"},
        {svc + "current", Gib(28)},
        {svc + "stat", "inactive_file " + Gib(27.5)},
        {"/proc/self/cgroup", v2}},
       32,
       29,
       29 * kGiB,
       false},
      {"b",
       {{svc + "max", Gib(8)},
        {svc + "current", Gib(6)},
        {svc + "stat", "inactive_file " + Gib(5)},
        {"/proc/self/cgroup", v2}},
       32,
       29,
       7 * kGiB,
       false},
      {"c",
       {{svc + "max", "max"}, {svc + "current", Gib(1)}, {slice + "max", Gib(4)}, {"/proc/self/cgroup", v2}},
       32,
       29,
       4 * kGiB,
       false},
      {"d",
       {{"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712"},
        {"/proc/self/cgroup", "4:memory:/a\n"}},
       32,
       29,
       29 * kGiB,
       false},
      {"e",
       {{svc + "max", Gib(64)}, {svc + "current", "0"}, {"/proc/self/cgroup", v2}},
       128,
       3,
       3 * kGiB,
       false},
      {"f", {{svc + "max", "\x01\x02"}, {"/proc/self/cgroup", v2}}, 32, 29, 29 * kGiB, true},
  };
  for (const Container& row : rows) {
    SCOPED_TRACE(row.row);
    FakeTree tree;
    const auto kb = [](double gib) { return std::to_string(static_cast<uint64_t>(gib * 1024 * 1024)); };
    tree.File("/proc/meminfo",
              "MemTotal: " + kb(row.total_gib) + " kB\nMemAvailable: " + kb(row.available_gib) + " kB\n");
    for (const auto& [path, text] : row.files) tree.File(path, text + "\n");
    const Topology t = TopologyOf(tree);
    EXPECT_EQ(t.FindPool("pool-system")->free_bytes, row.free);
    const bool flagged = std::any_of(t.findings.begin(), t.findings.end(), [](const Finding& f) {
      return f.code == "host.cgroup_memory_unreadable";
    });
    EXPECT_EQ(flagged, row.flagged);
    // The same figure decides what a plan may take.
    Ledger ledger;
    ledger.SetTopology(t);
    EXPECT_LE(ledger.Snapshot().pool_free.at("pool-system"), row.free);
  }
}

TEST(CaseC07Test, APlanInAContainerStaysBelowItsLimit) {
  FakeTree tree;
  AddMemory(tree, 32, 29);
  tree.File("/proc/self/cgroup", "0::/svc\n");
  tree.File("/sys/fs/cgroup/svc/memory.max", Gib(1.2) + "\n")
      .File("/sys/fs/cgroup/svc/memory.current", "0\n");
  const Topology t = TopologyOf(tree);
  PlanRequest fits = AnyEngine(testing::DenseModel(256 * kMiB, 8));
  fits.overrides.device = "cpu";
  const Plan small = PlanFor(fits, t);
  ASSERT_TRUE(small.chosen.has_value());
  Bytes sum = 0;
  for (const MemoryItem& item : small.chosen->memory) sum += item.bytes;
  EXPECT_LE(sum, static_cast<Bytes>(1.2 * static_cast<double>(kGiB)));
  PlanRequest big = AnyEngine(testing::DenseModel(4 * kGiB));
  big.overrides.device = "cpu";
  EXPECT_FALSE(PlanFor(big, t).chosen.has_value());
}

// --- C37: threads of containers ---

TEST(CaseC37Test, ThreadsFollowQuotaCpusetAndAffinityAndNeverTheHost) {
  struct Row {
    const char* name;
    std::vector<std::pair<std::string, std::string>> files;
    uint32_t threads;
    const char* why;
  };
  const std::string svc = "/sys/fs/cgroup/slice/svc/", slice = "/sys/fs/cgroup/slice/";
  const Row rows[] = {
      {"quota 4", {{svc + "cpu.max", "400000 100000"}}, 4, "cpu.max"},
      {"quota 7.65", {{svc + "cpu.max", "765000 100000"}}, 7, "cpu.max"},
      {"quota 0.5", {{svc + "cpu.max", "50000 100000"}}, 1, "cpu.max"},
      {"no quota", {{svc + "cpu.max", "max 100000"}}, 16, "CPUs online"},  // cores, not threads
      {"parent's quota 2",
       {{svc + "cpu.max", "max 100000"}, {slice + "cpu.max", "200000 100000"}},
       2,
       "/slice"},
      {"cpuset", {{svc + "cpuset.cpus.effective", "0-3"}}, 4, "cpuset"},
      {"affinity 2, quota 4",
       {{svc + "cpu.max", "400000 100000"}, {"/proc/self/status", "Cpus_allowed_list:\t4,6"}},
       2,
       "affinity"},
      {"v1",
       {{"/proc/self/cgroup", "1:cpu:/a\n3:cpuset:/a"},
        {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "350000"},
        {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000"},
        {"/sys/fs/cgroup/cpuset/a/cpuset.cpus", "0-7"}},
       3,
       "cfs_quota"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    FakeTree tree;
    AddMemory(tree, 64, 60);
    std::string info;
    for (int i = 0; i < 32; ++i) {
      info += "processor : " + std::to_string(i) +
              "\nvendor_id : AuthenticAMD\nphysical id : 0\ncore id : " + std::to_string(i % 16) +
              "\nflags : avx2\n\n";
    }
    tree.File("/proc/cpuinfo", info).File("/proc/self/cgroup", "0::/slice/svc\n");
    for (const auto& [path, text] : row.files) tree.File(path, text + "\n");
    const Topology t = TopologyOf(tree);
    EXPECT_THAT(t.FindDevice("cpu0")->threads_allowed_source, HasSubstr(row.why));
    PlanRequest request = AnyEngine(testing::DenseModel(2 * kGiB));
    request.overrides.device = "cpu";
    request.overrides.engine = "llamacpp";
    const Plan plan = PlanFor(request, t);
    ASSERT_TRUE(plan.chosen.has_value());
    EXPECT_EQ(plan.chosen->settings.threads, row.threads);        // decode
    EXPECT_EQ(plan.chosen->settings.threads_batch, row.threads);  // prompts
  }
}

}  // namespace
}  // namespace rumbo
