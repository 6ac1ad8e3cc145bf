#include "daemon/supervisor/supervisor.h"

#include <fcntl.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "base/os/files.h"
#include "base/os/subprocess.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/supervisor/cgroup.h"
#include "daemon/supervisor/journal.h"
#include "daemon/supervisor/processes.h"
#include "daemon/supervisor/prompt_folder.h"
#include "daemon/supervisor/sandbox_profile.h"
#include "daemon/supervisor/worker_client.h"

namespace rumbo {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr int kBusyTurns = 10;
constexpr int kLinesPerSecond = 200;

// The last lines of a stream of text, bounded.
class Tail {
 public:
  // Appends and calls `line` with each line that became complete; where it says no the line is not kept.
  template <typename F>
  void Append(std::string_view text, F line) {
    for (const char c : text) {
      if (c == '\n' || partial_.size() >= kMaxLine) {
        if (!partial_.empty()) {
          if (line(partial_)) lines_.push_back(std::move(partial_));
          if (lines_.size() > kMaxLines) lines_.pop_front();
        }
        partial_.clear();
      }
      if (c != '\n') partial_ += c;
    }
  }
  std::string Text() const {
    std::string out;
    for (const std::string& l : lines_) out += (out.empty() ? "" : " | ") + EscapeForLog(l, 300);
    if (!partial_.empty()) out += (out.empty() ? "" : " | ") + EscapeForLog(partial_, 300);
    return out;
  }

