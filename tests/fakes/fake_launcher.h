#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "engines/api/engine.h"

// A Launcher whose processes do what the test says, and nothing else. Everything runs on the given executor,
// so that with a ManualExecutor no thread and no real time is involved.
//
// Clone-me: a test for a new engine kind starts from FakeProcess.
namespace rumbo {

// One answer that a fake process was asked for. The test plays the engine: Start, Token (any number), then
// Finish or End. Cancel and the deadline end it by themselves, as gRPC does.
class FakeReply : public std::enable_shared_from_this<FakeReply> {
 public:
  FakeReply(Executor* executor, GenerateRequest request, std::shared_ptr<GenerateSink> sink)
      : request(std::move(request)), executor_(executor), sink_(std::move(sink)) {}

  const GenerateRequest request;
  uint32_t prompt_tokens = 0;  // what Finish reports

  void Start() {
    if (open() && !std::exchange(started_, true)) sink_->OnStarted({});
  }
  // One token; its text is its number, so that loss, repetition and disorder show.
  void Token() {
    Start();
    if (!open() || paused_) return;
    ChunkEvent chunk;
    chunk.text = std::to_string(++tokens_) + " ";
    chunk.tokens = 1;
    paused_ = !sink_->OnChunk(chunk);
  }
  // Text that belongs to no counted token.
  void Text(const std::string& text) {
    Start();
    ChunkEvent chunk;
    chunk.text = text;
    if (open()) sink_->OnChunk(chunk);
  }
  void Finish(const std::string& reason = "length") {
    Start();
    FinishedEvent finished;
    finished.reason = reason;
    finished.completion_tokens = tokens_;
    finished.prompt_tokens = prompt_tokens;
    Over(absl::OkStatus(), &finished);
  }
  void End(const absl::Status& status) { Over(status, nullptr); }
  void Crash() {
    End(Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed,
              "after " + std::to_string(tokens_) + " tokens: the engine ended during the request"));
  }

  bool open() const { return sink_ != nullptr; }
  bool paused() const { return paused_; }
  bool cancelled() const { return cancelled_; }
  uint32_t tokens() const { return tokens_; }

 private:
  friend class FakeProcess;

  void Over(const absl::Status& status, const FinishedEvent* finished) {
    if (const auto sink = std::exchange(sink_, nullptr)) sink->OnEnd(status, finished);
  }

  class Call final : public GenerateCall {
   public:
    explicit Call(std::shared_ptr<FakeReply> reply) : reply_(std::move(reply)) {}
    ~Call() override { Cancel(); }
    void Cancel() override {
      if (!reply_->open() || std::exchange(reply_->cancelled_, true)) return;
      reply_->executor_->Post([reply = reply_] {
        reply->End(Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the request was cancelled"));
      });
    }
    void Resume() override { reply_->paused_ = false; }

   private:
    const std::shared_ptr<FakeReply> reply_;
  };

  Executor* const executor_;
  std::shared_ptr<GenerateSink> sink_;  // null once it has ended
  bool started_ = false, paused_ = false, cancelled_ = false;
  uint32_t tokens_ = 0;
};

// A launched process, from the engine's side.
class FakeProcess : public std::enable_shared_from_this<FakeProcess> {
 public:
  FakeProcess(Executor* executor, LaunchSpec spec, LaunchCallbacks callbacks, int64_t pid)
      : spec(std::move(spec)), pid(pid), executor_(executor), callbacks_(std::move(callbacks)) {}

  const LaunchSpec spec;
  const int64_t pid;
  std::vector<std::shared_ptr<FakeReply>> replies;  // in the order of asking
  bool silent = false;                              // stopped: answers no GetStats, and no Stop with a grace
  EngineStats stats;
  EngineInfo info;  // what Ready reports

  void Started() {
    if (alive()) callbacks_.on_started(pid);
  }
  void Progress(double fraction) {
    if (alive() && !ready_) callbacks_.on_progress(fraction, "weights");
  }
  void Ready() {
    if (!alive() || std::exchange(ready_, true)) return;
    callbacks_.on_ready(std::make_shared<ProcessEngine>(shared_from_this()), info);
  }
  // The process is gone. Its open replies end like those of a crash, before or after the exit is known.
  void Exit(const absl::Status& status, bool replies_first = true) {
    if (!alive()) return;
    alive_ = false;
    if (replies_first) CrashReplies();
    callbacks_.on_exit(status);
    if (!replies_first) CrashReplies();
  }
  // The exit alone; the streams break when CrashReplies says so.
  void ExitAlone(const absl::Status& status) {
    if (std::exchange(alive_, false)) callbacks_.on_exit(status);
  }
  void CrashReplies() {
    const auto open = replies;
    for (const auto& reply : open) reply->Crash();
  }
  void Crash(bool replies_first = true) {
    Exit(Error(absl::StatusCode::kUnavailable, ready_ ? Reason::kEngineCrashed : Reason::kEngineStartFailed,
               "the engine ended with signal 9 (Killed)"),
         replies_first);
  }

