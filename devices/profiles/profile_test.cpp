#include "devices/profiles/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/status.h"
#include "devices/api/topology_json.h"

namespace rumbo {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

Topology Load(std::string_view name) {
  auto loaded = LoadProfile(name);
  EXPECT_TRUE(loaded.ok()) << name << ": " << MessageOf(loaded.status());
  return loaded.ok() ? *std::move(loaded) : Topology();
}

const Device& Only(const Topology& t, DeviceKind kind) {
  static const Device none;
  const Device* found = nullptr;
  for (const Device& d : t.devices) {
    if (d.kind == kind && found == nullptr) found = &d;
  }
  return found == nullptr ? none : *found;
}

TEST(ProfileTest, AllTheNamedMachinesAreThere) {
  EXPECT_THAT(ListProfiles(), IsSupersetOf({"r9700",
                                            "rx-9060-xt",
                                            "rx-6800-xt",
                                            "ryzen-ai-max-395-vgm64",
                                            "ryzen-ai-max-395-vgm96",
                                            "ryzen-ai-max-pro-495",
                                            "strix-point",
                                            "mi300x",
                                            "mi355x",
                                            "rtx-5060-ti",
                                            "rtx-5070",
                                            "h200",
                                            "b200",
                                            "gb10",
                                            "arc-b580",
                                            "xdna1",
                                            "xdna2",
                                            "intel-npu",
                                            "epyc-9654",
                                            "2x-r9700",
                                            "4x-r9700"}));
}

TEST(ProfileTest, EveryProfileIsACompleteTopology) {
  for (const std::string& name : ListProfiles()) {
    const Topology t = Load(name);
    EXPECT_EQ(t.source, "profile:" + name);
    std::set<std::string> ids;
    ASSERT_FALSE(t.devices.empty()) << name;
    EXPECT_EQ(t.devices[0].id, "cpu0") << name;
    for (const MemoryPool& p : t.pools) {
      EXPECT_TRUE(ids.insert(p.id).second) << name << " " << p.id;
      ASSERT_TRUE(p.total_bytes && p.free_bytes) << name << " " << p.id;
      EXPECT_LE(*p.free_bytes, *p.total_bytes) << name;
      EXPECT_THAT(p.source, HasSubstr("profile " + name)) << name;
    }
    for (const Device& d : t.devices) {
      EXPECT_TRUE(ids.insert(d.id).second) << name << " " << d.id;
      EXPECT_TRUE(d.usable) << name << " " << d.id;
      EXPECT_FALSE(d.backends.empty()) << name << " " << d.id;
      EXPECT_FALSE(d.pools.empty()) << name << " " << d.id;
      for (const std::string& pool : d.pools) EXPECT_NE(t.FindPool(pool), nullptr) << name << " " << pool;
      EXPECT_TRUE(!d.bandwidth_bytes_s.value || !d.bandwidth_bytes_s.source.empty()) << name;
    }
    const auto back = TopologyFromJson(TopologyToJson(t));
    ASSERT_TRUE(back.ok()) << name;
  }
}

TEST(ProfileTest, ADiscreteCardHasItsOwnPoolAndNoGtt) {
  const Topology t = Load("r9700");
  const Device& gpu = Only(t, DeviceKind::kGpu);
  EXPECT_EQ(gpu.gfx_target, "gfx1201");
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kDiscrete);
  EXPECT_EQ(t.FindPool(gpu.pools.at(0))->total_bytes, 34208743424u);  // 31.86 GiB, not 32
  EXPECT_EQ(gpu.bandwidth_bytes_s.value, 640e9);
  EXPECT_EQ(gpu.fp16_flops.value, 191e12);
  EXPECT_TRUE(t.FindPool("pool-system")->limits.empty());
  EXPECT_EQ(t.price->amount, 1299);
}

TEST(ProfileTest, VgmIsACarveoutThatTheSystemDoesNotHave) {
  const Topology t = Load("ryzen-ai-max-395-vgm96");
  const Device& gpu = Only(t, DeviceKind::kGpu);
  const MemoryPool* carveout = t.FindPool(gpu.pools.at(0));
  EXPECT_EQ(carveout->kind, PoolKind::kCarveout);
  EXPECT_EQ(carveout->total_bytes, 96 * kGiB);
  EXPECT_LT(*t.FindPool("pool-system")->total_bytes, 32 * kGiB);
  const MemoryLimit& gtt = t.FindPool("pool-system")->limits.at(0);
  EXPECT_EQ(gtt.kind, LimitKind::kGtt);
  EXPECT_THAT(gtt.devices, ElementsAre(gpu.id));
  for (const BackendSupport& b : gpu.backends) EXPECT_EQ(b.may_span_pools, b.name == "vulkan") << b.name;
}

