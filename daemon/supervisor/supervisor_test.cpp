#include "daemon/supervisor/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "base/os/files.h"
#include "base/status.h"
#include "daemon/supervisor/journal.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Collects what a launch says; waits with a deadline instead of sleeping.
struct Launched {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t pid = 0;
  std::shared_ptr<Engine> engine;
  EngineInfo info;
  int exits = 0;
  absl::Status exit;

  LaunchCallbacks Callbacks() {
    return {.on_started =
                [this](int64_t p) {
                  std::lock_guard l(mutex);
                  pid = p;
                  changed.notify_all();
                },
            .on_progress = [](double, const std::string&) {},
            .on_ready =
                [this](std::shared_ptr<Engine> e, EngineInfo i) {
                  std::lock_guard l(mutex);
                  engine = std::move(e);
                  info = std::move(i);
                  changed.notify_all();
                },
            .on_exit =
                [this](absl::Status status) {
                  std::lock_guard l(mutex);
                  ++exits;
                  exit = status;
                  changed.notify_all();
                }};
  }
  bool Wait(const std::function<bool()>& what) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, seconds(20), what);
  }
  bool WaitReady() {
    return Wait([&] { return engine != nullptr || exits > 0; }) && engine != nullptr;
  }
  bool WaitExit() {
    return Wait([&] { return exits > 0; });
  }
};

struct Answer : GenerateSink {
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0, chunks = 0, ends = 0;
  uint32_t tokens = 0;
  std::string text;
  absl::Status status;
  FinishedEvent finished;
  int pause_at = -1;

  void OnStarted(const StartedEvent&) override {
    std::lock_guard l(mutex);
    ++started;
  }
  bool OnChunk(ChunkEvent& chunk) override {
    std::lock_guard l(mutex);
    ++chunks;
    tokens += chunk.tokens;
    text += chunk.text;
    changed.notify_all();
    return chunks != pause_at;
  }
  void OnEnd(const absl::Status& s, const FinishedEvent* f) override {
    std::lock_guard l(mutex);
    ++ends;
    status = s;
    if (f) finished = *f;
    changed.notify_all();
  }
  bool Wait(const std::function<bool()>& what) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, seconds(20), what);
  }
  bool WaitEnd() {
    return Wait([&] { return ends > 0; });
  }
};

class SupervisorTest : public ::testing::Test {
 protected:
  LaunchSpec Fake(std::map<std::string, std::string> extra = {}) {
    LaunchSpec spec;
    spec.instance_id = "fake-1";
    spec.engine = "fake";
    spec.backend = "cpu";
    spec.settings.sessions = 4;
    spec.settings.context_total = 65536;
    spec.settings.context_per_session = 16384;
    spec.settings.extra = std::move(extra);
    return spec;
  }
  GenerateRequest Prompt(uint32_t max_tokens, std::string prompt = "hello") {
    GenerateRequest request;
    request.input.prompt = std::move(prompt);
    request.sampling.max_tokens = max_tokens;
    return request;
  }
  SupervisorOptions options_{.load_silence = milliseconds(2500)};
  std::unique_ptr<Launcher> launcher_ = NewSupervisor(options_, FindWorkers(RUMBO_BIN_DIR));
};

TEST_F(SupervisorTest, StartsStreamsAndStops) {
  Launched launched;
  auto handle = launcher_->Launch(Fake(), launched.Callbacks());
  ASSERT_TRUE(launched.WaitReady()) << launched.exit;
  auto answer = std::make_shared<Answer>();
  auto call = launched.engine->Generate(Prompt(100), Engine::Deadline::max(), answer);
  ASSERT_TRUE(answer->WaitEnd());
  EXPECT_TRUE(answer->status.ok()) << answer->status;
  EXPECT_EQ(answer->started, 1);
  EXPECT_EQ(answer->tokens, 100u);
  EXPECT_EQ(answer->finished.completion_tokens, 100u);
  EXPECT_EQ(answer->finished.reason, "length");
  handle->Stop(seconds(5));
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_TRUE(launched.exit.ok()) << launched.exit;
  EXPECT_NE(::kill(launched.pid, 0), 0);
}

