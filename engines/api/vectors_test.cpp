#include "engines/api/vectors.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace rumbo {
namespace {

TEST(ShortenTest, KeepsTheFirstValuesAtUnitLength) {
  std::vector<float> vector = {0.6f, 0, 0.8f};
  ASSERT_TRUE(Shorten(2, true, &vector).ok());
  EXPECT_EQ(vector, (std::vector<float>{1, 0}));
}

TEST(ShortenTest, LeavesLengthsAloneWhereNotNormalized) {
  std::vector<float> vector = {3, 4};
  ASSERT_TRUE(Shorten(1, false, &vector).ok());
  EXPECT_EQ(vector, (std::vector<float>{3}));
  ASSERT_TRUE(Shorten(0, true, &vector).ok());
  EXPECT_EQ(vector, (std::vector<float>{3}));
}

TEST(ShortenTest, MoreThanThereAreIsRefused) {
  std::vector<float> vector = {1, 0};
  EXPECT_EQ(ReasonOf(Shorten(3, true, &vector)), Reason::kInvalidArgument);
  EXPECT_EQ(vector.size(), 2u);
}

}  // namespace
}  // namespace rumbo
