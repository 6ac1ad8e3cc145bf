// Properties that hold for every plan, tried on machines and models made up at random (from a fixed seed).

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/status.h"
#include "daemon/core/memory_model.h"
#include "daemon/core/testing/plan_fixtures.h"

namespace rumbo {
namespace {

using testing::PlanOn;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t n) { return std::uniform_int_distribution<uint64_t>(0, n - 1)(engine_); }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }

  ModelDescriptor Model() {
    ModelDescriptor d = testing::DenseModel((1 + Below(60)) * kGiB / 2, static_cast<uint32_t>(1 + Below(90)),
                                            static_cast<uint32_t>(2048 << Below(8)));
    const bool sparse = Chance(40), hybrid = Chance(30), windowed = Chance(40);
    d.mla = Chance(15);
    if (sparse) d.experts = 64, d.experts_used = 4, d.active_parameters /= 6;
    for (size_t i = 0; i < d.layers.size(); ++i) {
      LayerDescriptor& l = d.layers[i];
      if (sparse)
        std::swap(l.expert_bytes, l.dense_ffn_bytes), l.expert_feed_forward = 1024, l.feed_forward = 0;
      if (hybrid && i % 4 != 3) {
        l.recurrent = true, l.mixer = "linear", l.recurrent_state_bytes = 2 * kMiB;
        l.kv_heads = 0, l.mixer_width = 4096, l.mixer_conv_width = 8192;
      } else if (windowed && i % 6 != 5) {
        l.window = 1024;
      }
      if (d.mla) l.kv_heads = 1, l.key_length = 576, l.value_length = 0;
    }
    if (Chance(20)) d.mtp_layers = 1, d.layers.back().mtp = true;
    return d;
  }

  Topology Machine() {
    Topology t = testing::CpuMachine((2 + Below(128)) * kGiB);
    if (Chance(70)) testing::AddCard(t, (2 + Below(64)) * kGiB);
    if (Chance(25)) testing::AddCard(t, (2 + Below(64)) * kGiB, "0000:04:00.0");
    if (Chance(25)) Integrated(t);
    return t;
  }

  PlanRequest Request() {
    PlanRequest r = testing::RequestFor(Model());
    if (Chance(60)) r.workload.sessions = static_cast<uint32_t>(1 + Below(32));
    const uint32_t trained = r.variants[0].descriptor.context_trained;
    if (Chance(50)) r.workload.context = static_cast<uint32_t>(256 + Below(trained - 255));
    const char* objectives[] = {"latency", "throughput", "energy", "memory"};
    r.workload.objective = objectives[Below(4)];
    return r;
  }

 private:
  // A GPU with a carve-out, sharing system memory up to a limit.
  void Integrated(Topology& t) {
    MemoryPool pool;
    pool.id = "pool-carveout";
    pool.kind = PoolKind::kCarveout;
    pool.total_bytes = pool.free_bytes = (1 + Below(32)) * kGiB / 2;
    t.pools.push_back(pool);
    MemoryLimit gtt;
    gtt.id = "limit-gtt";
    gtt.kind = LimitKind::kGtt;
    gtt.max_bytes = *t.pools[0].total_bytes / 2;
    gtt.devices = {"gpu-apu"};
    t.pools[0].limits.push_back(gtt);
    Device gpu = testing::AddCard(t, kGiB, "apu");
    t.devices.pop_back();
    t.pools.pop_back();
    gpu.id = "gpu-apu";
    gpu.memory_kind = MemoryKind::kUnified;
    gpu.pools = {"pool-carveout", "pool-system"};
    gpu.bandwidth_bytes_s.value = 100e9;
    for (BackendSupport& backend : gpu.backends) {
      backend.pools = gpu.pools;
      backend.may_span_pools = backend.name == "vulkan";
    }
    t.devices.push_back(gpu);
  }

  std::mt19937_64 engine_;
};

constexpr int kTries = 100;

void Grow(Topology& t, Bytes more) {
  for (MemoryPool& pool : t.pools) {
    pool.total_bytes = *pool.total_bytes + more;
    pool.free_bytes = *pool.free_bytes + more;
    for (MemoryLimit& limit : pool.limits) limit.max_bytes = *limit.max_bytes + more;
  }
}

