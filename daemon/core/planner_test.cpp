#include "daemon/core/planner.h"

#include <gtest/gtest.h>

#include "base/status.h"
#include "daemon/core/testing/plan_fixtures.h"

namespace rumbo {
namespace {

using testing::AddCard;
using testing::CpuMachine;
using testing::DenseModel;
using testing::PlanOn;
using testing::RequestFor;
using testing::SumOf;

TEST(PlannerTest, RunsOnTheCpuWhereThereIsNothingElse) {
  const auto plan = PlanOn(CpuMachine(32 * kGiB), RequestFor(DenseModel(4 * kGiB)));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->chosen);
  EXPECT_EQ(plan->chosen->backend, "cpu");
  EXPECT_EQ(plan->chosen->devices, std::vector<std::string>{"cpu0"});
  EXPECT_EQ(plan->chosen->engine_build, "native");
  EXPECT_GE(SumOf(*plan->chosen, "pool-system", "weights"), 4 * kGiB - kMiB);
  EXPECT_EQ(plan->chosen->settings.threads, 8u);
  EXPECT_EQ(plan->chosen->settings.sessions, 4u);
  EXPECT_EQ(plan->chosen->settings.context_per_session, 4096u);
  EXPECT_EQ(plan->workload.context, 16384u);
  EXPECT_FALSE(plan->chosen->reasons.empty());
}

TEST(PlannerTest, PrefersTheFasterCardAndSaysWhyTheCpuLost) {
  Topology t = CpuMachine(32 * kGiB);
  AddCard(t, 16 * kGiB);
  const auto plan = PlanOn(t, RequestFor(DenseModel(4 * kGiB)));
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_EQ(plan->chosen->devices[0], "gpu-0000:03:00.0");
  EXPECT_EQ(plan->chosen->settings.gpu_layers, 33u);
  bool cpu_lost = false;
  for (const Rejected& r : plan->rejected) {
    cpu_lost = cpu_lost ||
               (r.backend == "cpu" && r.reason_code == Reason::kSlowerThanChosen && r.predicted.decode_tok_s);
  }
  EXPECT_TRUE(cpu_lost);
}

TEST(PlannerTest, KeepsLayersOnTheHostWhereTheCardIsTooSmall) {
  Topology t = CpuMachine(64 * kGiB);
  AddCard(t, 8 * kGiB);
  PlanRequest r = RequestFor(DenseModel(12 * kGiB));
  r.overrides.device = "vulkan";
  const auto plan = PlanOn(t, r);
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_GT(*plan->chosen->settings.gpu_layers, 0u);
  EXPECT_LT(*plan->chosen->settings.gpu_layers, 33u);
  EXPECT_LE(SumOf(*plan->chosen, "pool-vram-0000:03:00.0"), 8 * kGiB);
}

TEST(PlannerTest, SoftwareDevicesAreNeverChosenByThemselves) {
  Topology t = CpuMachine(32 * kGiB);
  AddCard(t, 16 * kGiB).software = true;
  auto plan = PlanOn(t, RequestFor(DenseModel(4 * kGiB)));
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_EQ(plan->chosen->backend, "cpu");
  PlanRequest named = RequestFor(DenseModel(4 * kGiB));
  named.overrides.device = "gpu-0000:03:00.0";
  plan = PlanOn(t, named);
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_EQ(plan->chosen->devices[0], "gpu-0000:03:00.0");
}

TEST(PlannerTest, RefusalNamesTheMissingBytesAndTheNearestThatFits) {
  PlanRequest r = RequestFor(DenseModel(4 * kGiB, 32, 262144));
  r.workload.context = 262144;
  r.workload.sessions = 1;
  const auto plan = PlanOn(CpuMachine(8 * kGiB), r);
  ASSERT_TRUE(plan.ok());
  ASSERT_FALSE(plan->chosen);
  ASSERT_TRUE(plan->refusal);
  EXPECT_EQ(plan->refusal->reason_code, Reason::kDoesNotFit);
  EXPECT_EQ(plan->refusal->pool, "pool-system");
  EXPECT_GT(*plan->refusal->missing_bytes, 1 * kGiB);
  ASSERT_TRUE(plan->refusal->nearest);
  r.workload = *plan->refusal->nearest;
  const auto nearest = PlanOn(CpuMachine(8 * kGiB), r);
  ASSERT_TRUE(nearest.ok());
  EXPECT_TRUE(nearest->chosen) << "the nearest plan must fit";
  r.workload.context = *r.workload.context + 256;
  EXPECT_FALSE(PlanOn(CpuMachine(8 * kGiB), r)->chosen) << "and be the largest that does";
}

TEST(PlannerTest, AModelThatCanNeverFitEvictsNothing) {
  PlanRequest r = RequestFor(DenseModel(40 * kGiB, 80, 262144));
  r.evictable = {{"inst-1", {{"pool-system", kGiB}}, {}}, {"inst-2", {{"pool-system", kGiB}}, {}}};
  const auto plan = PlanOn(CpuMachine(8 * kGiB), r);
  ASSERT_TRUE(plan.ok() && plan->refusal);
  EXPECT_TRUE(plan->evictions.empty());
  EXPECT_FALSE(plan->refusal->nearest);
  EXPECT_FALSE(plan->refusal->next_step.empty());
}

TEST(PlannerTest, EvictsOnlyWhatIsNeeded) {
  Topology t = CpuMachine(16 * kGiB);
  PlanRequest r = RequestFor(DenseModel(4 * kGiB));
  r.ledger.pool_free["pool-system"] = 2 * kGiB;
  r.evictable = {{"small", {{"pool-system", kGiB}}, {}}, {"big", {{"pool-system", 8 * kGiB}}, {}}};
  const auto plan = PlanOn(t, r);
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_EQ(plan->evictions, std::vector<std::string>{"big"});
}

TEST(PlannerTest, ShortensTheDefaultContextButNeverTheOneAskedFor) {
  PlanRequest r = RequestFor(DenseModel(4 * kGiB));
  const Topology small = CpuMachine(5 * kGiB);
  auto plan = PlanOn(small, r);
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_LT(*plan->chosen->settings.context_per_session, 4096u);
  r.workload.context = 16384;
  r.overrides.kv_type = "f16";
  plan = PlanOn(small, r);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->chosen);
}

