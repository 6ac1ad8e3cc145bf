#include "rumbo/client.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "sdk/cpp/testing/fake_daemon.h"

namespace rumbo::inline sdk {
namespace {

using namespace std::chrono_literals;

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/rumbo-sdk-XXXXXX";
    dir_ = ::mkdtemp(pattern);
    socket_ = dir_ + "/s.sock";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Client Connected() {
    daemon_ = std::make_unique<FakeDaemon>(socket_);
    return Client::Connect({.socket = socket_, .app = "test"}).value();
  }
  static ChatRequest Ask(const std::string& model) { return {.model = model, .messages = {User("hi")}}; }

  std::string dir_, socket_;
  std::unique_ptr<FakeDaemon> daemon_;
};

TEST_F(ClientTest, StreamsByPulling) {
  Client client = Connected();
  TextStream stream = client.Chat(Ask("hello"));
  std::vector<std::string> chunks;
  for (const Chunk& chunk : stream) chunks.push_back(chunk.text);
  EXPECT_EQ(chunks, (std::vector<std::string>{"Hello", ", ", "world"}));
  ASSERT_NE(stream.started(), nullptr);
  EXPECT_EQ(stream.started()->devices, std::vector<std::string>{"cpu0"});
  const auto finished = stream.Finish();
  ASSERT_TRUE(finished) << finished.error().message;
  EXPECT_EQ(finished->reason, "stop");
  EXPECT_EQ(finished->usage.completion_tokens, 3u);
  EXPECT_DOUBLE_EQ(finished->timings.decode_tok_s, 123.4);
}

TEST_F(ClientTest, AnswersOfAGivenShape) {
  struct Pair {
    int64_t a = 0;
    std::string b;
  };
  Client client = Connected();
  const auto shape = Shape<Pair>().Field("a", &Pair::a).Field("b", &Pair::b);
  ChatRequest ask = Ask("echo");
  ask.messages = {User(R"({"a": 7, "b": "x"})")};
  const auto pair = client.ChatAs(shape, ask);
  ASSERT_TRUE(pair) << pair.error().message;
  EXPECT_EQ(pair->a, 7);
  EXPECT_EQ(pair->b, "x");
  const auto wrong = client.ChatAs(shape, Ask("hello"));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().reason_code, "WRONG_SHAPE");
}

TEST_F(ClientTest, StreamsByCallback) {
  Client client = Connected();
  int chunks = 0;
  const auto answer = client.Generate({.model = "echo", .prompt = "to be"}, [&](const Chunk&) { ++chunks; });
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->text, "to be");
  EXPECT_EQ(chunks, 1);
  EXPECT_EQ(answer->started.request_id, "r-1");
}

TEST_F(ClientTest, FinishReadsTheRest) {
  Client client = Connected();
  EXPECT_TRUE(client.Chat(Ask("hello")).Finish());
}

TEST_F(ClientTest, RequestsCarryWhatWasAsked) {
  Client client = Connected();
  ChatRequest request = Ask("hello");
  request.messages.insert(request.messages.begin(), System("be short"));
  request.sampling.temperature = 0;
  request.sampling.seed = 7;
  request.sampling.stop = {"END"};
  request.sampling.logit_bias[5] = -1;
  request.options.workload.sessions = 4;
  ASSERT_TRUE(client.Chat(request).Finish());
  const auto seen = daemon_->seen();
  ASSERT_TRUE(seen.chat);
  EXPECT_EQ(seen.chat->messages(0).role(), "system");
  EXPECT_EQ(seen.chat->messages(1).content(0).text(), "hi");
  EXPECT_TRUE(seen.chat->sampling().has_temperature()) << "zero is not absent";
  EXPECT_FALSE(seen.chat->sampling().has_top_p());
  EXPECT_EQ(seen.chat->sampling().seed(), 7u);
  EXPECT_EQ(seen.chat->sampling().stop(0), "END");
  EXPECT_EQ(seen.chat->sampling().logit_bias(0).token(), 5);
  EXPECT_EQ(seen.chat->options().app(), "test");
  EXPECT_EQ(seen.chat->options().workload().sessions(), 4u);
}

