// What a dying, hanging or failing engine costs, and what is done about it.
#include <gtest/gtest.h>

#include "tests/fakes/core_world.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CoreWorld;

class CoreCrashTest : public ::testing::Test {
 protected:
  CoreCrashTest() { world.AddModel("a"); }
  InferenceRequest OneSession() {
    InferenceRequest request = world.Request("a");
    request.workload.sessions = 1;
    return request;
  }
  CoreWorld world{4};
};

TEST_F(CoreCrashTest, CrashBeforeTheFirstTokenIsReplayedOnceOnAFreshProcess) {
  world.Start();
  auto call = world.Ask("a");
  world.launcher.last().open_reply().Start();  // the client knows that it began, no more
  world.launcher.last().Crash();
  world.Advance(milliseconds(1));
  ASSERT_EQ(world.launcher.processes.size(), 2u);
  EXPECT_FALSE(call->ended());
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(call->status.ok()) << call->status;
  EXPECT_EQ(call->started, 1) << "the client hears one beginning";
  EXPECT_EQ(call->tokens, 3u);
  EXPECT_EQ(world.InstanceOf("a")->restarts, 1u);
}

TEST_F(CoreCrashTest, ReplayWorksWhicheverIsKnownFirstTheExitOrTheBrokenStream) {
  for (const bool replies_first : {true, false}) {
    CoreWorld w(4);
    w.AddModel("a");
    w.Start();
    auto call = w.Ask("a");
    w.launcher.last().Crash(replies_first);
    w.Advance(milliseconds(1));
    ASSERT_EQ(w.launcher.processes.size(), 2u);
    w.Answer3(w.launcher.last().open_reply());
    EXPECT_TRUE(call->status.ok()) << call->status;
    EXPECT_EQ(w.Status().running_requests, 0u);
  }
}

TEST_F(CoreCrashTest, SecondCrashEndsTheRequest) {
  world.Start();
  auto call = world.Ask("a");
  world.launcher.last().Crash();
  world.Advance(milliseconds(1));
  world.launcher.last().Crash();
  world.Advance(seconds(1));
  EXPECT_EQ(call->ends, 1);
  EXPECT_EQ(call->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(call->status), Reason::kEngineCrashed);
  EXPECT_EQ(world.Status().running_requests, 0u);
}

