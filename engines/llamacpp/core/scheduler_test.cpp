#include "engines/llamacpp/core/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "base/status.h"
#include "engines/llamacpp/core/testing/fake_port.h"

namespace rumbo {
namespace {

// Advances a little at each reading, as if computing took time.
class TickingClock final : public Clock {
 public:
  TimePoint Now() const override {
    now_ += std::chrono::milliseconds(1);
    return now_;
  }

 private:
  mutable TimePoint now_{};
};

std::vector<TokenId> Range(TokenId from, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

std::vector<TokenId> Concat(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The answer of one request alone, from the definition of the fake model.
std::string Expected(std::vector<TokenId> prompt, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const TokenId token = FakePort::Next(prompt);
    text += " " + std::to_string(token);
    prompt.push_back(token);
  }
  return text;
}

// The same with FakePort::repeats.
std::string ExpectedRepeating(std::vector<TokenId> prompt, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const TokenId token = FakePort::NextRepeating(prompt);
    text += " " + std::to_string(token);
    prompt.push_back(token);
  }
  return text;
}

class SchedulerTest : public testing::TestWithParam<bool> {
 protected:
  void Make(uint32_t sessions, uint32_t per_session, uint32_t extra_sequences = 0, uint32_t window = 0) {
    PortTraits traits;
    traits.sequences = sessions + extra_sequences;
    traits.unified = GetParam();
    traits.context_total = sessions * per_session;
    traits.context_per_sequence = per_session;
    traits.batch = 512;
    traits.window = window;
    Make(sessions, per_session, traits);
  }
  void Make(uint32_t sessions, uint32_t per_session, const PortTraits& traits) {
    scheduler_.reset();
    port_ = std::make_unique<FakePort>(traits);
    SchedulerOptions options;
    options.sessions = sessions;
    options.context_per_session = per_session;
    options.prefill_chunk = 64;
    options.host_cache_bytes = host_bytes_;
    options.draft_tokens = draft_tokens_;
    scheduler_ = std::make_unique<Scheduler>(port_.get(), &clock_, options);
  }

