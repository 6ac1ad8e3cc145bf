// Requests: loading on demand, queues, cancelling, deadlines.
#include <gtest/gtest.h>

#include "tests/fakes/core_world.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CoreWorld;

class CoreRequestTest : public ::testing::Test {
 protected:
  CoreRequestTest() {
    world.AddModel("a");
    world.AddModel("b");
  }
  InferenceRequest OneSession(const std::string& model) {
    InferenceRequest request = world.Request(model);
    request.workload.sessions = 1;
    return request;
  }
  CoreWorld world{4};
};

TEST_F(CoreRequestTest, LoadsOnDemandStreamsAndCounts) {
  world.Start();
  auto call = world.Ask("a");
  ASSERT_EQ(world.launcher.processes.size(), 1u);
  EXPECT_EQ(world.launcher.last().spec.files, std::vector<std::string>{"/models/a"});
  ASSERT_TRUE(call->placement);
  EXPECT_EQ(call->placement->model, "a");
  EXPECT_EQ(call->placement->instance_id, world.InstanceOf("a")->id);
  EXPECT_FALSE(call->placement->reason.empty());
  EXPECT_EQ(world.Status().running_requests, 1u);
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(call->status.ok()) << call->status;
  EXPECT_EQ(call->tokens, 3u);
  EXPECT_EQ(call->ends, 1);
  EXPECT_EQ(call->finished->completion_tokens, 3u);
  const CoreStatus status = world.Status();
  EXPECT_EQ(status.running_requests, 0u);
  EXPECT_EQ(status.finished_requests, 1u);
  EXPECT_EQ(status.generated_tokens, 3u);
}

TEST_F(CoreRequestTest, RequestsJoinOneLoadAndRunSideBySide) {
  world.launcher.auto_ready = false;
  world.Start();
  auto one = world.Ask("a");
  auto two = world.Ask("a");
  auto load = world.Load("a");
  ASSERT_EQ(world.launcher.processes.size(), 1u);
  EXPECT_EQ(world.Status().queued_requests, 2u);
  world.launcher.last().Ready();
  world.Run();
  EXPECT_TRUE(load.status().ok());
  EXPECT_EQ(world.launcher.last().open_replies(), 2u);
}

TEST_F(CoreRequestTest, NoMoreRunAtOnceThanSessions) {
  world.Start();
  std::vector<CoreWorld::Call> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(world.Ask(OneSession("a")));
  EXPECT_EQ(world.launcher.last().open_replies(), 1u);
  EXPECT_EQ(world.InstanceOf("a")->queue, 2u);
  for (auto& call : calls) {
    EXPECT_FALSE(call->ended());
    world.Answer3(world.launcher.last().open_reply());
    EXPECT_TRUE(call->status.ok());
    EXPECT_TRUE(call->ended());
  }
}

TEST_F(CoreRequestTest, FullQueueIsRefusedWithATimeToRetry) {
  CoreOptions options;
  options.queue_limit = 2;
  CoreWorld small(4, options);
  small.AddModel("a");
  small.launcher.auto_ready = false;
  small.Start();
  auto one = small.Ask("a"), two = small.Ask("a"), three = small.Ask("a");
  EXPECT_FALSE(one->ended());
  EXPECT_EQ(three->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(three->status), Reason::kQueueFull);
  EXPECT_TRUE(RetryAfterOf(three->status));
  one.Cancel();
  small.Run();
  auto four = small.Ask("a");
  EXPECT_FALSE(four->ended()) << "the place of the cancelled one is free";
}

