// What the planner says about machines and models that people ask about.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/status.h"
#include "daemon/core/calibration.h"
#include "daemon/core/plan_advice.h"
#include "daemon/core/planner.h"
#include "devices/profiles/profile.h"
#include "engines/api/catalog.h"
#include "tests/bench/plan/child.h"
#include "tests/bench/plan/gguf_shapes.h"

namespace rumbo {
namespace {

class ProfilePlanTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    char name[] = "/tmp/rumbo-shapes-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static const ModelDescriptor& Shape(const std::string& name) {
    static std::map<std::string, ModelDescriptor> cache;
    const auto it = cache.find(name);
    if (it != cache.end()) return it->second;
    std::string path = folder_ + "/" + name + ".gguf";
    if (!bench::WriteShape(name, path).ok()) {
      path = folder_ + "/" + name;
      EXPECT_TRUE(bench::WriteFolderShape(name, path).ok()) << name;
    }
    const auto d =
        DescriptorFromJson(bench::RunProgram({std::string(RUMBO_BIN_DIR) + "/rumbo-inspect", path}, ""));
    EXPECT_TRUE(d.ok()) << name;
    return cache[name] = *d;
  }

  static Topology Machine(const std::string& profile) {
    const auto machine = LoadProfile(profile);
    EXPECT_TRUE(machine.ok()) << MessageOf(machine.status());
    return machine.ok() ? *machine : Topology{};
  }

  static PlanRequest Ask(const std::vector<std::string>& shapes, uint32_t sessions) {
    PlanRequest r;
    r.model = shapes[0];
    for (const std::string& shape : shapes) r.variants.push_back({shape, Shape(shape), ""});
    r.workload.sessions = sessions;
    r.assume_installed = true;
    return r;
  }

  static Plan PlanOn(const PlanRequest& request, const std::string& profile) {
    const auto plan = MakePlan(request, Machine(profile), BuiltInCatalog(), Calibration{});
    EXPECT_TRUE(plan.ok()) << MessageOf(plan.status());
    return plan.ok() ? *plan : Plan{};
  }

  static bool Says(const Plan& plan, const std::string& part) {
    for (const std::string& reason : plan.chosen->reasons) {
      if (reason.find(part) != std::string::npos) return true;
    }
    return false;
  }

  static const Rejected* Find(const Plan& plan, const std::string& engine, const std::string& backend = "") {
    for (const Rejected& r : plan.rejected) {
      if (r.engine == engine && (backend.empty() || r.backend == backend)) return &r;
    }
    return nullptr;
  }

  static std::string folder_;
};
std::string ProfilePlanTest::folder_;

TEST_F(ProfilePlanTest, ALargeDenseModelOnA32GbCard) {
  const Plan plan = PlanOn(Ask({"qwen3.8-27b"}, 1), "r9700");
  ASSERT_TRUE(plan.chosen);
  EXPECT_TRUE(plan.chosen->backend == "vulkan" || plan.chosen->backend == "hip");
  EXPECT_EQ(plan.chosen->settings.draft_tokens, 2u);
  EXPECT_EQ(plan.chosen->settings.mmap, false);
  EXPECT_EQ(plan.chosen->settings.gpu_layers, Shape("qwen3.8-27b").layers.size() + 1);
  EXPECT_TRUE(Says(plan, "mapping off"));
  const Rejected* other = Find(plan, plan.chosen->engine, plan.chosen->backend == "hip" ? "vulkan" : "hip");
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other->reason.find("tokens/s"), std::string::npos);
}

TEST_F(ProfilePlanTest, TheSameModelDraftsDeeperWhereBandwidthIsScarcer) {
  const Plan plan = PlanOn(Ask({"qwen3.8-27b"}, 1), "ryzen-ai-max-395-vgm64");
  ASSERT_TRUE(plan.chosen);
  EXPECT_EQ(plan.chosen->settings.draft_tokens, 4u);
  EXPECT_NEAR(*plan.chosen->predicted.decode_tok_s, 24.5, 3) << "published: 24.5 tokens/s";
}

TEST_F(ProfilePlanTest, DraftDepthFollowsTheAcceptanceWhereItIsKnown) {
  PlanRequest r = Ask({"qwen3.8-27b"}, 1);
  r.workload.draft_acceptance = 0.05;
  EXPECT_LE(*PlanOn(r, "r9700").chosen->settings.draft_tokens, 1u);
  r.workload.draft_acceptance = 0.95;
  EXPECT_GE(*PlanOn(r, "r9700").chosen->settings.draft_tokens, 4u);
}