// What the objective measures; less is better.
double Cost(const Plan& plan, const std::string& objective) {
  const Predicted& p = plan.chosen->predicted;
  if (objective == "memory") {
    double sum = 0;
    for (const MemoryItem& item : plan.chosen->memory) sum += static_cast<double>(item.bytes);
    return sum;
  }
  if (objective == "energy" || objective == "throughput") return 1 / *p.aggregate_tok_s;
  return *p.ttft_ms / 1e3 + *plan.workload.answer_tokens / *p.decode_tok_s;
}

TEST(PlanPropertyTest, NoPlanExceedsAPoolOrALimit) {
  Random random(1);
  int chosen = 0;
  for (int i = 0; i < kTries; ++i) {
    const Topology t = random.Machine();
    const auto plan = PlanOn(t, random.Request());
    ASSERT_TRUE(plan.ok()) << MessageOf(plan.status());
    if (!plan->chosen) continue;
    ++chosen;
    std::map<std::string, Bytes> pools;
    for (const MemoryItem& item : plan->chosen->memory)
      pools[item.pool] = SaturatingAdd(pools[item.pool], item.bytes);
    for (const auto& [id, bytes] : pools) {
      ASSERT_NE(t.FindPool(id), nullptr);
      EXPECT_LE(bytes, *t.FindPool(id)->free_bytes) << id << " try " << i;
    }
    for (const MemoryPool& pool : t.pools) {
      for (const MemoryLimit& limit : pool.limits) {
        const auto used = plan->chosen->limit_bytes.find(limit.id);
        EXPECT_LE(used == plan->chosen->limit_bytes.end() ? 0 : used->second, *limit.max_bytes)
            << limit.id << " try " << i;
      }
    }
  }
  EXPECT_GT(chosen, kTries / 2);
}

TEST(PlanPropertyTest, MoreMemoryNeverMakesAPlanWorse) {
  Random random(2);
  for (int i = 0; i < kTries; ++i) {
    Topology t = random.Machine();
    PlanRequest r = random.Request();
    // With an open context more memory may buy a longer one instead of speed.
    if (!r.workload.context) r.workload.context = 1024;
    if (r.workload.objective == "memory") r.workload.objective = "latency";
    const auto before = PlanOn(t, r);
    Grow(t, (1 + random.Below(32)) * kGiB);
    const auto after = PlanOn(t, r);
    ASSERT_TRUE(before.ok() && after.ok());
    if (!before->chosen) continue;
    ASSERT_TRUE(after->chosen) << "try " << i;
    EXPECT_LE(Cost(*after, r.workload.objective), Cost(*before, r.workload.objective) * 1.0001)
        << "try " << i << " " << r.workload.objective << ": " << before->chosen->backend << " then "
        << after->chosen->backend;
  }
}

TEST(PlanPropertyTest, MoreContextNeverNeedsLessMemory) {
  Random random(3);
  for (int i = 0; i < kTries; ++i) {
    const ModelDescriptor model = random.Model();
    CacheShape shape;
    shape.sessions = static_cast<uint32_t>(1 + random.Below(16));
    shape.unified = random.Chance(50);
    shape.full_windows = random.Chance(30);
    shape.flash_attention = random.Chance(70);
    shape.type_k = shape.type_v = random.Chance(50) ? "f16" : "q8_0";
    shape.context_total = static_cast<uint32_t>(256 + random.Below(100000));
    const Bytes less = LayeredMemory(model, shape, {}).host.total();
    shape.context_total += static_cast<uint32_t>(random.Below(100000));
    EXPECT_GE(LayeredMemory(model, shape, {}).host.total(), less) << "try " << i;
  }
}

TEST(PlanPropertyTest, MoreSessionsNeverNeedLessMemory) {
  Random random(4);
  for (int i = 0; i < kTries; ++i) {
    const ModelDescriptor model = random.Model();
    CacheShape shape;
    shape.unified = random.Chance(50);
    shape.sessions = static_cast<uint32_t>(1 + random.Below(16));
    const uint32_t each = static_cast<uint32_t>(256 + random.Below(8192));
    shape.context_total = each * shape.sessions;
    const Bytes less = LayeredMemory(model, shape, {}).host.total();
    shape.sessions += static_cast<uint32_t>(1 + random.Below(16));
    shape.context_total = each * shape.sessions;
    // Rounding the tokens of a step to a multiple of the sessions may give back a few masks' worth.
    EXPECT_GE(LayeredMemory(model, shape, {}).host.total() + 64 * kMiB, less) << "try " << i;
  }
}