TEST_F(CoreRequestTest, BadRequestsAndUnknownModelsAreRefusedBeforeAnythingLoads) {
  world.Start();
  EXPECT_EQ(ReasonOf(world.Ask("ab")->status), Reason::kModelNotFound);
  EXPECT_NE(NextStepOf(world.Ask("ab")->status).find("a"), std::string::npos);
  InferenceRequest negative = world.Request("a");
  negative.generate.sampling.temperature = -1;
  EXPECT_EQ(world.Ask(negative)->status.code(), absl::StatusCode::kInvalidArgument);
  InferenceRequest late = world.Request("a");
  late.deadline = world.Now();
  EXPECT_EQ(world.Ask(late)->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(world.launcher.processes.empty());
}

TEST_F(CoreRequestTest, UnreadableIndexIsToldToEveryone) {
  world.store.list_status = Error(absl::StatusCode::kInternal, Reason::kInternal, "the index is damaged");
  world.Start();
  EXPECT_EQ(world.Ask("a")->status.code(), absl::StatusCode::kInternal);
}

TEST_F(CoreRequestTest, FailedProbeFailsTheLoadAndTheNextOneProbesAgain) {
  world.topology.probe_status = Error(absl::StatusCode::kUnavailable, Reason::kProbeFailed, "the probe hung");
  world.Start();
  EXPECT_EQ(ReasonOf(world.Ask("a")->status), Reason::kProbeFailed);
  world.topology.probe_status = absl::OkStatus();
  EXPECT_FALSE(world.Ask("a")->ended());
  EXPECT_EQ(world.launcher.processes.size(), 1u);
}

// ---- Cancel ----

TEST_F(CoreRequestTest, CancelBeforeTheModelsAreKnownEndsAtOnce) {
  world.store.hold_list = true;
  world.Start();
  auto call = world.Ask("a");
  call.Cancel();
  world.Run();
  EXPECT_EQ(call->status.code(), absl::StatusCode::kCancelled);
  world.store.Release();
  world.Run();
  EXPECT_EQ(call->ends, 1);
  EXPECT_TRUE(world.launcher.processes.empty());
}

TEST_F(CoreRequestTest, CancelledWhileQueuedNeverReachesTheEngine) {
  world.Start();
  auto first = world.Ask(OneSession("a"));
  auto second = world.Ask(OneSession("a"));
  second.handle.reset();  // destroying the handle cancels
  world.Run();
  EXPECT_EQ(second->status.code(), absl::StatusCode::kCancelled);
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_EQ(world.launcher.last().replies.size(), 1u);
}

TEST_F(CoreRequestTest, CancelledWhileLoadingEndsAtOnceAndTheLoadGoesOn) {
  world.launcher.auto_ready = false;
  world.Start();
  auto call = world.Ask("a");
  call.Cancel();
  world.Run();
  EXPECT_EQ(call->status.code(), absl::StatusCode::kCancelled);
  world.launcher.last().Ready();
  world.Run();
  EXPECT_TRUE(world.launcher.last().replies.empty());
  EXPECT_EQ(world.InstanceOf("a")->state, InstanceState::kReady);
}

TEST_F(CoreRequestTest, CancelWhileRunningFreesTheSlotForTheNext) {
  world.Start();
  auto first = world.Ask(OneSession("a"));
  auto second = world.Ask(OneSession("a"));
  world.launcher.last().open_reply().Token();
  first.Cancel();
  world.Run();
  EXPECT_EQ(first->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(first->ends, 1);
  ASSERT_EQ(world.launcher.last().open_replies(), 1u);
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(second->status.ok());
}

TEST_F(CoreRequestTest, HandlesAreHarmlessAfterTheEnd) {
  world.Start();
  auto call = world.Ask("a");
  world.Answer3(world.launcher.last().open_reply());
  call.Cancel();
  call.handle->Resume();
  call.handle.reset();
  world.Run();
  EXPECT_EQ(call->ends, 1);
}

TEST_F(CoreRequestTest, PausedSinkGetsNothingUntilItResumes) {
  world.Start();
  auto call = world.Ask("a");
  call.heard->pause = true;
  FakeReply& reply = world.launcher.last().open_reply();
  reply.Token();
  reply.Token();
  EXPECT_EQ(call->tokens, 1u);
  call.heard->pause = false;
  call.handle->Resume();
  reply.Token();
  EXPECT_EQ(call->tokens, 2u);
}

// ---- Deadlines ----

TEST_F(CoreRequestTest, DeadlinePassesWhileQueuedAndWhileLoading) {
  world.launcher.auto_ready = false;
  world.Start();
  InferenceRequest hurried = world.Request("a");
  hurried.deadline = world.Now() + seconds(3);
  auto call = world.Ask(hurried);
  world.Advance(milliseconds(2999));
  EXPECT_FALSE(call->ended());
  world.Advance(milliseconds(1));
  EXPECT_EQ(call->status.code(), absl::StatusCode::kDeadlineExceeded);
  world.launcher.last().Ready();
  world.Run();
  EXPECT_TRUE(world.launcher.last().replies.empty()) << "late work must not start";
  EXPECT_EQ(world.Status().queued_requests, 0u);
}

TEST_F(CoreRequestTest, DeadlineGoesOnCountingAfterAReplay) {
  world.Start();
  InferenceRequest hurried = world.Request("a");
  hurried.deadline = world.Now() + seconds(3);
  auto call = world.Ask(hurried);
  world.launcher.auto_ready = false;
  world.launcher.last().Crash();
  world.Run();
  EXPECT_FALSE(call->ended());
  world.Advance(seconds(4));
  EXPECT_EQ(call->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(call->ends, 1);
}

// ---- Order ----

TEST_F(CoreRequestTest, InteractiveGoesBeforeBatch) {
  world.Start();
  auto running = world.Ask(OneSession("a"));
  InferenceRequest batch = OneSession("a"), interactive = OneSession("a");
  batch.generate.priority = Priority::kBatch;
  interactive.generate.priority = Priority::kInteractive;
  auto second = world.Ask(batch);
  auto third = world.Ask(interactive);
  world.Answer3(world.launcher.last().open_reply());
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(third->ended());
  EXPECT_FALSE(second->ended());
}

TEST_F(CoreRequestTest, ShortCallsBorrowTheEngineAndGiveItBack) {
  CoreOptions options;
  options.keep_alive = seconds(10);
  CoreWorld short_lived(4, options);
  short_lived.AddModel("a");
  short_lived.Start();
  LoadSpec spec;
  spec.model = "a";
  CoreWorld::Answer<Core::ReadyEngine> ready;
  short_lived.core->WithEngine(spec, {}, TimePoint::max(), ready.callback());
  short_lived.Run();
  ASSERT_TRUE(ready.come() && ready.status().ok());
  EXPECT_EQ(ready.get().placement.model, "a");
  short_lived.Advance(seconds(60));
  EXPECT_TRUE(short_lived.InstanceOf("a")) << "in use: not idle";
  ready.get().engine.reset();
  short_lived.Run();
  short_lived.Advance(seconds(9));
  EXPECT_TRUE(short_lived.InstanceOf("a"));
  short_lived.Advance(seconds(2));
  EXPECT_FALSE(short_lived.InstanceOf("a"));
}

TEST_F(CoreRequestTest, ShortCallsHearTheirDeadlineWhileTheModelLoads) {
  world.launcher.auto_ready = false;
  world.Start();
  LoadSpec spec;
  spec.model = "a";
  CoreWorld::Answer<Core::ReadyEngine> ready;
  world.core->WithEngine(spec, {}, world.Now() + seconds(2), ready.callback());
  world.Advance(seconds(3));
  ASSERT_TRUE(ready.come());
  EXPECT_EQ(ready.status().code(), absl::StatusCode::kDeadlineExceeded);
  world.launcher.last().Ready();
  world.Run();  // answers nothing twice: the callback would abort
}

}  // namespace
}  // namespace rumbo