TEST_F(ProfilePlanTest, A16GbCardSaysWhatItWouldTake) {
  const Plan plan = PlanOn(Ask({"qwen3.8-27b"}, 1), "rx-9060-xt");
  ASSERT_TRUE(plan.chosen);
  EXPECT_TRUE(Says(plan, "all of it would need"));
  EXPECT_TRUE(Says(plan, "layers fit on the device"));
}

TEST_F(ProfilePlanTest, SaysWhyTheNpuWasNotChosen) {
  const Plan plan = PlanOn(Ask({"qwen3.8-27b"}, 1), "xdna2");
  ASSERT_TRUE(plan.chosen);
  const Rejected* npu = Find(plan, "fastflowlm");
  ASSERT_NE(npu, nullptr);
  EXPECT_EQ(npu->reason_code, Reason::kFormatUnsupported);
  EXPECT_EQ(npu->backend, "xdna");
  EXPECT_NE(npu->reason.find("q4nx"), std::string::npos);
  ASSERT_EQ(npu->devices.size(), 1u);
  EXPECT_EQ(npu->devices[0].substr(0, 3), "npu");
}

TEST_F(ProfilePlanTest, ManySessionsOnLinuxPreferTheServerForManySessions) {
  PlanRequest r = Ask({"qwen3.8-27b", "qwen3.8-27b-awq"}, 16);
  const Plan plan = PlanOn(r, "r9700");
  ASSERT_TRUE(plan.chosen);
  EXPECT_EQ(plan.chosen->engine, "vllm");
  EXPECT_EQ(plan.chosen->settings.kv_type_k, "fp8");
  EXPECT_TRUE(Says(plan, "FP8 cache"));
  r.system = "windows";
  const Plan windows = PlanOn(r, "r9700");
  ASSERT_TRUE(windows.chosen);
  EXPECT_NE(windows.chosen->engine, "vllm");
  const Rejected* vllm = Find(windows, "vllm");
  ASSERT_NE(vllm, nullptr);
  EXPECT_EQ(vllm->reason_code, Reason::kSystemUnsupported);
  EXPECT_NE(vllm->reason.find("no native Windows build"), std::string::npos);
}

TEST_F(ProfilePlanTest, OneSessionPrefersDraftsOverTheServerForMany) {
  const Plan plan = PlanOn(Ask({"qwen3.8-27b", "qwen3.8-27b-awq"}, 1), "r9700");
  ASSERT_TRUE(plan.chosen);
  EXPECT_EQ(plan.chosen->variant, "qwen3.8-27b");
}

TEST_F(ProfilePlanTest, SpeechOnAnOlderCardUnderWindowsIsNative) {
  PlanRequest r = Ask({"kokoro-82m"}, 1);
  r.system = "windows";
  const Plan plan = PlanOn(r, "rx-6800-xt");
  ASSERT_TRUE(plan.chosen);
  EXPECT_EQ(plan.chosen->engine, "pytorch");
  EXPECT_EQ(plan.chosen->backend, "hip");
  EXPECT_EQ(plan.chosen->maturity, "official");
  EXPECT_EQ(plan.chosen->environment.at("MIOPEN_FIND_MODE"), "FAST");
  EXPECT_TRUE(Says(plan, "no CUDA translation layer"));
  EXPECT_EQ(plan.chosen->predicted.decode_tok_s, std::nullopt) << "unknown stays unknown";
}

TEST_F(ProfilePlanTest, EnergyChoosesTheNpuAndUnknownPowerIsSaid) {
  PlanRequest r = Ask({"llama3.2-1b"}, 1);
  ModelDescriptor npu = Shape("llama3.2-1b");
  npu.format = "q4nx";
  npu.quantization = "Q4NX";
  r.variants.push_back({"npu", npu, ""});
  r.workload.objective = "energy";
  const Plan plan = PlanOn(r, "xdna2");
  ASSERT_TRUE(plan.chosen);
  EXPECT_EQ(plan.chosen->variant, "npu");
  EXPECT_EQ(plan.chosen->devices[0].substr(0, 3), "npu");
  EXPECT_TRUE(plan.chosen->predicted.energy_j_per_tok.has_value() || Says(plan, "unknown"));
  EXPECT_EQ(plan.chosen->settings.extra.at("in_flight"), "1");
}

TEST_F(ProfilePlanTest, CloseToPublishedSpeedOnTheBigCard) {
  PlanRequest r = Ask({"qwen3.8-27b"}, 1);
  r.overrides.engine = "llama-server";
  r.overrides.device = "vulkan";
  const Plan plan = PlanOn(r, "r9700");
  ASSERT_TRUE(plan.chosen);
  EXPECT_NEAR(*plan.chosen->predicted.decode_tok_s, 51.8, 6) << "published: 51.8 tokens/s";
}

