// Plans for models that are loaded for vectors, with drafts, and with caches outside the KV cache.
#include <gtest/gtest.h>

#include "base/status.h"
#include "daemon/core/planner.h"
#include "daemon/core/testing/plan_fixtures.h"

namespace rumbo {
namespace {

using testing::CpuMachine;
using testing::DenseModel;
using testing::PlanOn;
using testing::RequestFor;
using testing::SumOf;

TEST(PlanUsesTest, ModelThatAnswersIsPlannedForVectorsWhereAPoolingIsAskedFor) {
  PlanRequest r = RequestFor(DenseModel(4 * kGiB));
  r.overrides.pooling = "mean";
  const auto plan = PlanOn(CpuMachine(32 * kGiB), r);
  ASSERT_TRUE(plan.ok() && plan->chosen) << plan.status();
  const Candidate& c = *plan->chosen;
  EXPECT_EQ(c.settings.extra.at("pooling"), "mean");
  EXPECT_EQ(c.settings.kv_unified, true);
  EXPECT_EQ(c.settings.host_cache_bytes, 0u);
  // A row of the vocabulary for every token of a batch.
  EXPECT_EQ(c.settings.extra.at("outputs"), std::to_string(*c.settings.ubatch));
  EXPECT_GE(SumOf(c, "pool-system", "compute"), Bytes{*c.settings.ubatch} * 128000 * 4);
  EXPECT_LE(SumOf(c, "pool-system", "compute"), Bytes{512} * 128000 * 4);
  EXPECT_FALSE(c.predicted.decode_tok_s);
  r.overrides.pooling = "most";
  EXPECT_EQ(ReasonOf(PlanOn(CpuMachine(32 * kGiB), r).status()), Reason::kInvalidArgument);
}

TEST(PlanUsesTest, EncoderHasNoCacheAndSeesItsLongestInputWhole) {
  ModelDescriptor d = DenseModel(100 * kMiB, 12, 2048);
  d.capabilities = {"embed"};
  d.pooling = "cls";
  d.output_length = 0;
  for (LayerDescriptor& layer : d.layers) layer.kv_heads = 0;
  PlanRequest r = RequestFor(d);
  r.workload.sessions = 1;
  r.workload.context = 2048;
  const auto plan = PlanOn(CpuMachine(32 * kGiB), r);
  ASSERT_TRUE(plan.ok() && plan->chosen) << plan.status();
  EXPECT_EQ(plan->chosen->settings.extra.at("pooling"), "cls");
  EXPECT_EQ(plan->chosen->settings.ubatch, 2048u);
  EXPECT_EQ(SumOf(*plan->chosen, "pool-system", "kv_cache"), 0u);
  EXPECT_EQ(SumOf(*plan->chosen, "pool-system", "host_cache"), 0u);
}

TEST(PlanUsesTest, DraftModelIsReservedForAndMustExist) {
  PlanRequest r = RequestFor(DenseModel(8 * kGiB));
  const ModelDescriptor draft = DenseModel(kGiB, 8);
  r.overrides.draft_model = "small";
  EXPECT_EQ(ReasonOf(PlanOn(CpuMachine(64 * kGiB), r).status()), Reason::kModelNotFound);
  r.draft = &draft;
  const auto plan = PlanOn(CpuMachine(64 * kGiB), r);
  ASSERT_TRUE(plan.ok() && plan->chosen) << plan.status();
  EXPECT_EQ(plan->chosen->settings.extra.at("draft_model"), "small");
  EXPECT_EQ(plan->chosen->settings.draft_tokens, 4u);
  EXPECT_GE(SumOf(*plan->chosen, "pool-system", "draft"), kGiB - kMiB);
  EXPECT_FALSE(plan->chosen->settings.extra.contains("draft_optional"));
  r.overrides.draft_tokens = 0;
  const auto without = PlanOn(CpuMachine(64 * kGiB), r);
  ASSERT_TRUE(without.ok() && without->chosen);
  EXPECT_EQ(SumOf(*without->chosen, "pool-system", "draft"), 0u);
}

TEST(PlanUsesTest, ModelWithoutHeadsCannotBeAskedToGuess) {
  PlanRequest r = RequestFor(DenseModel(4 * kGiB));
  r.overrides.draft_tokens = 2;
  const auto plan = PlanOn(CpuMachine(32 * kGiB), r);
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan->refusal);
  EXPECT_EQ(plan->refusal->reason_code, Reason::kCapabilityMissing);
}

TEST(PlanUsesTest, PromptsGoToTheDiskWhereTheyHaveAPlaceInHostMemory) {
  PlanRequest r = RequestFor(DenseModel(4 * kGiB));
  r.disk_cache = 3 * kGiB;
  const auto roomy = PlanOn(CpuMachine(32 * kGiB), r);
  ASSERT_TRUE(roomy.ok() && roomy->chosen);
  EXPECT_GT(roomy->chosen->settings.host_cache_bytes, 0u);
  EXPECT_EQ(roomy->chosen->settings.extra.at("disk_cache_bytes"), std::to_string(3 * kGiB));
  r.workload.objective = "memory";
  const auto small = PlanOn(CpuMachine(32 * kGiB), r);
  ASSERT_TRUE(small.ok() && small->chosen);
  EXPECT_EQ(small->chosen->settings.host_cache_bytes, 0u);
  EXPECT_FALSE(small->chosen->settings.extra.contains("disk_cache_bytes"));
}

}  // namespace
}  // namespace rumbo