TEST_F(SupervisorTest, CrashEndsEachRequestOnceAndSaysHowFarItGot) {
  Launched launched;
  auto handle = launcher_->Launch(Fake({{"crash_at_token", "10"}}), launched.Callbacks());
  ASSERT_TRUE(launched.WaitReady());
  auto answer = std::make_shared<Answer>();
  auto call = launched.engine->Generate(Prompt(100), Engine::Deadline::max(), answer);
  ASSERT_TRUE(answer->WaitEnd());
  EXPECT_EQ(answer->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(answer->status), Reason::kEngineCrashed);
  EXPECT_NE(MessageOf(answer->status).find("tokens"), std::string::npos);
  EXPECT_EQ(answer->ends, 1);
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_EQ(ReasonOf(launched.exit), Reason::kEngineCrashed);
  EXPECT_NE(MessageOf(launched.exit).find("signal "), std::string::npos) << launched.exit;
}

TEST_F(SupervisorTest, FailedStartShowsTheLastLinesOfStderr) {
  Launched launched;
  auto handle = launcher_->Launch(Fake({{"stderr", "no more memory for tensors"}, {"exit_code", "3"}}),
                                  launched.Callbacks());
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_EQ(ReasonOf(launched.exit), Reason::kEngineStartFailed);
  EXPECT_NE(MessageOf(launched.exit).find("no more memory for tensors"), std::string::npos) << launched.exit;
  EXPECT_NE(MessageOf(launched.exit).find("exit code 3"), std::string::npos) << launched.exit;
}

TEST_F(SupervisorTest, SilentLoadIsKilled) {
  Launched launched;
  auto handle = launcher_->Launch(Fake({{"load_hang", "1"}}), launched.Callbacks());
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_EQ(ReasonOf(launched.exit), Reason::kEngineHung) << launched.exit;
  EXPECT_NE(::kill(launched.pid, 0), 0);
}

TEST_F(SupervisorTest, LoadErrorOfTheWorkerKeepsItsReason) {
  Launched launched;
  auto handle = launcher_->Launch(Fake({{"load_error", "bad tensor"}}), launched.Callbacks());
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_EQ(ReasonOf(launched.exit), Reason::kModelInvalid) << launched.exit;
}

// The fake worker inside the sandbox that the catalog gives it.
class SandboxedSupervisorTest : public SupervisorTest {
 protected:
  SandboxedSupervisorTest() {
    options_.catalog = &BuiltInCatalog();
    options_.journal = &journal_;
    launcher_ = NewSupervisor(options_, FindWorkers(RUMBO_BIN_DIR));
  }
  ~SandboxedSupervisorTest() override { launcher_.reset(); }
  std::string Said(const std::string& code) const {
    for (const Finding& f : journal_.Findings()) {
      if (f.code == code) return f.text;
    }
    return "";
  }
  SandboxJournal journal_;
};

TEST_F(SandboxedSupervisorTest, AWorkerAnswersFromInsideAndItsLevelIsKnown) {
  Launched launched;
  auto handle = launcher_->Launch(Fake(), launched.Callbacks());
  ASSERT_TRUE(launched.WaitReady()) << launched.exit;
  auto answer = std::make_shared<Answer>();
  auto call = launched.engine->Generate(Prompt(100), Engine::Deadline::max(), answer);
  ASSERT_TRUE(answer->WaitEnd());
  EXPECT_TRUE(answer->status.ok()) << answer->status;
  EXPECT_EQ(answer->tokens, 100u);
  const auto status = ReadFile("/proc/" + std::to_string(launched.pid) + "/status", 64 << 10);
  ASSERT_TRUE(status.ok());
  EXPECT_NE(status->find("NoNewPrivs:\t1"), std::string::npos);
  EXPECT_NE(status->find("Seccomp:\t2"), std::string::npos);
  EXPECT_NE(Said("sandbox.level").find("fake (cpu) runs with "), std::string::npos) << Said("sandbox.level");
  EXPECT_NE(Said("sandbox.level").find("system calls filtered"), std::string::npos);
}