  bool alive() const { return alive_; }
  bool ready() const { return ready_; }
  bool stop_asked() const { return stop_asked_; }
  size_t open_replies() const {
    size_t n = 0;
    for (const auto& reply : replies) n += reply->open();
    return n;
  }
  // The reply of that number among the open ones.
  FakeReply& open_reply(size_t index = 0) {
    for (const auto& reply : replies) {
      if (reply->open() && index-- == 0) return *reply;
    }
    std::abort();
  }

 private:
  friend class FakeLauncher;

  class ProcessEngine final : public Engine {
   public:
    explicit ProcessEngine(std::weak_ptr<FakeProcess> process) : process_(std::move(process)) {}
    std::unique_ptr<GenerateCall> Generate(const GenerateRequest& request, Deadline deadline,
                                           std::shared_ptr<GenerateSink> sink) override {
      const auto process = process_.lock();
      auto reply = std::make_shared<FakeReply>(process->executor_, request, std::move(sink));
      process->replies.push_back(reply);
      if (!process->alive()) {
        process->executor_->Post([reply] { reply->Crash(); });
      } else if (deadline != Deadline::max()) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - process->executor_->clock().Now());
        process->executor_->PostAfter(left, [weak = std::weak_ptr<FakeReply>(reply)] {
          if (const auto late = weak.lock()) {
            late->End(
                Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded, "the deadline passed"));
          }
        });
      }
      return std::make_unique<FakeReply::Call>(std::move(reply));
    }
    void Embed(std::vector<std::string> inputs, std::string, bool, Deadline,
               Callback<EmbeddingResult> done) override {
      EmbeddingResult result;
      result.embeddings.resize(inputs.size());
      done(std::move(result));
    }
    void Rerank(std::string, std::vector<std::string>, Deadline, Callback<RerankScores> done) override {
      done(RerankScores{});
    }
    void Tokenize(std::string, bool, bool, Deadline, Callback<TokenizeResult> done) override {
      done(TokenizeResult{});
    }
    void Detokenize(std::vector<int32_t>, Deadline, Callback<std::string> done) override {
      done(std::string());
    }
    void ApplyTemplate(const ChatInput&, Deadline, Callback<TemplateResult> done) override {
      done(TemplateResult{});
    }
    void GetStats(Deadline deadline, Callback<EngineStats> done) override {
      const auto process = process_.lock();
      if (!process->silent && process->alive()) return done(process->stats);
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - process->executor_->clock().Now());
      process->executor_->PostAfter(left, [done = std::move(done)] {
        done(Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded, "no answer"));
      });
    }

   private:
    const std::weak_ptr<FakeProcess> process_;
  };

  class Handle final : public LaunchedEngine {
   public:
    explicit Handle(std::shared_ptr<FakeProcess> process) : process_(std::move(process)) {}
    ~Handle() override { process_->Stop(std::chrono::milliseconds(0)); }
    void Stop(std::chrono::milliseconds grace) override { process_->Stop(grace); }

   private:
    const std::shared_ptr<FakeProcess> process_;
  };

  void Stop(std::chrono::milliseconds grace) {
    if (!alive_) return;
    stop_asked_ = true;
    // A process that lives ends at once when its socket ends; a silent one must be killed.
    const auto wait = silent ? grace : std::chrono::milliseconds(0);
    const auto end = [self = shared_from_this()] { self->Exit(absl::OkStatus()); };
    if (wait.count() > 0) {
      executor_->PostAfter(wait, end);
    } else {
      executor_->Post(end);
    }
  }

  Executor* const executor_;
  LaunchCallbacks callbacks_;
  bool alive_ = true, ready_ = false, stop_asked_ = false;
};

class FakeLauncher final : public Launcher {
 public:
  explicit FakeLauncher(Executor* executor) : executor_(executor) {}

  bool auto_ready = true;                               // processes become ready by themselves, at once
  std::vector<std::shared_ptr<FakeProcess>> processes;  // all that were ever launched
  std::function<void(FakeProcess&)> on_launch;

  std::unique_ptr<LaunchedEngine> Launch(const LaunchSpec& spec, LaunchCallbacks callbacks) override {
    auto process = std::make_shared<FakeProcess>(executor_, spec, std::move(callbacks),
                                                 1000 + static_cast<int64_t>(processes.size()));
    processes.push_back(process);
    if (on_launch) on_launch(*process);
    if (auto_ready) {
      executor_->Post([process] {
        process->Started();
        process->Ready();
      });
    }
    return std::make_unique<FakeProcess::Handle>(std::move(process));
  }

  FakeProcess& last() { return *processes.back(); }
  size_t alive() const {
    size_t n = 0;
    for (const auto& process : processes) n += process->alive();
    return n;
  }

 private:
  Executor* const executor_;
};

}  // namespace rumbo
