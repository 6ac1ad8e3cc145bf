#include "engines/llamacpp/core/top_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace rumbo {
namespace {

std::vector<float> RandomLogits(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  return logits;
}

TEST(TopTokensTest, EqualsSorting) {
  for (const size_t n : {1u, 63u, 64u, 65u, 1000u, 50000u}) {
    const std::vector<float> logits = RandomLogits(n, static_cast<unsigned>(n));
    std::vector<int32_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    std::vector<ScoredToken> top;
    TopTokens(logits, 40, &top);
    ASSERT_EQ(top.size(), std::min<size_t>(40, n));
    for (size_t i = 0; i < top.size(); ++i) EXPECT_EQ(top[i].id, order[i]) << n << " " << i;
    EXPECT_EQ(ArgMax(logits), order[0]);
  }
}

TEST(TopTokensTest, EqualLogitsGoToTheLowestId) {
  std::vector<float> logits(200, 1.0f);
  std::vector<ScoredToken> top;
  TopTokens(logits, 3, &top);
  EXPECT_EQ(top[0].id, 0);
  EXPECT_EQ(top[2].id, 2);
  EXPECT_EQ(ArgMax(logits), 0);
}

TEST(TopTokensTest, NanAndMinusInfinityAreNoCandidates) {
  std::vector<float> logits(200, std::nanf(""));
  std::vector<ScoredToken> top;
  TopTokens(logits, 3, &top);
  EXPECT_TRUE(top.empty());
  EXPECT_EQ(ArgMax(logits), -1);
  logits[77] = -5;
  logits[78] = -std::numeric_limits<float>::infinity();
  TopTokens(logits, 3, &top);
  ASSERT_EQ(top.size(), 1u);
  EXPECT_EQ(ArgMax(logits), 77);
}

TEST(LogSumExpTest, AgreesWithDoublePrecision) {
  const std::vector<float> logits = RandomLogits(262144, 3);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  EXPECT_NEAR(LogSumExp(logits), std::log(sum), 1e-5);
}

}  // namespace
}  // namespace rumbo
