#include "engines/llamacpp/core/embed_queue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/status.h"

namespace rumbo {
namespace {

// The row of a token is (token, position, 1), that of an input (tokens it saw, last token, 0).
class CountingPort final : public EmbedPort {
 public:
  EmbedTraits traits_{.step_tokens = 8, .sequences = 4, .input_tokens = 20, .width = 3};
  bool fails = false;
  float spoil = 0;
  std::vector<size_t> batches;

  const EmbedTraits& traits() const override { return traits_; }
  bool Compute(std::span<const BatchToken> batch) override {
    batches.push_back(batch.size());
    EXPECT_LE(batch.size(), traits_.step_tokens);
    rows_.clear();
    std::map<SequenceId, int> seen;
    for (const BatchToken& t : batch) {
      EXPECT_TRUE(t.output);
      EXPECT_EQ(t.position, held_[t.sequence]++) << "positions must go on";
      rows_.push_back({static_cast<float>(t.token) + spoil, static_cast<float>(t.position), 1});
      last_[t.sequence] = {static_cast<float>(held_[t.sequence]), static_cast<float>(t.token), 0};
      seen[t.sequence] = 1;
    }
    EXPECT_LE(seen.size(), traits_.sequences);
    return !fails;
  }
  const float* TokenRow(size_t i) override { return rows_.at(i).data(); }
  const float* InputRow(SequenceId s) override { return last_.at(s).data(); }
  void Clear() override { held_.clear(); }

 private:
  std::vector<std::vector<float>> rows_;
  std::map<SequenceId, std::vector<float>> last_;
  std::map<SequenceId, int> held_;
};

using Vectors = std::vector<std::vector<float>>;

class EmbedQueueTest : public testing::Test {
 protected:
  CountingPort port_;
  EmbedQueue queue_{&port_};
  std::map<uint64_t, absl::StatusOr<Vectors>> results_;
  std::vector<uint64_t> order_;

  void Submit(uint64_t id, std::vector<std::vector<TokenId>> inputs, Pooling pooling,
              bool normalize = false) {
    EmbedJob job;
    job.id = id;
    job.inputs = std::move(inputs);
    job.pooling = pooling;
    job.normalize = normalize;
    job.done = [this, id](absl::StatusOr<Vectors> result) {
      EXPECT_FALSE(results_.contains(id));
      results_.emplace(id, std::move(result));
      order_.push_back(id);
    };
    queue_.Submit(std::move(job));
  }
  void RunAll() {
    for (int i = 0; i < 1000 && queue_.Step(); ++i) {
    }
  }
};

TEST_F(EmbedQueueTest, PoolsRowsAsAskedFor) {
  Submit(1, {{10, 20, 30}}, Pooling::kMean);
  Submit(2, {{10, 20, 30}}, Pooling::kCls);
  RunAll();
  Submit(3, {{10, 20, 30}}, Pooling::kLast);
  RunAll();
  EXPECT_EQ(*results_.at(1), (Vectors{{20, 1, 1}}));
  EXPECT_EQ(*results_.at(2), (Vectors{{10, 0, 1}}));
  EXPECT_EQ(*results_.at(3), (Vectors{{30, 2, 1}}));
}

TEST_F(EmbedQueueTest, UnitLengthOnlyWhereAskedFor) {
  Submit(1, {{3, 3}}, Pooling::kCls, true);
  RunAll();
  const auto& v = results_.at(1)->front();
  EXPECT_NEAR(v[0], 3 / std::sqrt(10.0), 1e-6);
  EXPECT_NEAR(v[0] * v[0] + v[1] * v[1] + v[2] * v[2], 1, 1e-6);
}

TEST_F(EmbedQueueTest, InputsOfSeveralCallsShareABatch) {
  Submit(1, {{1, 1}, {2, 2}}, Pooling::kMean);
  Submit(2, {{3, 3}, {4, 4}}, Pooling::kMean);
  RunAll();
  EXPECT_EQ(port_.batches, (std::vector<size_t>{8}));
  EXPECT_EQ(*results_.at(1), (Vectors{{1, 0.5, 1}, {2, 0.5, 1}}));
  EXPECT_EQ(*results_.at(2), (Vectors{{3, 0.5, 1}, {4, 0.5, 1}}));
}

TEST_F(EmbedQueueTest, ShortCallDoesNotWaitForALongOne) {
  Submit(1, std::vector<std::vector<TokenId>>(100, {1, 2, 3, 4}), Pooling::kMean);
  Submit(2, {{5}}, Pooling::kMean);
  queue_.Step();
  queue_.Step();
  ASSERT_TRUE(results_.contains(2));
  EXPECT_FALSE(results_.contains(1));
  RunAll();
  EXPECT_EQ(results_.at(1)->size(), 100u);
}

TEST_F(EmbedQueueTest, LongInputGoesOverSeveralBatches) {
  std::vector<TokenId> input(20);
  for (int i = 0; i < 20; ++i) input[static_cast<size_t>(i)] = i;
  Submit(1, {{7}, input, {9}}, Pooling::kMean);
  Submit(2, {input}, Pooling::kRank);
  Submit(3, {input}, Pooling::kLast);
  RunAll();
  EXPECT_EQ(*results_.at(1), (Vectors{{7, 0, 1}, {9.5, 9.5, 1}, {9, 0, 1}}));
  EXPECT_EQ(*results_.at(2), (Vectors{{20, 19, 0}}));
  EXPECT_EQ(*results_.at(3), (Vectors{{19, 19, 1}}));
}

TEST_F(EmbedQueueTest, CancelledCallsEndAtOnceAndOthersGoOn) {
  Submit(1, {std::vector<TokenId>(20, 1)}, Pooling::kMean);
  Submit(2, {{5}}, Pooling::kCls);
  queue_.Step();
  queue_.Cancel(1);
  EXPECT_EQ(ReasonOf(results_.at(1).status()), Reason::kCancelled);
  queue_.Cancel(77);
  RunAll();
  EXPECT_EQ(*results_.at(2), (Vectors{{5, 0, 1}}));
}

TEST_F(EmbedQueueTest, FailureEndsTheJobsOfTheBatchAndNoOthers) {
  Submit(1, {{1, 2, 3, 4}, {1, 2, 3, 4}}, Pooling::kMean);
  port_.fails = true;
  queue_.Step();
  port_.fails = false;
  EXPECT_FALSE(results_.at(1).ok());
  Submit(2, {{5}}, Pooling::kCls);
  RunAll();
  EXPECT_TRUE(results_.at(2).ok());
}

TEST_F(EmbedQueueTest, ValuesThatAreNoNumbersAreAnError) {
  port_.spoil = std::numeric_limits<float>::quiet_NaN();
  Submit(1, {{1}, {2}}, Pooling::kMean);
  RunAll();
  EXPECT_FALSE(results_.at(1).ok());
}

}  // namespace
}  // namespace rumbo