TEST_F(ClientTest, ErrorsHaveCodeReasonAndNextStep) {
  Client client = Connected();
  const auto finished = client.Chat(Ask("nobody")).Finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, Code::kNotFound);
  EXPECT_EQ(finished.error().reason, Reason::kModelNotFound);
  EXPECT_EQ(finished.error().reason_code, "MODEL_NOT_FOUND");
  EXPECT_EQ(finished.error().message, "no model is called \"nobody\"");
  EXPECT_EQ(finished.error().next_step, "See `rumbo models`.");
  EXPECT_FALSE(finished.error().retry_after);
  EXPECT_THROW((void)client.GetModel("nobody").value(), Failed);
}

TEST_F(ClientTest, AnEngineThatDiesMidwayKeepsWhatCame) {
  Client client = Connected();
  TextStream stream = client.Chat(Ask("crash"));
  EXPECT_EQ(stream.Next()->text, "Hel");
  EXPECT_FALSE(stream.Next());
  EXPECT_EQ(stream.Finish().error().reason, Reason::kEngineCrashed);
  EXPECT_EQ(daemon_->seen().calls, 1) << "never repeated once something came";
}

TEST_F(ClientTest, AStreamWithoutItsEndIsAnError) {
  Client client = Connected();
  EXPECT_EQ(client.Chat(Ask("cut")).Finish().error().code, Code::kInternal);
}

TEST_F(ClientTest, RetriesOnlyWhereTheDaemonSaysWhen) {
  Client client = Connected();
  daemon_->busy_times = 2;
  EXPECT_TRUE(client.Chat(Ask("busy")).Finish());
  EXPECT_EQ(daemon_->seen().calls, 3);
}

TEST_F(ClientTest, GivesUpAfterTheRetriesWithTheTimeToWait) {
  Client client = Connected();
  daemon_->busy_times = 100;
  const auto finished = client.Chat(Ask("busy"), {.max_retries = 1}).Finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().reason, Reason::kQueueFull);
  EXPECT_EQ(finished.error().retry_after, 10ms);
  EXPECT_EQ(daemon_->seen().calls, 2);
}

TEST_F(ClientTest, WaitsNoLongerThanAllowedForARetry) {
  Client client = Connected();
  EXPECT_FALSE(client.Chat(Ask("busy"), {.max_retry_wait = 5ms}).Finish());
  EXPECT_EQ(daemon_->seen().calls, 1);
}

TEST_F(ClientTest, CancelEndsTheStreamHereAndThere) {
  Client client = Connected();
  TextStream stream = client.Chat(Ask("silent"));
  std::thread canceller([&] {
    EXPECT_TRUE(daemon_->WaitForSilent());
    stream.Cancel();
  });
  EXPECT_FALSE(stream.Next());
  canceller.join();
  EXPECT_EQ(stream.Finish().error().reason, Reason::kCancelled);
  EXPECT_TRUE(daemon_->WaitForCancelled(1));
}

TEST_F(ClientTest, AStopTokenCancels) {
  Client client = Connected();
  std::stop_source stop;
  std::thread canceller([&] {
    EXPECT_TRUE(daemon_->WaitForSilent());
    stop.request_stop();
  });
  const auto answer = client.Chat(Ask("silent"), OnChunk(), {.cancel = stop.get_token()});
  canceller.join();
  EXPECT_EQ(answer.error().code, Code::kCancelled);
}

TEST_F(ClientTest, DestroyingAStreamCancelsIt) {
  Client client = Connected();
  {
    TextStream stream = client.Chat(Ask("silent"));
    EXPECT_TRUE(daemon_->WaitForSilent());
  }
  EXPECT_TRUE(daemon_->WaitForCancelled(1));
}