 private:
  static constexpr size_t kMaxLines = 8;
  static constexpr size_t kMaxLine = 1000;
  std::deque<std::string> lines_;
  std::string partial_;
};

// One worker process, on the supervisor's thread but where said.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(std::shared_ptr<asio::io_context> io, const SupervisorOptions& options, LaunchSpec spec,
         LaunchCallbacks callbacks)
      : io_(std::move(io)),
        options_(options),
        spec_(std::move(spec)),
        callbacks_(std::move(callbacks)),
        exit_watch_(*io_),
        stderr_(*io_),
        silence_(*io_),
        grace_(*io_) {}

  void Start(const EngineProgram* program) {
    if (program == nullptr) {
      return End(Error(absl::StatusCode::kFailedPrecondition, Reason::kEngineNotInstalled,
                       "engine " + spec_.engine + " is not installed", "`rumbo engines` lists what is."));
    }
    // A cache is no reason not to start: without its folder the worker has none.
    if (!spec_.cache_dir.empty()) {
      if (const absl::Status made = PreparePromptFolder(spec_.cache_dir); !made.ok())
        spdlog::warn("{}: no folder for prompts: {}", spec_.instance_id, EscapeForLog(MessageOf(made)));
    }
    int sockets[2], pipe[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
      return End(ErrnoStatus(errno, "socketpair"));
    UniqueFd ours(sockets[0]), theirs(sockets[1]);
    if (::pipe2(pipe, O_CLOEXEC) != 0) return End(ErrnoStatus(errno, "pipe"));
    UniqueFd err_read(pipe[0]), err_write(pipe[1]);

    SpawnSpec spawn;
    spawn.argv = {program->path};
    spawn.argv.insert(spawn.argv.end(), program->args.begin(), program->args.end());
    spawn.env = CleanEnvironment();
    spawn.env.push_back("RUMBO_ENGINE_FD=3");
    // The chosen devices and no others, whatever else the machine has.
    spawn.env.push_back("GGML_VK_VISIBLE_DEVICES=" + Selectors("vulkan"));
    spawn.env.push_back("HIP_VISIBLE_DEVICES=" + Selectors("hip"));
    spawn.env.push_back("CUDA_VISIBLE_DEVICES=" + Selectors(spec_.backend == "hip" ? "hip" : "cuda"));
    spawn.fds = {{theirs.get(), 3}, {err_write.get(), 1}, {err_write.get(), 2}};
    spawn.isolate = options_.isolate;
    if (const absl::Status sandboxed = AddSandbox(spawn); !sandboxed.ok()) return End(sandboxed);
    auto child = Spawn(spawn);
    if (!child.ok()) {
      return End(
          Error(absl::StatusCode::kUnavailable, Reason::kEngineStartFailed, MessageOf(child.status())));
    }
    child_ = std::move(*child);
    running_ = true;
    if (options_.journal != nullptr) options_.journal->Started(spec_.engine, spec_.backend, child_.isolated);
    failure_texts_ = program->failure_texts;
    if (options_.groups) group_ = WorkerGroup::Create(spec_.instance_id);
    if (group_ && !group_->Add(child_.pid)) group_.reset();
    if (options_.record != nullptr) options_.record->Add(child_.pid);
    theirs.reset();
    err_write.reset();
    socket_.reset(::fcntl(ours.get(), F_DUPFD_CLOEXEC, 3));
    const int flags = ::fcntl(ours.get(), F_GETFL);
    ::fcntl(ours.get(), F_SETFL, flags | O_NONBLOCK);

    auto self = shared_from_this();
    exit_watch_.assign(child_.pidfd.get());
    exit_watch_.async_wait(asio::posix::stream_descriptor::wait_read,
                           [self](const boost::system::error_code& error) {
                             if (!error) self->OnExit();
                           });
    ::fcntl(err_read.get(), F_SETFL, O_NONBLOCK);
    stderr_.assign(err_read.release());
    ReadStderr();
    if (callbacks_.on_started) callbacks_.on_started(child_.pid);

    client_ = WorkerClient::Create(std::move(ours), [weak = weak_from_this()](const std::string& what) {
      if (auto worker = weak.lock()) worker->Kill(Reason::kEngineProtocol, what);
    });
    ArmSilence();
    client_->Load(
        spec_,
        [self](double fraction, const std::string& step) {
          asio::post(*self->io_, [self, fraction, step] {
            if (self->ended_) return;
            if (fraction != self->fraction_ || step != self->step_) self->ArmSilence();
            self->fraction_ = fraction;
            self->step_ = step;
            if (self->callbacks_.on_progress) self->callbacks_.on_progress(fraction, step);
          });
        },
        [self](absl::StatusOr<EngineInfo> info) {
          asio::post(*self->io_,
                     [self, info = std::move(info)]() mutable { self->OnLoaded(std::move(info)); });
        });
  }

  // From any thread.
  void Kill(Reason reason, std::string what) {
    asio::post(*io_, [self = shared_from_this(), reason, what = std::move(what)] {
      if (self->ended_ || self->stopping_) return;
      self->Fail(Error(absl::StatusCode::kUnavailable, reason, what));
    });
  }

  void Stop(milliseconds grace) {
    asio::post(*io_, [self = shared_from_this(), grace] {
      if (self->ended_ || !self->running_) return;
      if (!self->stopping_) spdlog::info("{}: stopping", self->spec_.instance_id);
      self->stopping_ = true;
      self->silence_.cancel();
      if (grace.count() <= 0) {
        self->KillAll();
        return;
      }
      // A worker ends when its socket ends; the pidfd tells. (SIGTERM would not reach the init of a PID
      // namespace.)
      ::shutdown(self->socket_.get(), SHUT_RDWR);
      self->grace_.expires_after(grace);
      self->grace_.async_wait([self](const boost::system::error_code& error) {
        if (!error && !self->ended_) self->KillAll();
      });
    });
  }

 private:
  std::string Selectors(const std::string& backend) const {
    std::string out;
    if (spec_.backend != backend) return out;
    for (const std::string& selector : spec_.device_selectors) out += (out.empty() ? "" : ",") + selector;
    return out;
  }

  // A worker that cannot have its sandbox does not start: nothing runs without in its stead.
  absl::Status AddSandbox(SpawnSpec& spawn) const {
    if (options_.catalog == nullptr) return absl::OkStatus();
    const CatalogEngine* engine = options_.catalog->Find(spec_.engine);
    if (engine == nullptr) return Internal("the catalog has no engine " + spec_.engine);
    SandboxFolders folders;
    if (const char* home = std::getenv("HOME")) folders.home = home;
    folders.cache = spec_.cache_dir;
    if (spec_.backend != "cpu" && !options_.cache_dir.empty()) {
      folders.drivers = options_.cache_dir + "/drivers";
      RUMBO_RETURN_IF_ERROR(MakeDirectories(folders.drivers, 0700));
      std::erase_if(spawn.env, [](const std::string& v) { return v.rfind("XDG_CACHE_HOME=", 0) == 0; });
      spawn.env.push_back("XDG_CACHE_HOME=" + folders.drivers);
    }
    RUMBO_ASSIGN_OR_RETURN(SandboxOptions sandbox, WorkerSandbox(*engine, spec_, folders));
    // Drivers that the user named for the loader, in his own environment.
    for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
      const char* list = spec_.backend == "vulkan" ? std::getenv(name) : nullptr;
      for (std::string_view rest = list == nullptr ? "" : list; !rest.empty();) {
        const size_t colon = std::min(rest.find(':'), rest.size());
        if (rest.starts_with('/')) sandbox.read_only.emplace_back(rest.substr(0, colon));
        rest.remove_prefix(std::min(colon + 1, rest.size()));
      }
    }
    spawn.env.push_back("RUMBO_WORKER_SANDBOX=" + SandboxToText(sandbox));
    return absl::OkStatus();
  }

  // False where the line is about the sandbox and not among the engine's own words.
  bool OnLine(const std::string& line) {
    LogLine(line);
    const std::string path =
        options_.journal == nullptr ? "" : options_.journal->Line(spec_.engine, spec_.backend, line);
    denied_ = denied_ || !path.empty();
    return line.rfind("rumbo-sandbox ", 0) != 0 || line.rfind("rumbo-sandbox failed", 0) == 0;
  }

  void ArmSilence(int busy = 0) {
    const std::optional<uint64_t> work = WorkOf(child_.pid);
    silence_.expires_after(options_.load_silence);
    silence_.async_wait([weak = weak_from_this(), busy, work](const boost::system::error_code& error) {
      auto self = weak.lock();
      if (error || !self || self->ended_ || self->ready_) return;
      // It may compile shaders, or read from a slow disk, and have nothing to report for long.
      const std::optional<uint64_t> now = WorkOf(self->child_.pid);
      if (now && work && *now > *work && busy < kBusyTurns) return self->ArmSilence(busy + 1);
      self->Fail(Error(absl::StatusCode::kUnavailable, Reason::kEngineHung,
                       "the engine gave no sign of life while loading for " +
                           std::to_string(self->options_.load_silence.count() / 1000) + " s"));
    });
  }

  void OnLoaded(absl::StatusOr<EngineInfo> info) {
    silence_.cancel();
    if (ended_) return;
    if (!info.ok()) {
      // A worker that died says UNAVAILABLE; its exit status and last lines, known in a moment, say more.
      if (ReasonOf(info.status()) == Reason::kEngineCrashed) return;
      return Fail(info.status());
    }
    ready_ = true;
    if (callbacks_.on_ready) callbacks_.on_ready(client_, std::move(*info));
  }

  // Ends the worker for `why`, which becomes its exit status.
  void Fail(absl::Status why) {
    if (failure_.ok()) failure_ = std::move(why);
    KillAll();
  }

  void ReadStderr() {
    stderr_.async_read_some(
        asio::buffer(buffer_), [self = shared_from_this()](const boost::system::error_code& error, size_t n) {
          if (error) return self->stderr_.close();
          self->tail_.Append({self->buffer_, n}, [&](const std::string& line) { return self->OnLine(line); });
          self->ReadStderr();
        });
  }

  void OnExit() {
    // What it wrote last may still be in the pipe.
    boost::system::error_code error;
    while (stderr_.is_open()) {
      const size_t n = stderr_.read_some(asio::buffer(buffer_), error);
      if (error || n == 0) break;
      tail_.Append({buffer_, n}, [this](const std::string& line) { return OnLine(line); });
    }
    KillAll();
    const uint64_t out_of_memory = group_ ? group_->OutOfMemoryKills() : 0;
    const ExitStatus exit = Reap(child_);
    group_.reset();  // its memory counts as free once nobody is left in it
    if (options_.record != nullptr) options_.record->Remove(child_.pid);
    running_ = false;
    exit_watch_.release();
    absl::Status status;
    if (!stopping_) {
      const std::string last = tail_.Text();
      std::string words = last.empty() ? "" : "; its last lines: " + last;
      if (!ready_ && options_.journal != nullptr)
        options_.journal->FailedToStart(spec_.engine, spec_.backend);
      if (!ready_ && denied_) words = "; its sandbox denied it what `rumbo doctor` names" + words;
      if (!failure_.ok()) {
        status = failure_;
        if (ReasonOf(failure_) != Reason::kModelInvalid && !last.empty()) {
          status =
              Error(failure_.code(), ReasonOf(failure_), MessageOf(failure_) + words, NextStepOf(failure_));
        }
      } else if (out_of_memory > 0) {
        status = Error(absl::StatusCode::kUnavailable, Reason::kDoesNotFit,
                       "the kernel ended the engine: out of memory" + words,
                       "Load it with less context or fewer sessions, or free memory.");
      } else if (!ready_) {
        status = Error(absl::StatusCode::kUnavailable, Reason::kEngineStartFailed,
                       "the engine ended with " + exit.Describe() + " before it was ready" + words);
      } else {
        status = Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed,
                       "the engine ended with " + exit.Describe() + words);
      }
      status = Classified(std::move(status), last);
      spdlog::warn("{}: {}", spec_.instance_id, EscapeForLog(MessageOf(status), 2000));
    }
    End(status);
  }

  void KillAll() {
    KillTree(child_);
    if (group_) group_->KillAll();
  }

  // A worker that floods us fills neither the log nor the disk.
  void LogLine(const std::string& line) {
    const auto now = std::chrono::steady_clock::now();
    if (now - window_ > std::chrono::seconds(1)) {
      if (lines_ > kLinesPerSecond) {
        spdlog::warn("{}: {} more lines left out", spec_.instance_id, lines_ - kLinesPerSecond);
      }
      window_ = now;
      lines_ = 0;
    }
    if (++lines_ <= kLinesPerSecond) spdlog::info("{}: {}", spec_.instance_id, EscapeForLog(line));
  }

  // What the catalog knows about the last words of this engine. A lost device is the device's fault.
  absl::Status Classified(absl::Status status, const std::string& last) const {
    for (const auto& [text, meaning] : failure_texts_) {
      if (last.find(text) == std::string::npos) continue;
      Reason reason = ReasonOf(status);
      if (text.find("DeviceLost") != std::string::npos) reason = Reason::kDeviceLost;
      return Error(status.code(), reason, meaning + " (" + MessageOf(status) + ")", NextStepOf(status));
    }
    return status;
  }

  void End(absl::Status status) {
    if (ended_) return;
    ended_ = true;
    silence_.cancel();
    grace_.cancel();
    boost::system::error_code ignored;
    stderr_.close(ignored);
    client_.reset();
    socket_.reset();
    LaunchCallbacks callbacks = std::move(callbacks_);
    if (callbacks.on_exit) callbacks.on_exit(status);
  }

  // Shared: a callback of gRPC may hold the last reference to this when the supervisor is gone.
  const std::shared_ptr<asio::io_context> io_;
  const SupervisorOptions options_;
  const LaunchSpec spec_;
  LaunchCallbacks callbacks_;
  Child child_;
  UniqueFd socket_;  // a second name of the one gRPC has, to end it
  bool running_ = false, ready_ = false, stopping_ = false, ended_ = false;
  absl::Status failure_;
  std::unique_ptr<WorkerGroup> group_;
  std::map<std::string, std::string> failure_texts_;
  double fraction_ = -1;  // last reported
  std::string step_;
  std::chrono::steady_clock::time_point window_{};
  int lines_ = 0;  // since then
  std::shared_ptr<WorkerClient> client_;
  Tail tail_;
  bool denied_ = false;  // its sandbox denied it a path
  asio::posix::stream_descriptor exit_watch_;
  asio::posix::stream_descriptor stderr_;
  asio::steady_timer silence_;
  asio::steady_timer grace_;
  char buffer_[4096];
};

