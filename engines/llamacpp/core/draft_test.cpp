// Guesses that come from the port: heads of the model, or a smaller one.
#include <gtest/gtest.h>

#include "engines/llamacpp/core/scheduler.h"
#include "engines/llamacpp/core/testing/fake_port.h"

namespace rumbo {
namespace {

// A clock whose steps the port chooses: guesses may be cheap or dear.
class SetClock final : public Clock {
 public:
  TimePoint Now() const override { return now; }
  TimePoint now{};
};

// Guesses what the model will say; every `wrong_every`th guess is wrong.
class DraftingPort final : public FakePort {
 public:
  DraftingPort(const PortTraits& traits, SetClock* clock)
      : FakePort(traits), clock_(clock), seen_(traits.sequences) {}

  bool drafts() const override { return true; }
  DecodeResult Decode(std::span<const BatchToken> batch) override {
    for (const BatchToken& token : batch) {
      auto& tokens = seen_[static_cast<size_t>(token.sequence)];
      tokens.resize(static_cast<size_t>(token.position));
      tokens.push_back(token.token);
    }
    clock_->now += std::chrono::microseconds(10000 + 100 * batch.size());
    return FakePort::Decode(batch);
  }
  void Draft(std::span<DraftWish> wishes) override {
    for (DraftWish& wish : wishes) {
      std::vector<TokenId> tokens = seen_[static_cast<size_t>(wish.sequence)];
      EXPECT_EQ(tokens.size(), static_cast<size_t>(wish.position));
      tokens.push_back(wish.last);
      for (uint32_t i = 0; i < wish.most; ++i) {
        const bool wrong = wrong_every > 0 && ++guesses % wrong_every == 0;
        wish.tokens.push_back(wrong ? 1 : Next(tokens));
        tokens.push_back(wish.tokens.back());
      }
    }
    clock_->now += guess_cost;
  }
  bool Truncate(SequenceId sequence, uint32_t length) override {
    auto& tokens = seen_[static_cast<size_t>(sequence)];
    tokens.resize(std::min<size_t>(tokens.size(), length));
    return FakePort::Truncate(sequence, length);
  }
  void Accepted(SequenceId, uint32_t count) override { accepted += count; }
  void StopDrafting(SequenceId) override { ++stopped; }

  uint32_t wrong_every = 0;
  std::chrono::microseconds guess_cost{100};
  uint32_t guesses = 0, accepted = 0, stopped = 0;

 private:
  SetClock* const clock_;
  std::vector<std::vector<TokenId>> seen_;
};

class DraftTest : public testing::Test {
 protected:
  void Make(uint32_t sessions, bool rewindable = true, uint32_t rollback = 0) {
    PortTraits traits;
    traits.sequences = sessions;
    traits.context_total = sessions * 512;
    traits.context_per_sequence = 512;
    traits.batch = 512;
    traits.unified = true;
    traits.rewindable = rewindable;
    traits.rollback = rollback;
    port_ = std::make_unique<DraftingPort>(traits, &clock_);
    SchedulerOptions options;
    options.sessions = sessions;
    options.context_per_session = 512;
    options.prefill_chunk = 64;
    options.draft_tokens = 4;
    scheduler_ = std::make_unique<Scheduler>(port_.get(), &clock_, options);
  }
  std::shared_ptr<FakeSink> Submit(std::vector<TokenId> prompt, uint32_t max_tokens) {
    Job job;
    job.id = ++last_id_;
    job.prompt = std::move(prompt);
    job.max_tokens = max_tokens;
    job.sampler = std::make_unique<FakeSampler>();
    job.submitted = clock_.Now();
    auto sink = std::make_shared<FakeSink>();
    job.sink = sink;
    scheduler_->Submit(std::move(job));
    return sink;
  }
  void RunAll() {
    int steps = 0;
    while (scheduler_->Step()) ASSERT_LT(++steps, 10000);
  }
  static std::string Expected(std::vector<TokenId> prompt, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      prompt.push_back(FakePort::Next(prompt));
      text += " " + std::to_string(prompt.back());
    }
    return text;
  }

  SetClock clock_;
  std::unique_ptr<DraftingPort> port_;
  std::unique_ptr<Scheduler> scheduler_;
  uint64_t last_id_ = 0;
};

TEST_F(DraftTest, GuessesChangeNoAnswerAndSaveSteps) {
  for (const uint32_t wrong_every : {0u, 3u, 1u}) {
    Make(3);
    port_->wrong_every = wrong_every;
    const auto a = Submit({1, 2, 3}, 60), b = Submit({4, 5}, 40), c = Submit({6}, 50);
    RunAll();
    EXPECT_EQ(a->text, Expected({1, 2, 3}, 60)) << wrong_every;
    EXPECT_EQ(b->text, Expected({4, 5}, 40));
    EXPECT_EQ(c->text, Expected({6}, 50));
    // Guesses that were right but lie behind an answer's end are nobody's tokens.
    EXPECT_LE(a->finished.accepted_tokens + b->finished.accepted_tokens + c->finished.accepted_tokens,
              port_->accepted);
    if (wrong_every == 0) {
      EXPECT_LT(port_->decodes, 25);
    }
  }
}

TEST_F(DraftTest, DearGuessesAreNotMade) {
  Make(1);
  port_->guess_cost = std::chrono::milliseconds(500);
  const auto a = Submit({1, 2, 3}, 200);
  RunAll();
  EXPECT_EQ(a->text, Expected({1, 2, 3}, 200));
  EXPECT_LE(a->finished.drafted_tokens, 8u);
  EXPECT_EQ(port_->stopped, 1u);
}

TEST_F(DraftTest, BadGuessesAreNoLongerMade) {
  Make(1);
  port_->wrong_every = 1;
  port_->guess_cost = std::chrono::milliseconds(3);
  const auto a = Submit({1, 2, 3}, 200);
  RunAll();
  EXPECT_LT(a->finished.drafted_tokens, 40u);
  EXPECT_EQ(a->finished.accepted_tokens, 0u);
  EXPECT_EQ(port_->stopped, 1u);
}

TEST_F(DraftTest, RecurrentModelsGuessAsFarAsTheyCanGoBack) {
  Make(1, false, 0);
  Submit({1, 2, 3}, 30);
  RunAll();
  EXPECT_EQ(port_->guesses, 0u);
  Make(1, false, 2);
  size_t largest = 0;
  port_->on_decode = [&](std::span<const BatchToken> batch) {
    if (batch.front().position > 2) largest = std::max(largest, batch.size());
  };
  Submit({1, 2, 3}, 30);
  RunAll();
  EXPECT_EQ(largest, 3u);
}

}  // namespace
}  // namespace rumbo