TEST_F(SandboxedSupervisorTest, ADeniedPathIsNamedAndTheFailureSaysWhereToLook) {
  Launched launched;
  auto handle =
      launcher_->Launch(Fake({{"open_path", "etc/passwd"}, {"exit_code", "3"}}), launched.Callbacks());
  ASSERT_TRUE(launched.WaitExit());
  if (Said("sandbox.level").find("no Landlock") != std::string::npos)
    GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(ReasonOf(launched.exit), Reason::kEngineStartFailed);
  EXPECT_NE(MessageOf(launched.exit).find("`rumbo doctor` names"), std::string::npos) << launched.exit;
  EXPECT_EQ(MessageOf(launched.exit).find("opened etc/passwd"), std::string::npos) << launched.exit;
  EXPECT_NE(Said("sandbox.denied").find("fake (cpu) was denied /etc/passwd"), std::string::npos)
      << Said("sandbox.denied");
}

TEST_F(SandboxedSupervisorTest, WithoutTheSandboxThatItShallHaveNothingStarts) {
  EngineCatalog catalog = BuiltInCatalog();
  for (CatalogEngine& engine : catalog.engines) {
    if (engine.name == "fake") engine.sandbox["jit"] = "perhaps";
  }
  options_.catalog = &catalog;
  auto launcher = NewSupervisor(options_, FindWorkers(RUMBO_BIN_DIR));
  Launched launched;
  auto handle = launcher->Launch(Fake(), launched.Callbacks());
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_EQ(launched.pid, 0);
  EXPECT_EQ(ReasonOf(launched.exit), Reason::kInvalidArgument) << launched.exit;
}

TEST_F(SupervisorTest, GarbageOnTheWireEndsTheWorkerAndTheRequest) {
  for (const char* kind : {"wire", "order", "no_finish", "utf8"}) {
    Launched launched;
    auto handle = launcher_->Launch(Fake({{"garbage", kind}}), launched.Callbacks());
    ASSERT_TRUE(launched.WaitReady()) << kind;
    auto answer = std::make_shared<Answer>();
    auto call = launched.engine->Generate(Prompt(20), Engine::Deadline::max(), answer);
    ASSERT_TRUE(answer->WaitEnd()) << kind;
    EXPECT_FALSE(answer->status.ok()) << kind;
    EXPECT_EQ(answer->ends, 1);
    ASSERT_TRUE(launched.WaitExit()) << kind;
    EXPECT_FALSE(launched.exit.ok()) << kind;
  }
}

TEST_F(SupervisorTest, LastWordsAreExplainedByTheCatalog) {
  auto programs = FindWorkers(RUMBO_BIN_DIR);
  for (EngineProgram& program : programs) {
    program.failure_texts = {{"ErrorDeviceLost", "the GPU's driver reset it"},
                             {"nothing of the kind", "never"}};
  }
  const auto launcher = NewSupervisor(options_, programs);
  Launched launched;
  auto handle = launcher->Launch(
      Fake({{"stderr", "vk::DeviceLostError: ErrorDeviceLost"}, {"exit_code", "3"}}), launched.Callbacks());
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_EQ(ReasonOf(launched.exit), Reason::kDeviceLost) << launched.exit;
  EXPECT_EQ(MessageOf(launched.exit).rfind("the GPU's driver reset it", 0), 0u) << launched.exit;
}

TEST_F(SupervisorTest, FloodedLogAndAnswersToNobodyDoNotReachTheRequest) {
  for (const char* kind : {"stderr", "stream"}) {
    Launched launched;
    auto handle = launcher_->Launch(Fake({{"garbage", kind}}), launched.Callbacks());
    ASSERT_TRUE(launched.WaitReady()) << kind;
    auto answer = std::make_shared<Answer>();
    auto call = launched.engine->Generate(Prompt(5), Engine::Deadline::max(), answer);
    ASSERT_TRUE(answer->WaitEnd()) << kind;
    if (answer->status.ok()) {
      EXPECT_EQ(answer->text, "1 2 3 4 5") << kind;
    } else {
      EXPECT_EQ(ReasonOf(answer->status), Reason::kEngineProtocol) << kind << ": " << answer->status;
    }
    handle->Stop(seconds(5));
    ASSERT_TRUE(launched.WaitExit()) << kind;
  }
}