TEST(PlanPropertyTest, EqualInputsGiveEqualPlans) {
  Random random(5);
  for (int i = 0; i < 60; ++i) {
    const Topology t = random.Machine();
    const PlanRequest r = random.Request();
    const auto a = PlanOn(t, r), b = PlanOn(t, r);
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_EQ(a->chosen.has_value(), b->chosen.has_value());
    ASSERT_EQ(a->rejected.size(), b->rejected.size());
    for (size_t k = 0; k < a->rejected.size(); ++k) EXPECT_EQ(a->rejected[k].reason, b->rejected[k].reason);
    if (!a->chosen) continue;
    EXPECT_EQ(a->chosen->devices, b->chosen->devices);
    EXPECT_EQ(a->chosen->reasons, b->chosen->reasons);
    EXPECT_EQ(a->chosen->predicted.decode_tok_s, b->chosen->predicted.decode_tok_s);
  }
}

TEST(PlanPropertyTest, EqualCardsAreTiesThatTheLowestIdWins) {
  Topology t = testing::CpuMachine(64 * kGiB);
  testing::AddCard(t, 24 * kGiB, "0000:03:00.0");
  testing::AddCard(t, 24 * kGiB, "0000:04:00.0");
  const auto plan = PlanOn(t, testing::RequestFor(testing::DenseModel(4 * kGiB)));
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_EQ(plan->chosen->devices, std::vector<std::string>{"gpu-0000:03:00.0"});
}

TEST(PlanPropertyTest, NearestThatIsOfferedFits) {
  Random random(6);
  int offered = 0;
  for (int i = 0; i < 60; ++i) {
    PlanRequest r = testing::RequestFor(random.Model());
    const ModelDescriptor& model = r.variants[0].descriptor;
    const Topology t = testing::CpuMachine(model.tensor_bytes + (1 + random.Below(4)) * kGiB);
    r.workload.sessions = static_cast<uint32_t>(1 + random.Below(8));
    r.workload.context = static_cast<uint32_t>(
        std::min<uint64_t>(uint64_t{model.context_trained} * *r.workload.sessions, 1u << 21));
    const auto plan = PlanOn(t, r);
    ASSERT_TRUE(plan.ok()) << MessageOf(plan.status());
    if (!plan->refusal || !plan->refusal->nearest) continue;
    ++offered;
    r.workload = *plan->refusal->nearest;
    const auto nearest = PlanOn(t, r);
    ASSERT_TRUE(nearest.ok()) << MessageOf(nearest.status());
    EXPECT_TRUE(nearest->chosen) << "try " << i;
  }
  EXPECT_GT(offered, 10);
}

TEST(PlanPropertyTest, AbsurdDescriptorsAreRefusedNotCrashedOn) {
  Random random(7);
  for (int i = 0; i < kTries; ++i) {
    PlanRequest r = random.Request();
    ModelDescriptor& d = r.variants[0].descriptor;
    const auto absurd = [&]() -> uint64_t { return random.Chance(50) ? ~0ull >> random.Below(40) : 0; };
    d.embedding_length = static_cast<uint32_t>(absurd());
    d.vocabulary = d.output_length = static_cast<uint32_t>(absurd());
    d.parameters = d.active_parameters = absurd();
    d.token_embedding_bytes = absurd();
    d.experts = static_cast<uint32_t>(absurd());
    d.experts_used = static_cast<uint32_t>(absurd());
    for (LayerDescriptor& l : d.layers) {
      l.attention_bytes = absurd(), l.expert_bytes = absurd(), l.kv_heads = static_cast<uint32_t>(absurd());
      l.key_length = static_cast<uint32_t>(absurd()), l.heads = static_cast<uint32_t>(absurd());
      l.window = static_cast<uint32_t>(absurd()), l.recurrent_state_bytes = absurd(),
      l.recurrent = random.Chance(50);
      l.feed_forward = static_cast<uint32_t>(absurd());
    }
    r.workload.context = std::nullopt;
    const auto plan = PlanOn(random.Machine(), r);
    ASSERT_TRUE(plan.ok());
    EXPECT_NE(plan->chosen.has_value(), plan->refusal.has_value());
  }
}

}  // namespace
}  // namespace rumbo