TEST(PlannerTest, FakeNeedsNoModel) {
  PlanRequest r;
  r.model = "anything";
  r.installed = {{"fake", "", "1", {"cpu"}}};
  r.overrides.engine = "fake";
  r.workload.sessions = 2000;
  const auto plan = PlanOn(CpuMachine(kGiB), r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->chosen);
  EXPECT_EQ(plan->chosen->engine, "fake");
  EXPECT_EQ(plan->chosen->settings.sessions, 2000u);
}

TEST(PlannerTest, TheFakeIsNeverChosenByItself) {
  PlanRequest r = RequestFor(DenseModel(kGiB));
  r.installed = {{"fake", "", "1", {"cpu"}}};
  const auto plan = PlanOn(CpuMachine(8 * kGiB), r);
  ASSERT_TRUE(plan.ok());
  ASSERT_FALSE(plan->chosen);
  EXPECT_EQ(plan->refusal->reason_code, Reason::kEngineNotInstalled);
}

TEST(PlannerTest, RequestsThatContradictThemselvesAreErrors) {
  const Topology t = CpuMachine(32 * kGiB);
  const auto code = [&](auto change) {
    PlanRequest r = RequestFor(DenseModel(4 * kGiB));
    change(r);
    return ReasonOf(PlanOn(t, r).status());
  };
  EXPECT_EQ(code([](PlanRequest& r) { r.workload.sessions = 0; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.workload.context = 0; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.workload.context = 40000; }), Reason::kContextTooLarge);
  EXPECT_EQ(code([](PlanRequest& r) { r.overrides.device = "gpu9"; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.overrides.kv_type = "q3"; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.overrides.engine = "nope"; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.overrides.threads = 9; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.contract.device_kind = "tpu"; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.contract.min_tokens_per_s = NAN; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.workload.draft_acceptance = 1.5; }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](PlanRequest& r) { r.variants[0].descriptor.tensor_bytes = 0; }), Reason::kModelInvalid);
  EXPECT_EQ(code([](PlanRequest& r) { r.variants.clear(); }), Reason::kInvalidArgument);
}

TEST(PlannerTest, AContractThatNothingMeetsIsARefusal) {
  PlanRequest r = RequestFor(DenseModel(4 * kGiB));
  r.contract.min_tokens_per_s = 10000;
  auto plan = PlanOn(CpuMachine(32 * kGiB), r);
  ASSERT_TRUE(plan.ok() && plan->refusal);
  EXPECT_EQ(plan->refusal->reason_code, Reason::kContractUnsatisfiable);
  r.contract.min_tokens_per_s.reset();
  r.contract.device_kind = "gpu";
  plan = PlanOn(CpuMachine(32 * kGiB), r);
  ASSERT_TRUE(plan.ok() && plan->refusal);
  EXPECT_EQ(plan->refusal->reason_code, Reason::kContractUnsatisfiable);
}

TEST(PlannerTest, ForceIsRecorded) {
  PlanRequest r = RequestFor(DenseModel(40 * kGiB));
  r.overrides.force = true;
  const auto plan = PlanOn(CpuMachine(8 * kGiB), r);
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_TRUE(plan->forced);
  bool said = false;
  for (const std::string& reason : plan->chosen->reasons) said = said || reason.find("forced") == 0;
  EXPECT_TRUE(said);
}

TEST(PlannerTest, UnknownCardMemoryFallsBackToTheHost) {
  Topology t = CpuMachine(32 * kGiB);
  AddCard(t, 0);
  t.pools[1].total_bytes = t.pools[1].free_bytes = std::nullopt;
  const auto plan = PlanOn(t, RequestFor(DenseModel(4 * kGiB)));
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_EQ(plan->chosen->backend, "cpu");
}

}  // namespace
}  // namespace rumbo