TEST_F(ProfilePlanTest, PricePerGigabyteOfRealCards) {
  const auto rows =
      AdviseOver({Ask({"qwen3-8b"}, 1)}, {Machine("rx-9060-xt"), Machine("rtx-5060-ti"), Machine("xdna2")},
                 BuiltInCatalog(), Calibration{}, {});
  ASSERT_EQ(rows.size(), 3u);
  for (const AdviceRow& row : rows) {
    ASSERT_TRUE(row.plan.chosen) << row.hardware;
    if (row.hardware.find("9060") != std::string::npos) {
      EXPECT_NEAR(*row.price_per_gb, 33, 1.5);
    } else if (row.hardware.find("5060") != std::string::npos) {
      EXPECT_GE(*row.price_per_gb, 39.5);
      EXPECT_LE(*row.price_per_gb, 44.5);
    } else {
      EXPECT_FALSE(row.price);
      EXPECT_FALSE(row.price_per_gb) << "no price, no figure";
    }
    if (row.price) {
      EXPECT_EQ(row.price->currency, "EUR");
      EXPECT_FALSE(row.price->date.empty());
    }
  }
}

TEST_F(ProfilePlanTest, TwoAndFourCardsHoldWhatOneDoesNot) {
  const PlanRequest r = Ask({"llama3-70b"}, 1);
  const Plan one = PlanOn(r, "r9700"), two = PlanOn(r, "2x-r9700"), four = PlanOn(r, "4x-r9700");
  ASSERT_TRUE(one.chosen && two.chosen && four.chosen);
  EXPECT_TRUE(Says(one, "would need"));
  EXPECT_EQ(two.chosen->devices.size(), 2u);
  EXPECT_GT(*two.chosen->predicted.decode_tok_s, *one.chosen->predicted.decode_tok_s);
  EXPECT_GE(*four.chosen->predicted.decode_tok_s, *two.chosen->predicted.decode_tok_s * 0.99);
}

TEST_F(ProfilePlanTest, ManyEqualCardsAndASmallModelSayWhyOneIsEnough) {
  const Plan plan = PlanOn(Ask({"llama3-8b"}, 1), "8x-h200");
  ASSERT_TRUE(plan.chosen);
  EXPECT_EQ(plan.chosen->devices.size(), 1u);
  EXPECT_TRUE(Says(plan, "one of 8 equal devices"));
}

TEST_F(ProfilePlanTest, AnAcceleratorThatIsLeftOutIsExplained) {
  for (const std::string& profile : ListProfiles()) {
    const Topology machine = Machine(profile);
    const bool accelerated = std::any_of(machine.devices.begin(), machine.devices.end(), [](const Device& d) {
      return d.kind != DeviceKind::kCpu && !d.software;
    });
    const Plan plan = PlanOn(Ask({"llama3.2-1b"}, 1), profile);
    ASSERT_TRUE(plan.chosen) << profile;
    if (accelerated && plan.chosen->backend == "cpu") {
      EXPECT_TRUE(Says(plan, "not on ")) << profile;
    }
  }
}

TEST_F(ProfilePlanTest, AServerCardBeatsTheServersCpuWithASmallModel) {
  for (const char* profile : {"mi300x", "mi355x", "h200"}) {
    const Plan plan = PlanOn(Ask({"llama3.2-1b"}, 1), profile);
    ASSERT_TRUE(plan.chosen);
    EXPECT_NE(plan.chosen->backend, "cpu") << profile;
  }
}

TEST_F(ProfilePlanTest, ASystemThatDoesNotExistIsRefusedWithThoseThatDo) {
  PlanRequest r = Ask({"llama3.2-1b"}, 1);
  r.system = "mac";
  const auto plan = MakePlan(r, Machine("r9700"), BuiltInCatalog(), Calibration{});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(NextStepOf(plan.status()).find("linux, windows or macos"), std::string::npos);
}