class Handle final : public LaunchedEngine {
 public:
  explicit Handle(std::shared_ptr<Worker> worker) : worker_(std::move(worker)) {}
  ~Handle() override { worker_->Stop(milliseconds(0)); }
  void Stop(milliseconds grace) override { worker_->Stop(grace); }

 private:
  const std::shared_ptr<Worker> worker_;
};

class Supervisor final : public Launcher {
 public:
  Supervisor(SupervisorOptions options, std::vector<EngineProgram> programs)
      : options_(options),
        programs_(std::move(programs)),
        guard_(asio::make_work_guard(*io_)),
        thread_([io = io_] { io->run(); }) {
    pthread_setname_np(thread_.native_handle(), "rumbo-super");
  }

  // Kills what still runs and waits until it is gone.
  ~Supervisor() override {
    {
      std::lock_guard lock(mutex_);
      for (const auto& weak : workers_) {
        if (auto worker = weak.lock()) worker->Stop(milliseconds(0));
      }
    }
    guard_.reset();
    thread_.join();
  }

  std::unique_ptr<LaunchedEngine> Launch(const LaunchSpec& spec, LaunchCallbacks callbacks) override {
    const EngineProgram* program = nullptr;
    for (const EngineProgram& candidate : programs_) {
      if (candidate.engine.name != spec.engine) continue;
      if (!spec.engine_build.empty() && candidate.engine.build != spec.engine_build) continue;
      program = &candidate;
      break;
    }
    auto worker = std::make_shared<Worker>(io_, options_, spec, std::move(callbacks));
    {
      std::lock_guard lock(mutex_);
      std::erase_if(workers_, [](const auto& weak) { return weak.expired(); });
      workers_.push_back(worker);
    }
    asio::post(*io_, [worker, program] { worker->Start(program); });
    return std::make_unique<Handle>(std::move(worker));
  }

