#include "engines/llamacpp/core/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rumbo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(NgramDrafterTest, GoesOnAsItDidTheLastTime) {
  NgramDrafter drafter;
  drafter.Append({1, 2, 3, 4, 5, 6, 9, 1, 2, 3});
  EXPECT_THAT(drafter.Draft(3), ElementsAre(4, 5, 6));
  drafter.Append(7);
  EXPECT_THAT(drafter.Draft(3), IsEmpty());
  drafter.Append({1, 2, 3});
  EXPECT_THAT(drafter.Draft(2), ElementsAre(7, 1));
}

TEST(NgramDrafterTest, LoopsGoOnAsLongAsAskedFor) {
  NgramDrafter drafter;
  drafter.Append({5, 1, 2, 1, 2, 1, 2});
  EXPECT_THAT(drafter.Draft(5), ElementsAre(1, 2, 1, 2, 1));
}

TEST(NgramDrafterTest, ShortHistoryHasNoPrecedent) {
  NgramDrafter drafter;
  EXPECT_THAT(drafter.Draft(4), IsEmpty());
  drafter.Append({1, 1, 1});
  EXPECT_THAT(drafter.Draft(4), IsEmpty());
}

TEST(DraftPolicyTest, DraftsMoreTheBetterItGuessesAndTheCheaperTheyAre) {
  DraftPolicy policy;
  for (int i = 0; i < 20; ++i) policy.Record(8, 8);
  EXPECT_GE(policy.Worth(16, 1, 8, 3, 0), 8u);   // memory bound: a token costs little beside the step
  EXPECT_EQ(policy.Worth(16, 16, 8, 3, 8), 0u);  // compute bound with sixteen sessions
  for (int i = 0; i < 20; ++i) policy.Record(8, 0);
  EXPECT_EQ(policy.Worth(16, 1, 8, 3, 0), 0u);
}

TEST(DraftPolicyTest, TriesAgainAfterAWhile) {
  DraftPolicy policy;
  for (int i = 0; i < 20; ++i) policy.Record(4, 0);
  ASSERT_EQ(policy.Worth(8, 1, 8, 3, 0), 0u);
  for (int i = 0; i < 400; ++i) policy.Record(0, 0);
  EXPECT_GT(policy.Worth(8, 1, 8, 3, 0), 0u);
}

}  // namespace
}  // namespace rumbo