TEST_F(ClientTest, ADeadlineEndsTheStream) {
  Client client = Connected();
  const auto finished = client.Chat(Ask("silent"), {.timeout = 50ms}).Finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().reason, Reason::kDeadlineExceeded);
  EXPECT_FALSE(finished.error().next_step.empty());
}

TEST_F(ClientTest, CallsThatAnswerAtOnceHaveADeadlineByThemselves) {
  Client client = Connected();
  ASSERT_TRUE(client.Status());
  EXPECT_TRUE(daemon_->seen().has_deadline);
}

TEST_F(ClientTest, ADaemonThatGoesAwayIsUnreachable) {
  Client client = Connected();
  TextStream stream = client.Chat(Ask("silent"));
  std::thread stopper([&] {
    EXPECT_TRUE(daemon_->WaitForSilent());
    daemon_->Stop();
  });
  EXPECT_FALSE(stream.Finish());
  stopper.join();
  const auto list = client.Instances();
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().reason, Reason::kDaemonUnreachable);
}

TEST_F(ClientTest, FindsADaemonThatWasStartedAgain) {
  Client client = Connected();
  ASSERT_TRUE(client.Status());
  daemon_.reset();
  EXPECT_FALSE(client.Status());
  daemon_ = std::make_unique<FakeDaemon>(socket_);
  EXPECT_TRUE(client.Status());
}

TEST_F(ClientTest, ProgressThenTheResult) {
  Client client = Connected();
  std::vector<std::string> steps;
  const auto note = [&](const Progress& progress) { steps.push_back(progress.step); };
  const auto loaded = client.Load({.model = "hello"}, note);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->instance_id, "i-7");
  EXPECT_EQ(loaded->plan->chosen->settings.context_total, 4096u);
  EXPECT_EQ(client.Import({.path = "/x", .name = "hello"}, note)->name, "hello");
  EXPECT_EQ(steps, (std::vector<std::string>{"load", "hash"}));
  EXPECT_EQ(client.Load({.model = "big"}).error().reason, Reason::kDoesNotFit);
}

TEST_F(ClientTest, PlansComeWithWhatIsUnknownAbsent) {
  Client client = Connected();
  const auto plan = client.MakePlan({.model = "hello"});
  ASSERT_TRUE(plan);
  ASSERT_TRUE(plan->chosen);
  EXPECT_EQ(plan->chosen->predicted.decode_tok_s, 85.5);
  EXPECT_FALSE(plan->chosen->predicted.ttft_ms);
  EXPECT_FALSE(plan->refusal);
  EXPECT_EQ(plan->rejected.at(0).reason_code, "ENGINE_NOT_INSTALLED");
  EXPECT_EQ(plan->rejected.back().reason_code, "DEVICE_NOT_USABLE");
  const auto big = client.MakePlan({.model = "big"});
  EXPECT_FALSE(big->chosen);
  EXPECT_EQ(big->refusal->missing_bytes, 3ull << 30);
  EXPECT_EQ(big->refusal->nearest->context, 512u);
}