  std::shared_ptr<FakeSink> Submit(std::vector<TokenId> prompt, uint32_t max_tokens,
                                   const std::string& owner = "") {
    Job job;
    job.id = ++last_id_;
    job.prompt = std::move(prompt);
    job.max_tokens = max_tokens;
    job.cache_key = owner;
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

  TickingClock clock_;
  std::unique_ptr<FakePort> port_;
  std::unique_ptr<Scheduler> scheduler_;
  uint64_t last_id_ = 0;
  uint64_t host_bytes_ = 0;
  uint32_t draft_tokens_ = 0;
};

TEST_P(SchedulerTest, AnswersEqualThoseOfEachPromptAlone) {
  Make(4, 256);
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (TokenId i = 0; i < 9; ++i)
    sinks.push_back(Submit(Range(10 * i + 1, 30 + static_cast<size_t>(7 * i)), 20));
  RunAll();
  for (TokenId i = 0; i < 9; ++i) {
    const auto& sink = *sinks[static_cast<size_t>(i)];
    EXPECT_EQ(sink.text, Expected(Range(10 * i + 1, 30 + static_cast<size_t>(7 * i)), 20)) << i;
    EXPECT_EQ(sink.finished.reason, "length");
    EXPECT_EQ(sink.finished.completion_tokens, 20u);
    EXPECT_EQ(sink.tokens, 20u);
    EXPECT_EQ(sink.ends, 1);
    EXPECT_EQ(sink.started_count, 1);
  }
  EXPECT_TRUE(scheduler_->idle());
}

TEST_P(SchedulerTest, SharedPrefixOfSimultaneousRequestsIsComputedOnce) {
  Make(8, 512);
  const std::vector<TokenId> shared = Range(1, 200);
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (TokenId i = 0; i < 8; ++i) sinks.push_back(Submit(Concat(shared, Range(300 + 20 * i, 10)), 5));
  RunAll();
  for (TokenId i = 0; i < 8; ++i) {
    EXPECT_EQ(sinks[static_cast<size_t>(i)]->text, Expected(Concat(shared, Range(300 + 20 * i, 10)), 5)) << i;
    EXPECT_EQ(sinks[static_cast<size_t>(i)]->finished.cached_tokens, i == 0 ? 0u : 200u);
  }
  EXPECT_EQ(port_->tokens_computed, 200 + 8 * 10 + 8 * 4);
}

TEST_P(SchedulerTest, PrefixIsNotSharedBetweenOwners) {
  Make(2, 512);
  const auto a = Submit(Range(1, 200), 5, "alice");
  const auto b = Submit(Range(1, 200), 5, "bob");
  RunAll();
  EXPECT_EQ(b->finished.cached_tokens, 0u);
  const auto again = Submit(Range(1, 200), 5, "carol");
  RunAll();
  EXPECT_EQ(again->finished.cached_tokens, 0u);
  EXPECT_EQ(again->text, a->text);
}

TEST_P(SchedulerTest, NestedPrefixesAreEachComputedOnce) {
  Make(4, 512);
  const auto x = Range(1, 100);
  const auto y = Range(200, 100);
  const std::vector<std::vector<TokenId>> prompts = {
      Concat(x, Range(400, 50)), Concat(Concat(x, y), Range(500, 9)), Concat(Concat(x, y), Range(600, 9))};
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (const auto& prompt : prompts) sinks.push_back(Submit(prompt, 3));
  RunAll();
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(sinks[i]->text, Expected(prompts[i], 3)) << i;
  EXPECT_EQ(port_->tokens_computed, 100 + 50 + 100 + 9 + 9 + 3 * 2u);
}

TEST_P(SchedulerTest, FollowersGoOnWhenTheirLeaderIsCancelled) {
  Make(4, 512);
  const auto leader = Submit(Concat(Range(1, 300), Range(700, 5)), 5);
  const auto follower = Submit(Concat(Range(1, 300), Range(800, 5)), 5);
  ASSERT_TRUE(scheduler_->Step());
  scheduler_->Cancel(1);
  EXPECT_EQ(leader->status.code(), absl::StatusCode::kCancelled);
  RunAll();
  EXPECT_EQ(follower->text, Expected(Concat(Range(1, 300), Range(800, 5)), 5));
  EXPECT_EQ(leader->ends, 1);
}

TEST_P(SchedulerTest, NextTurnReusesTheConversation) {
  Make(1, 512);
  const auto prompt = Range(1, 100);
  const auto first = Submit(prompt, 10);
  RunAll();
  std::vector<TokenId> next = prompt;
  for (int i = 0; i < 10; ++i) next.push_back(FakePort::Next(next));
  next = Concat(next, Range(900, 10));
  const uint64_t before = port_->tokens_computed;
  const auto second = Submit(next, 4);
  RunAll();
  EXPECT_EQ(second->text, Expected(next, 4));
  // The last token of the first answer was never computed.
  EXPECT_EQ(second->finished.cached_tokens, 109u);
  EXPECT_EQ(port_->tokens_computed - before, 1 + 10 + 3u);
}

TEST_P(SchedulerTest, AlternatingConversationsKeepTheirPrefixes) {
  Make(2, 512);
  for (int turn = 0; turn < 2; ++turn) {
    const auto a = Submit(Concat(Range(1, 200), Range(700 + turn, 5)), 4);
    RunAll();
    const auto b = Submit(Concat(Range(400, 200), Range(700 + turn, 5)), 4);
    RunAll();
    if (turn == 1) {
      EXPECT_EQ(a->finished.cached_tokens, 200u);
      EXPECT_EQ(b->finished.cached_tokens, 200u);
    }
  }
}

TEST_P(SchedulerTest, WindowedModelsReuseOnlyWhatTheWindowStillHolds) {
  Make(1, 512, 0, 32);
  port_->slack = 0;
  const auto first = Submit(Range(1, 200), 4);
  RunAll();
  const auto other = Submit(Concat(Range(1, 150), Range(700, 20)), 4);
  RunAll();
  EXPECT_EQ(other->finished.cached_tokens, 0u);  // positions 118 to 150 are gone
  EXPECT_EQ(other->text, Expected(Concat(Range(1, 150), Range(700, 20)), 4));
  port_->slack = 64;
  const auto third = Submit(Concat(Concat(Range(1, 150), Range(700, 20)), Range(800, 5)), 4);
  RunAll();
  EXPECT_EQ(third->text, Expected(Concat(Concat(Range(1, 150), Range(700, 20)), Range(800, 5)), 4));
}

TEST_P(SchedulerTest, CheckpointsReachBehindTheWindow) {
  host_bytes_ = 1 << 20;
  Make(1, 4096, 0, 32);
  const auto first = Submit(Range(1, 990), 4);
  RunAll();
  const auto other = Submit(Concat(Range(1, 800), Range(20, 20)), 4);
  RunAll();
  EXPECT_EQ(other->text, Expected(Concat(Range(1, 800), Range(20, 20)), 4));
  EXPECT_EQ(other->finished.cached_tokens, 512u);
}

TEST_P(SchedulerTest, RecurrentModelsGoBackToCheckpoints) {
  host_bytes_ = 1 << 20;
  PortTraits traits;
  traits.sequences = 1;
  traits.unified = GetParam();
  traits.context_total = traits.context_per_sequence = 4096;
  traits.batch = 512;
  traits.rewindable = false;
  Make(1, 4096, traits);
  const auto prompt = Range(1, 700);
  const auto first = Submit(prompt, 4);
  RunAll();
  // The same prompt again: the state at its end was kept, or that one token earlier.
  const auto again = Submit(prompt, 4);
  RunAll();
  EXPECT_EQ(again->text, Expected(prompt, 4));
  EXPECT_GE(again->finished.cached_tokens, 512u);
}

TEST_P(SchedulerTest, EvictedConversationComesBackFromHostMemory) {
  host_bytes_ = 1 << 20;
  Make(1, 512);
  Submit(Range(1, 200), 4);
  RunAll();
  Submit(Concat({1}, Range(400, 200)), 4);  // another conversation takes the only slot
  RunAll();
  std::vector<TokenId> next = Range(1, 200);
  for (int i = 0; i < 4; ++i) next.push_back(FakePort::Next(next));
  next.push_back(7);
  const uint64_t before = port_->tokens_computed;
  const auto back = Submit(next, 3);
  RunAll();
  EXPECT_EQ(back->text, Expected(next, 3));
  EXPECT_EQ(back->finished.cached_tokens, 203u);
  EXPECT_EQ(port_->tokens_computed - before, 2 + 2u);
}

TEST_P(SchedulerTest, HostMemoryIsNotSharedBetweenOwnersEither) {
  host_bytes_ = 1 << 20;
  Make(1, 512);
  Submit(Range(1, 200), 4, "alice");
  RunAll();
  Submit(Range(400, 200), 4, "bob");
  RunAll();
  const auto bob = Submit(Range(1, 200), 4, "bob");
  RunAll();
  EXPECT_EQ(bob->finished.cached_tokens, 0u);
}

TEST_P(SchedulerTest, GuessesSaveStepsAndChangeNothing) {
  draft_tokens_ = 8;
  Make(1, 2048);
  port_->repeats = true;
  const auto sink = Submit(Range(500, 30), 300);
  RunAll();
  port_->repeats = false;
  EXPECT_EQ(sink->tokens, 300u);
  EXPECT_LT(port_->decodes, 200);
  EXPECT_GT(sink->finished.accepted_tokens, 100u);
  EXPECT_EQ(sink->text, ExpectedRepeating(Range(500, 30), 300));
  // What is kept as cache is the answer, without guesses: the next turn is computed from it.
  std::vector<TokenId> next = Range(500, 30);
  std::stringstream words(sink->text);
  for (TokenId token; words >> token;) next.push_back(token);
  next.push_back(7);
  const auto turn = Submit(next, 5);
  RunAll();
  EXPECT_EQ(turn->text, Expected(next, 5));
  EXPECT_EQ(turn->finished.cached_tokens, 329u);
}

TEST_P(SchedulerTest, WrongGuessesAreTakenBack) {
  draft_tokens_ = 8;
  Make(3, 2048);
  // Prompts that repeat themselves, answers that do not.
  std::vector<std::shared_ptr<FakeSink>> sinks;
  std::vector<std::vector<TokenId>> prompts;
  for (TokenId i = 0; i < 3; ++i) {
    std::vector<TokenId> prompt;
    for (int k = 0; k < 300; ++k) prompt.push_back(1 + (k * 7 + i) % 40);
    prompts.push_back(prompt);
    sinks.push_back(Submit(prompt, 60));
  }
  RunAll();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sinks[i]->text, Expected(prompts[i], 60)) << i;
}

TEST_P(SchedulerTest, StreamsWithGapsAreMovedTogether) {
  host_bytes_ = 1 << 20;
  Make(6, 512);
  std::vector<std::shared_ptr<FakeSink>> sinks;
  // Every second one is short.
  for (TokenId i = 0; i < 6; ++i) sinks.push_back(Submit(Range(100 * i + 1, 20), i % 2 == 0 ? 5 : 120));
  RunAll();
  for (TokenId i = 0; i < 6; ++i) {
    EXPECT_EQ(sinks[static_cast<size_t>(i)]->text, Expected(Range(100 * i + 1, 20), i % 2 == 0 ? 5 : 120))
        << i;
  }
  EXPECT_EQ(port_->restores > 0, !GetParam());
}

// Copies between streams are made by the next Decode; what is restored before must not be mixed up with them.
TEST_P(SchedulerTest, StatesComeBackWhileACopyWaits) {
  host_bytes_ = 1 << 20;
  Make(2, 512);
  const auto gone = Range(1, 200), x = Range(500, 200);
  Submit(gone, 4);
  RunAll();
  Submit(Range(300, 200), 4);
  RunAll();
  Submit(x, 4);  // `gone` leaves for host memory
  RunAll();
  // One takes less than half of x, by a copy; the other comes back into the slot of x.
  const auto part = Concat({x.begin(), x.begin() + 90}, Range(10, 20));
  const auto back = Concat(gone, Range(700, 5));
  const auto a = Submit(part, 4);
  const auto b = Submit(back, 4);
  RunAll();
  EXPECT_EQ(a->text, Expected(part, 4));
  EXPECT_EQ(a->finished.cached_tokens, 90u);
  EXPECT_EQ(b->text, Expected(back, 4));
}

TEST_P(SchedulerTest, SharingWorksInsideAWindow) {
  Make(4, 512, 0, 64);
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (TokenId i = 0; i < 4; ++i) sinks.push_back(Submit(Concat(Range(1, 200), Range(300 + 20 * i, 100)), 5));
  RunAll();
  for (TokenId i = 0; i < 4; ++i) {
    EXPECT_EQ(sinks[static_cast<size_t>(i)]->text,
              Expected(Concat(Range(1, 200), Range(300 + 20 * i, 100)), 5));
  }
  EXPECT_EQ(sinks[3]->finished.cached_tokens, 200u);
}

TEST_P(SchedulerTest, RecurrentModelsShareOnlyWholeStates) {
  PortTraits traits;
  traits.sequences = 2;
  traits.unified = GetParam();
  traits.context_total = 1024;
  traits.context_per_sequence = 512;
  traits.batch = 512;
  traits.rewindable = false;
  Make(2, 512, traits);
  const auto a = Submit(Concat(Range(1, 100), Range(300, 10)), 5);
  const auto b = Submit(Concat(Range(1, 100), Range(400, 10)), 5);
  RunAll();
  EXPECT_EQ(a->text, Expected(Concat(Range(1, 100), Range(300, 10)), 5));
  EXPECT_EQ(b->text, Expected(Concat(Range(1, 100), Range(400, 10)), 5));
  EXPECT_EQ(b->finished.cached_tokens, 100u);
}

TEST_P(SchedulerTest, PromptThatFillsTheContextIsRefused) {
  Make(2, 64);
  const auto sink = Submit(Range(1, 64), 1);
  EXPECT_EQ(ReasonOf(sink->status), Reason::kPromptTooLong);
  EXPECT_EQ(sink->ends, 1);
  const auto fits = Submit(Range(1, 63), 100);
  RunAll();
  EXPECT_EQ(fits->finished.reason, "context");
  EXPECT_EQ(fits->tokens, 1u);
}

// Four requests on a cache that holds two at a time: all finish, none with an error.
TEST_P(SchedulerTest, RequestsWaitUntilTheirShareIsFree) {
  PortTraits traits;
  traits.sequences = 4;
  traits.unified = true;
  traits.context_total = 256;
  traits.context_per_sequence = 256;
  traits.batch = 512;
  Make(4, 256, traits);
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (TokenId i = 0; i < 4; ++i) sinks.push_back(Submit(Range(100 * i + 1, 60), 60));
  ASSERT_TRUE(scheduler_->Step());
  EXPECT_EQ(scheduler_->stats().running, 2u);
  EXPECT_EQ(scheduler_->stats().waiting, 2u);
  RunAll();
  for (TokenId i = 0; i < 4; ++i) {
    EXPECT_TRUE(sinks[static_cast<size_t>(i)]->status.ok());
    EXPECT_EQ(sinks[static_cast<size_t>(i)]->text, Expected(Range(100 * i + 1, 60), 60));
  }
}

TEST_P(SchedulerTest, CancelFreesTheSlotAtOnce) {
  Make(1, 512);
  const auto first = Submit(Range(1, 300), 100);
  const auto second = Submit(Range(400, 10), 2);
  ASSERT_TRUE(scheduler_->Step());
  scheduler_->Cancel(1);
  EXPECT_EQ(first->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(scheduler_->stats().running, 0u);
  ASSERT_TRUE(scheduler_->Step());
  EXPECT_EQ(second->tokens, 1u);
}

TEST_P(SchedulerTest, WaitingRequestCanBeCancelled) {
  Make(1, 512);
  const auto first = Submit(Range(1, 30), 3);
  const auto second = Submit(Range(400, 10), 2);
  scheduler_->Cancel(2);
  EXPECT_EQ(second->status.code(), absl::StatusCode::kCancelled);
  RunAll();
  EXPECT_EQ(second->tokens, 0u);
  EXPECT_EQ(first->tokens, 3u);
}

TEST_P(SchedulerTest, SlowClientPausesOnlyItself) {
  Make(2, 512);
  const auto slow = Submit(Range(1, 10), 50);
  const auto fast = Submit(Range(400, 10), 50);
  slow->full = true;
  RunAll();
  EXPECT_EQ(slow->tokens, 1u);
  EXPECT_EQ(fast->tokens, 50u);
  slow->full = false;
  scheduler_->Resume(1);
  RunAll();
  EXPECT_EQ(slow->text, Expected(Range(1, 10), 50));
}

TEST_P(SchedulerTest, FailedComputationEndsItsRequestsAndServiceGoesOn) {
  Make(2, 512);
  const auto doomed = Submit(Range(1, 10), 50);
  port_->fail_next = true;
  RunAll();
  EXPECT_EQ(doomed->status.code(), absl::StatusCode::kInternal);
  const auto next = Submit(Range(1, 10), 5);
  RunAll();
  EXPECT_EQ(next->text, Expected(Range(1, 10), 5));
}

TEST_P(SchedulerTest, LongPromptIsReadInChunksWhileAnswersRun) {
  Make(2, 4096);
  const auto chat = Submit(Range(1, 10), 200);
  ASSERT_TRUE(scheduler_->Step());
  Submit(Range(1, 900), 1);
  const uint32_t before = chat->tokens;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(scheduler_->Step());
  EXPECT_EQ(chat->tokens, before + 10);
}

// Streams of prompts that lie between those of answers must not tear the answers' pass apart.
TEST_P(SchedulerTest, AnswersStayInOnePassWhilePromptsBetweenThemAreRead) {
  if (GetParam()) GTEST_SKIP() << "one pool of cells is always one pass";
  Make(8, 512);
  std::vector<std::shared_ptr<FakeSink>> sinks;
  // Every second one has a long prompt: short ones are read first and answer while those between are read.
  const auto prompt = [](TokenId i) { return Range(100 * i + 1, i % 2 == 1 ? 300 : 20); };
  for (TokenId i = 0; i < 8; ++i) sinks.push_back(Submit(prompt(i), 40));
  int torn = 0;
  port_->on_decode = [&](std::span<const BatchToken> batch) {
    const auto answers =
        std::count_if(batch.begin(), batch.end(), [](const BatchToken& t) { return t.output; });
    const auto ids = batch.back().sequence - batch.front().sequence + 1;
    torn += answers > 1 && scheduler_->stats().running == 8 && static_cast<size_t>(ids) != batch.size();
  };
  RunAll();
  EXPECT_EQ(torn, 0);
  for (TokenId i = 0; i < 8; ++i)
    EXPECT_EQ(sinks[static_cast<size_t>(i)]->text, Expected(prompt(i), 40)) << i;
}

// A model whose steps take time: `fixed` and `per_token` ms. Gaps between the tokens of each answer.
class TimedSchedulerTest : public testing::Test {
 protected:
  class Timed final : public Clock {
   public:
    TimePoint Now() const override { return now; }
    TimePoint now{};
  };
  class GapSink final : public GenerateSink {
   public:
    explicit GapSink(const Clock* clock) : clock_(clock) {}
    bool OnChunk(ChunkEvent&) override {
      const auto now = clock_->Now();
      if (last_ != Clock::TimePoint{})
        gaps.push_back(std::chrono::duration<double, std::milli>(now - last_).count());
      last_ = now;
      if (first == Clock::TimePoint{}) first = now;
      return true;
    }
    void OnStarted(const StartedEvent&) override {}
    void OnEnd(const absl::Status&, const FinishedEvent*) override { end = clock_->Now(); }
    std::vector<double> gaps;
    Clock::TimePoint first{}, end{};

   private:
    const Clock* const clock_;
    Clock::TimePoint last_{};
  };

  void Make(uint32_t sessions, double fixed, double per_token, double per_output) {
    PortTraits traits;
    traits.sequences = sessions;
    traits.context_per_sequence = 8192;
    traits.context_total = sessions * 8192;
    traits.batch = 512;
    port_ = std::make_unique<FakePort>(traits);
    port_->on_decode = [=, this](std::span<const BatchToken> batch) {
      double ms = fixed;
      for (const BatchToken& token : batch) ms += per_token + (token.output ? per_output : 0);
      clock_.now += std::chrono::duration_cast<Clock::TimePoint::duration>(
          std::chrono::duration<double, std::milli>(ms));
    };
    SchedulerOptions options;
    options.sessions = sessions;
    options.context_per_session = 8192;
    scheduler_ = std::make_unique<Scheduler>(port_.get(), &clock_, options);
  }
  std::shared_ptr<GapSink> Submit(TokenId seed, size_t length, uint32_t max_tokens) {
    Job job;
    job.id = ++last_id_;
    for (size_t i = 0; i < length; ++i)
      job.prompt.push_back(1 + static_cast<TokenId>((i * i + static_cast<size_t>(seed) * 37) % 900));
    job.prompt[0] = seed;
    job.max_tokens = max_tokens;
    job.sampler = std::make_unique<FakeSampler>();
    job.submitted = clock_.Now();
    auto sink = std::make_shared<GapSink>(&clock_);
    job.sink = sink;
    scheduler_->Submit(std::move(job));
    return sink;
  }
  static double Percentile(std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  }
  static std::vector<double> AllGaps(const std::vector<std::shared_ptr<GapSink>>& sinks) {
    std::vector<double> gaps;
    for (const auto& sink : sinks) gaps.insert(gaps.end(), sink->gaps.begin(), sink->gaps.end());
    return gaps;
  }

  Timed clock_;
  std::unique_ptr<FakePort> port_;
  std::unique_ptr<Scheduler> scheduler_;
  uint64_t last_id_ = 0;
};

// Like the first, each later burst is read in long steps, and yet few tokens are late.
TEST_F(TimedSchedulerTest, EveryBurstOfPromptsIsReadQuickly) {
  Make(16, 10, 1, 2);
  constexpr double kReading = 16 * 100 * 1.0;
  for (int round = 0; round < 5; ++round) {
    const auto begin = clock_.Now();
    std::vector<std::shared_ptr<GapSink>> sinks;
    for (TokenId i = 0; i < 16; ++i) sinks.push_back(Submit(20 * round + i + 1, 100, 64));
    while (scheduler_->Step()) {
    }
    std::vector<double> first;
    for (const auto& sink : sinks)
      first.push_back(std::chrono::duration<double, std::milli>(sink->first - begin).count());
    EXPECT_LT(Percentile(first, 1), 1.4 * kReading) << round;
    EXPECT_LT(Percentile(first, 0.5), 0.85 * kReading) << round;
    EXPECT_LT(Percentile(AllGaps(sinks), 0.95), 2 * (10 + 16 * 3.0)) << round;
  }
}

TEST_F(TimedSchedulerTest, LongPromptDelaysFewTokensOfShortChats) {
  Make(9, 10, 1, 2);
  const double alone = 10 + 8 * 3.0;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<GapSink>> chats;
    for (TokenId i = 0; i < 8; ++i) chats.push_back(Submit(20 * round + i + 1, 20, 64));
    for (int i = 0; i < 4; ++i) scheduler_->Step();
    const auto longer = Submit(500 + round, 6000, 1);
    while (scheduler_->Step()) {
    }
    EXPECT_LE(Percentile(AllGaps(chats), 0.95), 2.05 * alone + 10)
        << round;  // + 10: reading is a pass of its own
    EXPECT_LT(Percentile(AllGaps(chats), 1), 700) << round;
    EXPECT_EQ(longer->gaps.size(), 0u);
  }
}

TEST_P(SchedulerTest, FullQueueIsRefusedWithRetryTime) {
  PortTraits traits;
  traits.sequences = 1;
  traits.unified = GetParam();
  traits.context_total = traits.context_per_sequence = 512;
  traits.batch = 512;
  port_ = std::make_unique<FakePort>(traits);
  SchedulerOptions options;
  options.context_per_session = 512;
  options.prefill_chunk = 64;
  options.max_waiting = 2;
  scheduler_ = std::make_unique<Scheduler>(port_.get(), &clock_, options);
  Submit(Range(1, 5), 5);
  Submit(Range(1, 5), 5);
  const auto refused = Submit(Range(1, 5), 5);
  EXPECT_EQ(ReasonOf(refused->status), Reason::kQueueFull);
  EXPECT_TRUE(RetryAfterOf(refused->status).has_value());
}

INSTANTIATE_TEST_SUITE_P(Memory, SchedulerTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Unified" : "Streams"; });

TEST(StepModelTest, StepsAreAtMostTwiceAsLongUnlessTheyMayBeLong) {
  StepModel model(512);
  for (int i = 0; i < 20; ++i) {
    model.AddDecode(8, 40);
    model.AddDecode(1, 12);
    model.AddPrefill(512, 400);
    model.AddPrefill(32, 12 + 25);
  }
  EXPECT_NEAR(model.decode_ms(8), 40, 2);
  EXPECT_EQ(model.PrefillTokens(0, false), 512u);
  EXPECT_EQ(model.PrefillTokens(8, true), 512u);
  EXPECT_NEAR(model.PrefillTokens(8, false), 28u, 4);  // 34 ms: a pass of 12 and 0.78 a token
  EXPECT_FALSE(model.IsLong(8, 79));
  EXPECT_TRUE(model.IsLong(8, 85));
  EXPECT_FALSE(model.IsLong(0, 500));
}

// Beside one quick answer a few tokens of a prompt would cost a pass each.
TEST(StepModelTest, FewTokensThatCostAPassWaitForALongStep) {
  StepModel model(512);
  for (int i = 0; i < 20; ++i) {
    model.AddDecode(1, 12);
    model.AddPrefill(512, 400);
  }
  EXPECT_EQ(model.PrefillTokens(1, false), 0u);
  EXPECT_EQ(model.PrefillTokens(1, true), 512u);
}

TEST(StepModelTest, SlowModelsAreNotStalledLongerThanTheLimit) {
  StepModel model(512);
  model.AddDecode(1, 200);
  model.AddPrefill(512, 10240);                  // 20 ms a token
  EXPECT_EQ(model.PrefillTokens(1, true), 32u);  // the floor; 25 would be half a second
}

}  // namespace
}  // namespace rumbo
