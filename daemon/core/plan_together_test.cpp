#include "daemon/core/plan_together.h"

#include <gtest/gtest.h>

#include <map>

#include "daemon/core/testing/plan_fixtures.h"

namespace rumbo {
namespace {

using testing::AddCard;
using testing::CpuMachine;
using testing::DenseModel;
using testing::RequestFor;

std::vector<absl::StatusOr<Plan>> Together(const std::vector<PlanRequest>& requests, const Topology& t) {
  return PlanTogether(requests, t, BuiltInCatalog(), Calibration{});
}

TEST(PlanTogetherTest, SharesOneCardByMemory) {
  Topology t = CpuMachine(64 * kGiB);
  AddCard(t, 16 * kGiB);
  const auto plans = Together({RequestFor(DenseModel(9 * kGiB)), RequestFor(DenseModel(3 * kGiB))}, t);
  ASSERT_EQ(plans.size(), 2u);
  std::map<std::string, Bytes> sums;
  for (const auto& plan : plans) {
    ASSERT_TRUE(plan.ok() && plan->chosen);
    for (const MemoryItem& item : plan->chosen->memory) sums[item.pool] += item.bytes;
  }
  EXPECT_LE(sums["pool-vram-0000:03:00.0"], 16 * kGiB);
  EXPECT_EQ(plans[0]->chosen->devices[0], "gpu-0000:03:00.0");
  EXPECT_EQ(plans[1]->chosen->devices[0], "gpu-0000:03:00.0");
}

TEST(PlanTogetherTest, AnOrderThatPlacesBothIsFound) {
  // Placed first, the small model would take the room that the big one cannot do without.
  Topology t = CpuMachine(20 * kGiB);
  const PlanRequest small = RequestFor(DenseModel(2 * kGiB)), big = RequestFor(DenseModel(14 * kGiB));
  const auto plans = Together({small, big}, t);
  EXPECT_TRUE(plans[0].ok() && plans[0]->chosen);
  EXPECT_TRUE(plans[1].ok() && plans[1]->chosen);
}

TEST(PlanTogetherTest, WhatDoesNotFitBesideTheOthersIsRefused) {
  const auto plans =
      Together({RequestFor(DenseModel(6 * kGiB)), RequestFor(DenseModel(6 * kGiB))}, CpuMachine(9 * kGiB));
  int chosen = 0;
  for (const auto& plan : plans) {
    ASSERT_TRUE(plan.ok());
    chosen += plan->chosen.has_value();
    EXPECT_TRUE(plan->chosen || plan->refusal->reason_code == Reason::kDoesNotFit);
  }
  EXPECT_EQ(chosen, 1);
}

TEST(PlanTogetherTest, OneBadRequestSpoilsOnlyItself) {
  PlanRequest bad = RequestFor(DenseModel(kGiB));
  bad.workload.sessions = 0;
  const auto plans = Together({bad, RequestFor(DenseModel(kGiB))}, CpuMachine(16 * kGiB));
  EXPECT_FALSE(plans[0].ok());
  EXPECT_TRUE(plans[1].ok() && plans[1]->chosen);
}

TEST(PlanTogetherTest, AnInstanceIsEvictedOnce) {
  Topology t = CpuMachine(16 * kGiB);
  PlanRequest a = RequestFor(DenseModel(4 * kGiB)), b = RequestFor(DenseModel(4 * kGiB));
  for (PlanRequest* r : {&a, &b}) {
    r->ledger.pool_free["pool-system"] = 3 * kGiB;
    r->evictable = {{"old", {{"pool-system", 8 * kGiB}}, {}}};
  }
  const auto plans = Together({a, b}, t);
  size_t evictions = 0;
  for (const auto& plan : plans) {
    if (plan.ok()) evictions += plan->evictions.size();
  }
  EXPECT_EQ(evictions, 1u);
}

TEST(PlanTogetherTest, NothingAskedNothingPlanned) { EXPECT_TRUE(Together({}, CpuMachine(kGiB)).empty()); }

}  // namespace
}  // namespace rumbo