TEST(ProfileTest, ASmallCarveoutComesAfterSystemMemory) {
  const Topology t = Load("ryzen-ai-max-395-gtt96");
  EXPECT_EQ(Only(t, DeviceKind::kGpu).pools.at(0), "pool-system");
  EXPECT_EQ(t.FindPool("pool-system")->limits.at(0).max_bytes, 103079215104u);
}

TEST(ProfileTest, SeveralCardsHaveSeveralPools) {
  const Topology t = Load("4x-r9700");
  std::set<std::string> pools;
  for (const Device& d : t.devices) {
    if (d.kind == DeviceKind::kGpu) pools.insert(d.pools.at(0));
  }
  EXPECT_EQ(pools.size(), 4u);
  EXPECT_EQ(t.interconnect, "pcie5x16");
}

TEST(ProfileTest, UnifiedWithoutCarveoutUsesSystemMemoryOnly) {
  const Device gpu = Only(Load("gb10"), DeviceKind::kGpu);
  EXPECT_EQ(gpu.memory_kind, MemoryKind::kUnified);
  EXPECT_THAT(gpu.pools, ElementsAre("pool-system"));
}

TEST(ProfileTest, AnUnknownNameIsRefusedWithNamesThatExist) {
  for (const char* name : {"nope", "", "../profiles/r9700", "r9700.yaml", "R9700", "/etc/passwd"}) {
    const auto result = LoadProfile(name);
    ASSERT_FALSE(result.ok()) << name;
    EXPECT_EQ(ReasonOf(result.status()), Reason::kProfileNotFound) << name;
    EXPECT_THAT(NextStepOf(result.status()), HasSubstr("r9700")) << name;
  }
}

TEST(ProfileTest, MalformedYamlIsATypedError) {
  for (
      const char* yaml :
      {"", "[", "title: x", "title: x\nhost: 3", "title: x\nhost: {chip: no-such-chip}",
       "title: x\nhost: {chip: amd-epyc-7763, cores: 4, threads: 2, isa: [], memory: {value: 1, source: s}}",
       "title: x\nhost: {chip: amd-epyc-7763, cores: 4, threads: 8, isa: [], memory: {value: -1, source: s}}",
       "title: x\nhost: {chip: amd-epyc-7763, cores: 4, threads: 8, isa: [], memory: {value: 1, source: s}}\n"
       "gpus: [{chip: amd-radeon-8060s, count: 1000000000, backends: [hip]}]",
       "title: x\nhost: {chip: amd-epyc-7763, cores: 4, threads: 8, isa: [], memory: {value: 1, source: s}}\n"
       "gpus: [{chip: amd-epyc-7763, backends: [hip]}]"}) {
    const auto result = ParseProfile("test", yaml, ChipTable::BuiltIn());
    ASSERT_FALSE(result.ok()) << yaml;
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << yaml;
  }
}

TEST(ChipTableTest, TheRevisionDecidesBetweenChipsOfOneId) {
  const ChipTable& table = ChipTable::BuiltIn();
  EXPECT_EQ(table.FindPci("1002:73bf", "c1")->id, "amd-radeon-rx-6800-xt");
  EXPECT_EQ(table.FindPci("1002:73bf", "c0")->id, "amd-radeon-rx-6900-xt");
  EXPECT_EQ(table.FindPci("1002:73bf", "ff")->id, "amd-navi21");
  EXPECT_EQ(table.FindPci("1022:17f0", "11")->id, "amd-xdna2-strix-halo");
  EXPECT_EQ(table.FindPci("1234:5678", ""), nullptr);
}

TEST(ChipTableTest, EveryFigureHasASource) {
  for (const Chip& c : ChipTable::BuiltIn().chips()) {
    for (const Sourced<double>* s : {&c.bandwidth_bytes_s, &c.fp16_flops, &c.bf16_flops, &c.fp8_flops,
                                     &c.int8_ops, &c.fp32_flops, &c.power_watts, &c.link_bytes_s}) {
      EXPECT_TRUE(!s->value || !s->source.empty()) << c.id;
    }
  }
}

TEST(ChipTableTest, ABrokenTableIsATypedError) {
  for (const char* yaml : {"chips: [{}]", "chips: [{id: a, name: b, kind: gpu, memory: discrete, tdp_w: 3}]",
                           "chips: [{id: a, name: b, kind: gpu, memory: discrete}, {id: a, name: b, kind: "
                           "gpu, memory: discrete}]"}) {
    const auto parsed = ChipTable::Parse(yaml);
    EXPECT_FALSE(parsed.ok()) << yaml;
  }
}

}  // namespace
}  // namespace rumbo
