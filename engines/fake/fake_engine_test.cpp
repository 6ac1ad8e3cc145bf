#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "base/status.h"
#include "engines/worker_kit/grpc_status.h"
#include "engines/worker_kit/testing/worker_process.h"

namespace rumbo {
namespace {

using Extra = std::map<std::string, std::string>;

class FakeEngineTest : public testing::Test {
 protected:
  void Start(const Extra& extra = {}, uint32_t context = 4096) {
    auto worker = WorkerProcess::Start(RUMBO_BIN_DIR "/rumbo-fake");
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    engine::v1::LoadRequest load;
    load.mutable_settings()->set_context_per_session(context);
    for (const auto& [key, value] : extra) (*load.mutable_settings()->mutable_extra())[key] = value;
    loaded_ = worker_->Load(load);
  }
  CollectedAnswer Ask(const std::string& prompt, uint32_t max_tokens) {
    engine::v1::GenerateRequest request;
    request.set_prompt(prompt);
    if (max_tokens > 0) request.mutable_sampling()->set_max_tokens(max_tokens);
    return Collect(worker_->stub(), request);
  }
  std::unique_ptr<WorkerProcess> worker_;
  absl::StatusOr<engine::v1::LoadedInfo> loaded_;
};

TEST_F(FakeEngineTest, CountsUpToMaxTokensAndAccountsForThePrompt) {
  Start();
  ASSERT_TRUE(loaded_.ok()) << loaded_.status();
  const CollectedAnswer answer = Ask("three word prompt", 5);
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.text, "1 2 3 4 5");
  EXPECT_EQ(answer.tokens, 5u);
  EXPECT_EQ(answer.finished.reason(), "length");
  EXPECT_EQ(answer.started.prompt_tokens(), 3u);
  EXPECT_EQ(answer.finished.usage().completion_tokens(), 5u);
}

TEST_F(FakeEngineTest, ContextBoundsTheAnswer) {
  Start({}, 10);
  const CollectedAnswer answer = Ask("a b c", 0);
  EXPECT_EQ(answer.finished.reason(), "context");
  EXPECT_EQ(answer.tokens, 7u);
  const absl::Status too_long = FromGrpcStatus(Ask("1 2 3 4 5 6 7 8 9 10", 1).status);
  EXPECT_EQ(ReasonOf(too_long), Reason::kPromptTooLong);
}

TEST_F(FakeEngineTest, CrashHappensAtTheTokenAndKillsTheProcess) {
  Start({{"crash_at_token", "4"}});
  const CollectedAnswer answer = Ask("x", 9);
  EXPECT_EQ(answer.text, "1 2 3");
  EXPECT_FALSE(answer.status.ok());
  const auto status = worker_->WaitExit();
  ASSERT_TRUE(status.ok());
  EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGABRT);
}

TEST_F(FakeEngineTest, PromptFaultHoldsForThatRequestAlone) {
  Start();
  EXPECT_EQ(Ask("x <<error_at_token=2>>", 9).status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Ask("x", 3).text, "1 2 3");
  EXPECT_EQ(Ask("x <<stop_at_token=2>>", 9).finished.reason(), "stop");
}

TEST_F(FakeEngineTest, HangEndsWithCancel) {
  Start();
  engine::v1::GenerateRequest request;
  request.set_prompt("x <<hang_at_token=2>>");
  grpc::ClientContext context;
  auto reader = worker_->stub().Generate(&context, request);
  engine::v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));  // started
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.chunk().text(), "1");
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(Ask("x", 2).text, "1 2");
}

TEST_F(FakeEngineTest, GarbageBreaksTheProtocolInTheNamedWay) {
  Start();
  EXPECT_EQ(Ask("x <<garbage=order>>", 3).started_count, 2);
  const CollectedAnswer none = Ask("x <<garbage=no_finish>>", 3);
  EXPECT_TRUE(none.status.ok());
  EXPECT_EQ(none.finished_count, 0);
  EXPECT_FALSE(Ask("x <<garbage=wire>>", 3).status.ok());
}

TEST_F(FakeEngineTest, LoadFaultsAreReportedOrFatal) {
  Start({{"load_error", "no such luck"}});
  EXPECT_EQ(ReasonOf(loaded_.status()), Reason::kModelInvalid);
  Start({{"exit_code", "7"}, {"load_ms", "10"}});
  EXPECT_FALSE(loaded_.ok());
  const auto status = worker_->WaitExit();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(WEXITSTATUS(*status), 7);
  Start({{"no_such_key", "1"}});
  EXPECT_EQ(ReasonOf(loaded_.status()), Reason::kInvalidArgument);
}

TEST_F(FakeEngineTest, SecondLoadIsRefused) {
  Start();
  ASSERT_TRUE(loaded_.ok());
  EXPECT_EQ(worker_->Load({}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FakeEngineTest, ExitsWhenTheDaemonIsGone) {
  Start({{"token_us", "1000000"}});
  worker_->CloseSocket();
  const auto status = worker_->WaitExit();
  ASSERT_TRUE(status.ok());
  EXPECT_TRUE(WIFEXITED(*status));
}

TEST_F(FakeEngineTest, ManyStreamsAtOnce) {
  Start();
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int i = 0; i < 32; ++i) {
    clients.emplace_back([&] {
      if (Ask("x", 100).tokens == 100) ++right;
    });
  }
  for (auto& t : clients) t.join();
  EXPECT_EQ(right, 32);
}

TEST(GrpcStatusTest, RoundTripKeepsReasonNextStepAndRetry) {
  const absl::Status in = RetryableError(absl::StatusCode::kResourceExhausted, Reason::kQueueFull, "full",
                                         "wait", std::chrono::milliseconds(1500));
  const absl::Status out = FromGrpcStatus(ToGrpcStatus(in));
  EXPECT_EQ(out.code(), in.code());
  EXPECT_EQ(MessageOf(out), "full");
  EXPECT_EQ(ReasonOf(out), Reason::kQueueFull);
  EXPECT_EQ(NextStepOf(out), "wait");
  EXPECT_EQ(RetryAfterOf(out)->count(), 1500);
}

TEST(GrpcStatusTest, MessageIsMadeValidUtf8) {
  const grpc::Status status = ToGrpcStatus(InvalidArgument("bad \xff byte"));
  EXPECT_EQ(status.error_message(), "bad \xef\xbf\xbd byte");
}

}  // namespace
}  // namespace rumbo
