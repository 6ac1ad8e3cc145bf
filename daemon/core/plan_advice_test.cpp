#include "daemon/core/plan_advice.h"

#include <gtest/gtest.h>

#include "daemon/core/testing/plan_fixtures.h"

namespace rumbo {
namespace {

Topology Priced(Bytes card, double amount, const std::string& currency) {
  Topology t = testing::CpuMachine(64 * kGiB);
  t.source = "profile:m";
  testing::AddCard(t, card);
  t.price = Price{amount, currency, "2026", "test"};
  return t;
}

TEST(PlanAdviceTest, PricePerGbIsOfTheCardsMemory) {
  const auto rows = AdviseOver({testing::RequestFor(testing::DenseModel(4 * kGiB))},
                               {Priced(16 * kGiB, 528, "EUR")}, BuiltInCatalog(), {}, {});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].hardware, "m");
  EXPECT_DOUBLE_EQ(*rows[0].price_per_gb, 33);
  ASSERT_TRUE(rows[0].plan.chosen);
  EXPECT_NEAR(*rows[0].price_per_tok_s, 528 / *rows[0].plan.chosen->predicted.aggregate_tok_s, 1e-6);
}

TEST(PlanAdviceTest, NoPriceAndOtherCurrenciesAreNull) {
  Topology none = testing::CpuMachine(64 * kGiB);
  const auto rows =
      AdviseOver({testing::RequestFor(testing::DenseModel(kGiB))}, {none, Priced(16 * kGiB, 500, "USD")},
                 BuiltInCatalog(), {}, {"EUR", std::nullopt});
  ASSERT_EQ(rows.size(), 2u);
  for (const AdviceRow& row : rows) {
    EXPECT_FALSE(row.price);
    EXPECT_FALSE(row.price_per_gb);
    EXPECT_FALSE(row.price_per_tok_s);
    EXPECT_TRUE(row.plan.chosen);
  }
}

TEST(PlanAdviceTest, ABudgetLeavesOutWhatCostsMore) {
  const auto rows = AdviseOver({testing::RequestFor(testing::DenseModel(kGiB))},
                               {Priced(16 * kGiB, 500, "EUR"), Priced(32 * kGiB, 1500, "EUR")},
                               BuiltInCatalog(), {}, {"", 1000.0});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].price->amount, 500);
}

TEST(PlanAdviceTest, WhatDoesNotFitIsARowToo) {
  const auto rows = AdviseOver({testing::RequestFor(testing::DenseModel(500 * kGiB))},
                               {Priced(16 * kGiB, 500, "EUR")}, BuiltInCatalog(), {}, {});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_FALSE(rows[0].plan.chosen);
  EXPECT_EQ(rows[0].plan.refusal->reason_code, Reason::kDoesNotFit);
  EXPECT_FALSE(rows[0].price_per_tok_s);
}

TEST(PlanAdviceTest, ARequestThatContradictsItselfIsARefusalPerMachine) {
  PlanRequest bad = testing::RequestFor(testing::DenseModel(kGiB));
  bad.workload.sessions = 0;
  const auto rows = AdviseOver({bad}, {Priced(16 * kGiB, 500, "EUR")}, BuiltInCatalog(), {}, {});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].plan.refusal->reason_code, Reason::kInvalidArgument);
}

}  // namespace
}  // namespace rumbo