// The plan leaves out what the command line adds: every setting that costs memory moves the figure.
TEST_F(ProfilePlanTest, EverySettingThatCostsMemoryIsCharged) {
  PlanRequest base = Ask({"llama3.2-1b"}, 1);
  base.workload.context = 4096;
  base.overrides.engine = "llamacpp";
  const auto bytes = [&](const PlanRequest& r, const std::string& what = "") {
    Bytes sum = 0;
    const Plan made = PlanOn(r, "epyc-9554");
    for (const MemoryItem& item : made.chosen->memory) {
      if (what.empty() || item.what == what) sum += item.bytes;
    }
    return sum;
  };
  PlanRequest longer = base, more = base, small = base, batch = base;
  longer.workload.context = 32768;
  more.workload.sessions = 8;
  more.workload.context = 8 * 4096;
  small.overrides.kv_type = "q8_0";
  batch.overrides.knobs = "ubatch=2048";
  EXPECT_GT(bytes(longer), bytes(base));
  EXPECT_GT(bytes(more), bytes(base));
  EXPECT_LT(bytes(small), bytes(base));
  EXPECT_GT(bytes(batch, "compute"), bytes(base, "compute"));
  const Plan plan = PlanOn(base, "epyc-9554");
  ASSERT_GT(plan.chosen->settings.host_cache_bytes.value_or(0), 0u);
  EXPECT_EQ(bytes(base, "host_cache"), *plan.chosen->settings.host_cache_bytes)
      << "what the engine may grow to is charged";
}

// Each session is promised only what it really has.
TEST_F(ProfilePlanTest, SessionsArePromisedTheirShareOfTheCache) {
  for (const uint32_t sessions : {1u, 4u, 16u}) {
    PlanRequest r = Ask({"llama3.2-1b"}, sessions);
    r.workload.context = 16384;
    const Plan plan = PlanOn(r, "epyc-9554");
    ASSERT_TRUE(plan.chosen);
    EXPECT_EQ(plan.chosen->settings.sessions, sessions);
    EXPECT_LE(*plan.chosen->settings.context_per_session * sessions, *plan.chosen->settings.context_total);
    EXPECT_GE(*plan.chosen->settings.context_total, 16384u);
  }
}

// A model that can never fit is refused at once, with what it needs and what would fit; nothing is evicted.
TEST_F(ProfilePlanTest, AModelThatCanNeverFitIsRefusedQuickly) {
  PlanRequest r = Ask({"llama3-70b"}, 1);
  r.workload.context = 8192;
  Topology machine = Machine("epyc-7763");
  for (MemoryPool& pool : machine.pools) pool.total_bytes = pool.free_bytes = 8 * kGiB;
  r.ledger = {};
  r.evictable = {{"i1", {{machine.pools[0].id, kGiB}}, {}}, {"i2", {{machine.pools[0].id, kGiB}}, {}}};
  const auto plan = MakePlan(r, machine, BuiltInCatalog(), Calibration{});
  ASSERT_TRUE(plan.ok());
  ASSERT_FALSE(plan->chosen);
  EXPECT_TRUE(plan->evictions.empty());
  EXPECT_GT(*plan->refusal->missing_bytes, 20 * kGiB);
  EXPECT_NE(plan->refusal->reason.find("even with every idle model stopped"), std::string::npos);
  EXPECT_FALSE(plan->refusal->nearest) << "it fits at no length";
}

TEST_F(ProfilePlanTest, EveryShapeOnEveryProfileIsAPlanOrAReason) {
  int chosen = 0, refused = 0;
  for (const std::string& profile : ListProfiles()) {
    const Topology machine = Machine(profile);
    for (const bench::ShapeInfo& shape : bench::Shapes()) {
      const auto plan = MakePlan(Ask({shape.name}, 4), machine, BuiltInCatalog(), Calibration{});
      ASSERT_TRUE(plan.ok()) << profile << " " << shape.name << " " << MessageOf(plan.status());
      ASSERT_NE(plan->chosen.has_value(), plan->refusal.has_value()) << profile << " " << shape.name;
      if (plan->chosen) {
        ++chosen;
        EXPECT_FALSE(plan->chosen->reasons.empty());
        EXPECT_FALSE(plan->chosen->maturity.empty());
        std::map<std::string, Bytes> sums;
        for (const MemoryItem& item : plan->chosen->memory) sums[item.pool] += item.bytes;
        for (const auto& [pool, bytes] : sums) {
          const MemoryPool* p = machine.FindPool(pool);
          ASSERT_NE(p, nullptr);
          EXPECT_LE(bytes, p->free_bytes.value_or(p->total_bytes.value_or(0)))
              << profile << " " << shape.name;
        }
      } else {
        ++refused;
        EXPECT_FALSE(plan->refusal->reason.empty());
        EXPECT_FALSE(plan->refusal->next_step.empty());
      }
      for (const Rejected& r : plan->rejected) EXPECT_FALSE(r.reason.empty());
    }
  }
  EXPECT_GT(chosen, 500);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace rumbo