TEST_F(ClientTest, DevicesTokensAndEmbeddings) {
  Client client = Connected();
  const auto topology = client.Devices();
  ASSERT_TRUE(topology);
  EXPECT_EQ(topology->pools.at(0).free_bytes, 24ull << 30);
  EXPECT_FALSE(topology->pools.at(1).total_bytes);
  EXPECT_EQ(client.Devices("nosuch").error().reason, Reason::kProfileNotFound);
  EXPECT_EQ(client.Tokenize({.model = "hello", .text = "ab"})->ids, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(client.Embed({.model = "hello", .inputs = {"a", "b"}})->vectors.size(), 2u);
}

TEST_F(ClientTest, WhatTheDaemonLacksIsNotImplemented) {
  Client client = Connected();
  EXPECT_EQ(client.Rerank({.model = "hello"}).error().reason, Reason::kNotImplemented);
}

TEST_F(ClientTest, TellsWhyTheSocketCannotBeUsed) {
  const auto missing = Client::Connect({.socket = socket_});
  EXPECT_EQ(missing.error().reason, Reason::kDaemonUnreachable);
  EXPECT_NE(missing.error().message.find("there is no socket"), std::string::npos);
  std::ofstream(dir_ + "/file") << "x";
  EXPECT_NE(Client::Connect({.socket = dir_ + "/file"}).error().message.find("is not a socket"),
            std::string::npos);
  { FakeDaemon gone(socket_); }
  EXPECT_EQ(Client::Connect({.socket = socket_}).error().reason, Reason::kDaemonUnreachable);
  EXPECT_EQ(Client::Connect({.socket = "/" + std::string(200, 'x')}).error().code, Code::kInvalidArgument);
}

class StartTest : public ClientTest {
 protected:
  void SetUp() override {
    ClientTest::SetUp();
    ::setenv("RUMBO_STATE_DIR", (dir_ + "/state").c_str(), 1);
    ::unsetenv("FAKE_RUMBOD");
  }
  void TearDown() override {
    if (pid_ > 0) ::kill(pid_, SIGTERM);
    ClientTest::TearDown();
  }
  ConnectOptions Starting() {
    return {.socket = socket_,
            .start_daemon = true,
            .daemon_program = std::string(RUMBO_TESTS_DIR) + "/fake_rumbod"};
  }
  std::string Log() {
    std::ifstream in(dir_ + "/state/rumbod.log");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int pid_ = -1;
};

TEST_F(StartTest, StartsADaemonThatOutlivesTheStarter) {
  std::string log;
  ConnectOptions options = Starting();
  options.on_start = [&](const std::string& path) { log = path; };
  auto client = Client::Connect(options);
  ASSERT_TRUE(client) << client.error().message;
  EXPECT_EQ(log, dir_ + "/state/rumbod.log");
  ASSERT_EQ(std::sscanf(Log().c_str(), "pid %d", &pid_), 1);
  EXPECT_EQ(::getsid(pid_) == ::getsid(0), false) << "it has a session of its own";
  EXPECT_EQ(client->Status()->version, "9.9.9");
  struct stat info;
  ASSERT_EQ(::stat(log.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(StartTest, StartersAtTheSameTimeStartOneDaemon) {
  std::atomic<int> starts = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      ConnectOptions options = Starting();
      options.on_start = [&](const std::string&) { ++starts; };
      const auto client = Client::Connect(options);
      EXPECT_TRUE(client) << client.error().message;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(starts, 1);
  ASSERT_EQ(std::sscanf(Log().c_str(), "pid %d", &pid_), 1);
}

TEST_F(StartTest, TellsWhatTheDaemonSaidBeforeItEnded) {
  ::setenv("FAKE_RUMBOD", "fail", 1);
  const auto client = Client::Connect(Starting());
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().reason, Reason::kDaemonUnreachable);
  EXPECT_NE(client.error().message.find("rumbod: the disk is full"), std::string::npos)
      << client.error().message;
}

TEST_F(StartTest, GivesUpOnADaemonThatNeverListens) {
  ::setenv("FAKE_RUMBOD", "deaf", 1);
  ConnectOptions options = Starting();
  options.start_timeout = 100ms;
  const auto client = Client::Connect(options);
  ASSERT_FALSE(client);
  EXPECT_NE(client.error().message.find("not ready in time"), std::string::npos) << client.error().message;
  ASSERT_EQ(std::sscanf(Log().c_str(), "pid %d", &pid_), 1);
}

TEST_F(StartTest, SaysThatTheProgramIsMissing) {
  ConnectOptions options = Starting();
  options.daemon_program = dir_ + "/none";
  const auto client = Client::Connect(options);
  ASSERT_FALSE(client);
  EXPECT_NE(client.error().message.find("none"), std::string::npos) << client.error().message;
}

}  // namespace
}  // namespace rumbo::inline sdk