TEST_F(CoreCrashTest, CrashAfterTheFirstTokenSaysHowFarItGot) {
  world.Start();
  auto call = world.Ask("a");
  FakeReply& reply = world.launcher.last().open_reply();
  reply.Token();
  reply.Token();
  world.launcher.last().Crash();
  world.Advance(seconds(1));
  EXPECT_EQ(call->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(MessageOf(call->status).find("after 2 tokens"), std::string::npos) << call->status;
  EXPECT_EQ(call->tokens, 2u);
  EXPECT_EQ(call->ends, 1);
  EXPECT_EQ(world.launcher.processes.size(), 1u) << "nobody wants it: no restart";
}

// Text can come without a counted token: what was shown must not be shown twice.
TEST_F(CoreCrashTest, TextWithoutTokensIsNotReplayed) {
  world.Start();
  auto call = world.Ask("a");
  FakeProcess& process = world.launcher.last();
  process.open_reply().Start();
  process.open_reply().Text("shown");
  process.Crash();
  world.Advance(seconds(1));
  EXPECT_EQ(call->ends, 1);
  EXPECT_EQ(call->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(world.launcher.processes.size(), 1u);
}

TEST_F(CoreCrashTest, ReplaysKeepTheOrderOfArrival) {
  world.Start();
  std::vector<CoreWorld::Call> calls;
  for (int i = 0; i < 4; ++i) {  // four sessions by default
    calls.push_back(world.Ask("a"));
    world.Advance(milliseconds(1));
  }
  InferenceRequest one = world.Request("a");
  auto fifth = world.Ask(one);
  ASSERT_EQ(world.launcher.last().open_replies(), 4u);
  world.launcher.last().Crash();
  world.Advance(milliseconds(1));
  FakeProcess& again = world.launcher.last();
  ASSERT_EQ(again.open_replies(), 4u);
  for (int i = 0; i < 4; ++i) {
    again.open_reply().Finish();
    world.Run();
    EXPECT_TRUE(calls[i]->ended()) << i;
  }
  EXPECT_FALSE(fifth->ended());
}

TEST_F(CoreCrashTest, NothingIsSentToAProcessThatIsKnownToBeDying) {
  world.Start();
  auto first = world.Ask(OneSession());
  auto second = world.Ask(OneSession());
  FakeProcess& process = world.launcher.last();
  process.open_reply().Token();
  process.CrashReplies();  // its exit is not known yet
  world.Run();
  EXPECT_TRUE(first->ended());
  EXPECT_EQ(process.replies.size(), 1u) << "the second one would only lose its replay";
  process.Crash();
  world.Advance(milliseconds(1));
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(second->status.ok());
}

TEST_F(CoreCrashTest, ProcessThatDropsARequestAndLivesOnIsEnded) {
  world.Start();
  auto call = world.Ask("a");
  FakeProcess& process = world.launcher.last();
  process.CrashReplies();
  world.Advance(seconds(1));
  EXPECT_TRUE(process.alive());
  world.Advance(seconds(2));
  EXPECT_FALSE(process.alive());
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(call->status.ok()) << call->status;
}

// The stream of the dead process may be heard of only when the next one runs already.
TEST_F(CoreCrashTest, LateNewsOfADeadProcessDoNotHarmItsSuccessor) {
  world.Start();
  auto first = world.Ask("a");
  auto second = world.Ask("a");
  FakeProcess& dead = world.launcher.last();
  dead.open_reply(0).Token();
  dead.ExitAlone(Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed, "gone"));
  world.Run();
  auto third = world.Ask("a");
  world.Advance(milliseconds(1));
  FakeProcess& fresh = world.launcher.last();
  ASSERT_NE(&fresh, &dead);
  ASSERT_EQ(fresh.open_replies(), 1u);
  dead.CrashReplies();
  world.Advance(seconds(10));
  EXPECT_TRUE(fresh.alive());
  EXPECT_EQ(ReasonOf(first->status), Reason::kEngineCrashed);
  EXPECT_EQ(fresh.open_replies(), 2u) << "the second one is replayed";
  EXPECT_FALSE(third->ended());
}

TEST_F(CoreCrashTest, CancelDuringACrashEndsTheRequestInsteadOfReplayingIt) {
  world.Start();
  auto call = world.Ask("a");
  world.launcher.last().CrashReplies();  // the end of the attempt is on its way
  call.Cancel();
  world.Run();
  EXPECT_EQ(call->ends, 1);
  EXPECT_EQ(call->status.code(), absl::StatusCode::kCancelled) << call->status;
  world.launcher.last().Crash();
  world.Advance(seconds(1));
  EXPECT_EQ(world.launcher.processes.size(), 1u);
}

// ---- Failing loads ----

TEST_F(CoreCrashTest, FirstLoadThatFailsIsToldToAllWhoWaitAtOnce) {
  world.launcher.auto_ready = false;
  world.Start();
  auto call = world.Ask("a");
  auto load = world.Load("a");
  world.launcher.last().Exit(
      Error(absl::StatusCode::kFailedPrecondition, Reason::kModelInvalid, "bad tensor"));
  world.Run();
  EXPECT_EQ(ReasonOf(call->status), Reason::kModelInvalid);
  EXPECT_NE(MessageOf(call->status).find("a: bad tensor"), std::string::npos) << call->status;
  EXPECT_EQ(ReasonOf(load.status()), Reason::kModelInvalid);
  EXPECT_EQ(world.InstanceOf("a")->state, InstanceState::kFailed);
  EXPECT_EQ(world.InstanceOf("a")->reason, "bad tensor");
  world.Advance(seconds(61));
  EXPECT_FALSE(world.InstanceOf("a")) << "forgotten";
}

TEST_F(CoreCrashTest, CrashLoopBacksOffThenRestsAndSaysWhenToRetry) {
  world.launcher.auto_ready = false;
  world.Start();
  std::vector<milliseconds> delays;
  for (int i = 0; i < 5; ++i) {
    const TimePoint asked = world.Now();
    auto call = world.Ask("a");
    while (world.launcher.processes.size() == static_cast<size_t>(i)) world.Advance(milliseconds(10));
    delays.push_back(std::chrono::duration_cast<milliseconds>(world.Now() - asked));
    world.launcher.last().Crash();
    world.Run();
    EXPECT_EQ(ReasonOf(call->status), Reason::kEngineStartFailed);
  }
  EXPECT_EQ(delays.front().count(), 0);
  EXPECT_LE(delays[1].count(), 10) << "once is no pattern";
  for (int i = 2; i < 5; ++i) EXPECT_GE(delays[i].count(), 250 << (i - 2)) << i;
  auto refused = world.Ask("a");
  EXPECT_EQ(ReasonOf(refused->status), Reason::kCrashLoop);
  EXPECT_NE(MessageOf(refused->status).find("failed 5 times in a row"), std::string::npos) << refused->status;
  EXPECT_NE(MessageOf(refused->status).find("Killed"), std::string::npos) << "and why: " << refused->status;
  ASSERT_TRUE(RetryAfterOf(refused->status));
  EXPECT_LE(*RetryAfterOf(refused->status), seconds(30));
  EXPECT_EQ(world.launcher.processes.size(), 5u);
  world.Advance(*RetryAfterOf(refused->status));
  world.launcher.auto_ready = true;
  auto retried = world.Ask("a");
  world.Advance(milliseconds(1));
  ASSERT_EQ(world.launcher.processes.size(), 6u);
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(retried->status.ok());
}

TEST_F(CoreCrashTest, ImportEndsTheRestOfAModelThatCouldNotBeLoaded) {
  world.launcher.auto_ready = false;
  world.Start();
  for (int i = 0; i < 5; ++i) {
    auto call = world.Ask("a");
    world.Advance(seconds(3));
    world.launcher.last().Crash();
    world.Run();
  }
  EXPECT_EQ(ReasonOf(world.Ask("a")->status), Reason::kCrashLoop);
  CoreWorld::Answer<StoredModel> imported;
  world.core->ImportModel({"/x", "a", "", true}, std::make_shared<std::atomic<bool>>(false), nullptr,
                          imported.callback());
  world.Run();
  ASSERT_TRUE(imported.come() && imported.status().ok());
  EXPECT_FALSE(world.Ask("a")->ended());
}

TEST_F(CoreCrashTest, RestartThatFailsIsTriedAgainWhileSomebodyWaits) {
  world.Start();
  auto call = world.Ask("a");
  world.launcher.auto_ready = false;
  world.launcher.last().Crash();
  world.Advance(milliseconds(1));
  world.launcher.last().Crash();  // while it loads again
  world.launcher.auto_ready = true;
  world.Advance(seconds(1));
  ASSERT_EQ(world.launcher.processes.size(), 3u);
  EXPECT_FALSE(call->ended()) << "its one replay is still to come";
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(call->status.ok());
}

TEST_F(CoreCrashTest, TokensAndLongLifeClearTheRecord) {
  world.Start();
  for (int i = 0; i < 20; ++i) {
    auto call = world.Ask("a");
    world.Advance(milliseconds(1));
    world.launcher.last().open_reply().Token();
    world.launcher.last().Crash();
    world.Run();
    EXPECT_EQ(ReasonOf(call->status), Reason::kEngineCrashed) << i;
  }
  for (int i = 0; i < 20; ++i) {
    auto load = world.Load("a");
    world.Advance(seconds(61));
    ASSERT_TRUE(load.come() && load.status().ok()) << i;
    world.launcher.last().Crash();
    world.Run();
  }
}

TEST_F(CoreCrashTest, PinnedModelComesBackByItselfEvenAfterACrashLoop) {
  CoreWorld pinned(4);
  pinned.AddModel("p", "s", true);
  pinned.Start();
  EXPECT_EQ(pinned.launcher.processes.size(), 1u) << "a pinned model is loaded at the start";
  for (int i = 0; i < 5; ++i) {
    pinned.launcher.last().Crash();
    pinned.Advance(seconds(20));
  }
  pinned.Advance(seconds(60));
  EXPECT_EQ(pinned.InstanceOf("p")->state, InstanceState::kReady);
  EXPECT_EQ(pinned.launcher.alive(), 1u);
}

// ---- Silence ----

TEST_F(CoreCrashTest, StoppedProcessIsNoticedEndedAndItsRequestReplayed) {
  world.Start();
  auto call = world.Ask("a");
  FakeProcess& process = world.launcher.last();
  process.silent = true;
  world.Advance(seconds(40));
  EXPECT_FALSE(process.alive());
  ASSERT_EQ(world.launcher.processes.size(), 2u);
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(call->status.ok());
}

TEST_F(CoreCrashTest, StoppedProcessIsNoticedThoughItsClientsGiveUpEarly) {
  world.Start();
  FakeProcess* process = nullptr;
  for (int i = 0; i < 4; ++i) {
    InferenceRequest hurried = world.Request("a");
    hurried.deadline = world.Now() + seconds(5);
    auto call = world.Ask(hurried);
    if (process == nullptr) {
      process = &world.launcher.last();
      process->silent = true;
    }
    world.Advance(seconds(6));
    EXPECT_EQ(call->status.code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_FALSE(process->alive());
}

TEST_F(CoreCrashTest, HungRequestSaysSoWhereTheClientSawSomething) {
  world.Start();
  auto call = world.Ask("a");
  FakeProcess& process = world.launcher.last();
  process.open_reply().Token();
  process.silent = true;
  world.Advance(seconds(60));
  EXPECT_FALSE(process.alive());
  EXPECT_EQ(ReasonOf(call->status), Reason::kEngineHung) << call->status;
  EXPECT_NE(MessageOf(call->status).find("after 1 tokens"), std::string::npos) << call->status;
}

TEST_F(CoreCrashTest, ProcessThatAnswersButDoesNotWorkIsEnded) {
  world.Start();
  auto call = world.Ask("a");
  FakeProcess& process = world.launcher.last();
  world.Advance(seconds(120));
  EXPECT_TRUE(process.alive());
  world.Advance(seconds(120));
  EXPECT_FALSE(process.alive());
}

TEST_F(CoreCrashTest, LongPromptOfALivingEngineIsNoHang) {
  world.Start();
  auto call = world.Ask("a");
  FakeProcess& process = world.launcher.last();
  for (int i = 0; i < 120; ++i) {
    process.stats.prompt_tokens += 10;
    world.Advance(seconds(10));
  }
  EXPECT_TRUE(process.alive());
  EXPECT_FALSE(call->ended());
}

TEST_F(CoreCrashTest, SlowClientIsNoHang) {
  world.Start();
  auto call = world.Ask("a");
  FakeProcess& process = world.launcher.last();
  call.heard->pause = true;
  process.open_reply().Token();
  world.Advance(std::chrono::hours(1));
  EXPECT_TRUE(process.alive());
  EXPECT_FALSE(call->ended());
}

}  // namespace
}  // namespace rumbo