TEST_F(SupervisorTest, RunningWorkersAreOnRecord) {
  char name[] = "/tmp/rumbo-record-XXXXXX";
  const std::string dir = ::mkdtemp(name);
  WorkerRecord record(dir);
  SupervisorOptions options = options_;
  options.record = &record;
  auto launcher = NewSupervisor(options, FindWorkers(RUMBO_BIN_DIR));
  Launched launched;
  auto handle = launcher->Launch(Fake(), launched.Callbacks());
  ASSERT_TRUE(launched.WaitReady());
  const auto running = ReadFile(dir + "/workers", 4096);
  ASSERT_TRUE(running.ok());
  EXPECT_EQ(running->rfind(std::to_string(launched.pid) + " ", 0), 0u) << *running;
  handle.reset();
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_EQ(ReadFile(dir + "/workers", 4096).value_or("?"), "");
  launcher.reset();
  std::filesystem::remove_all(dir);
}

TEST_F(SupervisorTest, CancelEndsAtOnceEvenOfAHungWorker) {
  Launched launched;
  auto handle = launcher_->Launch(Fake(), launched.Callbacks());
  ASSERT_TRUE(launched.WaitReady());
  auto answer = std::make_shared<Answer>();
  auto call = launched.engine->Generate(Prompt(100, "<<hang_at_token=5>>"), Engine::Deadline::max(), answer);
  ASSERT_TRUE(answer->Wait([&] { return answer->tokens == 4; }));
  ASSERT_EQ(::kill(launched.pid, SIGSTOP), 0);
  call->Cancel();
  ASSERT_TRUE(answer->WaitEnd());
  EXPECT_EQ(answer->status.code(), absl::StatusCode::kCancelled);
  ::kill(launched.pid, SIGCONT);
}

TEST_F(SupervisorTest, PausedSinkGetsNothingUntilItResumes) {
  Launched launched;
  auto handle = launcher_->Launch(Fake(), launched.Callbacks());
  ASSERT_TRUE(launched.WaitReady());
  auto answer = std::make_shared<Answer>();
  answer->pause_at = 1;
  auto call = launched.engine->Generate(Prompt(5000), Engine::Deadline::max(), answer);
  ASSERT_TRUE(answer->Wait([&] { return answer->chunks == 1; }));
  call->Resume();
  ASSERT_TRUE(answer->WaitEnd());
  EXPECT_EQ(answer->tokens, 5000u);
  // And a paused call can be cancelled.
  auto paused = std::make_shared<Answer>();
  paused->pause_at = 1;
  auto second = launched.engine->Generate(Prompt(5000), Engine::Deadline::max(), paused);
  ASSERT_TRUE(paused->Wait([&] { return paused->chunks == 1; }));
  second.reset();
  ASSERT_TRUE(paused->WaitEnd());
  EXPECT_EQ(paused->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(paused->chunks, 1);
}

TEST_F(SupervisorTest, DeadlineEndsTheRequest) {
  Launched launched;
  auto handle = launcher_->Launch(Fake(), launched.Callbacks());
  ASSERT_TRUE(launched.WaitReady());
  auto answer = std::make_shared<Answer>();
  auto call = launched.engine->Generate(Prompt(100, "<<hang_at_token=5>>"),
                                        std::chrono::steady_clock::now() + milliseconds(200), answer);
  ASSERT_TRUE(answer->WaitEnd());
  EXPECT_EQ(answer->status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SupervisorTest, UnknownEngineIsNotInstalled) {
  Launched launched;
  LaunchSpec spec = Fake();
  spec.engine = "nonesuch";
  auto handle = launcher_->Launch(spec, launched.Callbacks());
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_EQ(ReasonOf(launched.exit), Reason::kEngineNotInstalled);
}

TEST_F(SupervisorTest, DroppedHandleKills) {
  Launched launched;
  auto handle = launcher_->Launch(Fake(), launched.Callbacks());
  ASSERT_TRUE(launched.WaitReady());
  handle.reset();
  ASSERT_TRUE(launched.WaitExit());
  EXPECT_NE(::kill(launched.pid, 0), 0);
}

}  // namespace
}  // namespace rumbo