 private:
  const SupervisorOptions options_;
  const std::vector<EngineProgram> programs_;
  const std::shared_ptr<asio::io_context> io_ = std::make_shared<asio::io_context>(1);
  std::mutex mutex_;
  std::vector<std::weak_ptr<Worker>> workers_;  // guarded by mutex_
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  std::thread thread_;
};

std::string PackValue(const std::string& text, const std::string& key) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text.compare(at, key.size() + 1, key + "=") == 0)
      return text.substr(at + key.size() + 1, end - at - key.size() - 1);
    at = end + 1;
  }
  return "";
}

}  // namespace

std::unique_ptr<Launcher> NewSupervisor(SupervisorOptions options, std::vector<EngineProgram> programs) {
  return std::make_unique<Supervisor>(options, std::move(programs));
}

std::vector<EngineProgram> FindWorkers(const std::string& bin_dir) {
  std::vector<EngineProgram> programs;
  // A build for this very processor beats a portable one.
  for (const char* build : {"native", "custom", "prebuilt"}) {
    const std::string dir = bin_dir + "/engines/llamacpp-" + build;
    const std::string path = dir + "/rumbo-llamacpp";
    if (::access(path.c_str(), X_OK) != 0) continue;
    EngineProgram program;
    program.path = path;
    program.engine.name = "llamacpp";
    program.engine.build = build;
    program.engine.backends = {"cpu"};
    if (const auto pack = ReadFile(dir + "/PACK", 4096); pack.ok()) {
      program.engine.version = PackValue(*pack, "version");
      program.engine.backends.clear();
      const std::string backends = PackValue(*pack, "backends");
      for (size_t at = 0; at < backends.size();) {
        const size_t end = std::min(backends.find(' ', at), backends.size());
        if (end > at) program.engine.backends.push_back(backends.substr(at, end - at));
        at = end + 1;
      }
    }
    programs.push_back(std::move(program));
  }
  if (::access((bin_dir + "/rumbo-fake").c_str(), X_OK) == 0) {
    programs.push_back({{"fake", "", "1", {"cpu", "vulkan"}}, bin_dir + "/rumbo-fake", {}});
  }
  return programs;
}

}  // namespace rumbo
