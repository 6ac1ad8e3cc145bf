#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/os/detached.h"
#include "base/os/files.h"
#include "base/os/local_socket.h"
#include "base/os/paths.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "sdk/cpp/call.h"

namespace rumbo::inline sdk {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

sdk::Error FromAbsl(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  return {static_cast<Code>(status.code()),
          reason,
          std::string(ReasonCode(reason)),
          MessageOf(status),
          NextStepOf(status),
          std::nullopt};
}

sdk::Error Unreachable(std::string message, std::string next_step) {
  return {Code::kUnavailable, Reason::kDaemonUnreachable, std::string(ReasonCode(Reason::kDaemonUnreachable)),
          std::move(message), std::move(next_step),       std::nullopt};
}

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool IsExecutable(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

Result<std::string> FindDaemon(const ConnectOptions& options) {
  if (!options.daemon_program.empty()) return AbsolutePath(options.daemon_program);
  if (const std::string beside = ExecutableDir() + "/rumbod"; IsExecutable(beside)) return beside;
  const char* path = std::getenv("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string dir = rest.substr(0, colon);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    if (!dir.empty() && dir[0] == '/' && IsExecutable(dir + "/rumbod")) return dir + "/rumbod";
  }
  return Unreachable("no daemon runs, and the program rumbod is neither beside this one nor on the PATH",
                     "Install Rumbo completely, or start rumbod by hand.");
}

// The last lines of the log from `offset` on: what the daemon said before it ended.
std::string LogTail(const std::string& path, off_t offset) {
  constexpr size_t kTail = 600;
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || info.st_size <= offset) return "";
  const off_t start = std::max<off_t>(offset, info.st_size - static_cast<off_t>(kTail));
  std::string text(static_cast<size_t>(info.st_size - start), '\0');
  const ssize_t n = ::pread(fd.get(), text.data(), text.size(), start);
  text.resize(n > 0 ? n : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Goes with its file, which is of no use afterwards.
class StartLock {
 public:
  StartLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  StartLock(StartLock&&) = default;
  ~StartLock() {
    if (fd_.valid()) ::unlink(path_.c_str());
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

// Starting is one at a time: the second starter waits here, then finds the first one's daemon.
Result<StartLock> LockStart(const std::string& socket, Clock::time_point deadline) {
  const std::string path = socket + ".start";
  for (;;) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return FromAbsl(ErrnoStatus(errno, "open " + path));
    struct stat locked, named;
    // One who was before us may have removed the file that we hold.
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && ::fstat(fd.get(), &locked) == 0 &&
        ::stat(path.c_str(), &named) == 0 && locked.st_ino == named.st_ino) {
      return StartLock(path, std::move(fd));
    }
    if (Clock::now() >= deadline) {
      return Unreachable("another program is starting the daemon and does not come to an end",
                         "Try again, or start rumbod by hand.");
    }
    ::usleep(5000);
  }
}

sdk::Error StartFailed(const std::string& what, const std::string& log, off_t offset) {
  const std::string tail = LogTail(log, offset);
  return Unreachable(what + (tail.empty() ? "" : ":\n" + tail), "The whole log is " + log + ".");
}

Result<Done> StartDaemon(const std::string& socket, bool must_be_ours, const ConnectOptions& options) {
  const auto deadline = Clock::now() + options.start_timeout;
  auto program = FindDaemon(options);
  if (!program) return program.error();
  const std::string state = DefaultStateDir();
  if (auto made = MakeDirectories(ParentOf(socket)); !made.ok()) return FromAbsl(made);
  if (must_be_ours) {
    if (auto made = MakePrivateDir(ParentOf(socket)); !made.ok()) return FromAbsl(made);
  }
  if (auto made = MakeDirectories(state); !made.ok()) return FromAbsl(made);
  auto lock = LockStart(socket, deadline);
  if (!lock) return lock.error();
  if (ProbeLocalSocket(socket, must_be_ours).ok()) return Done{};

  const std::string log = state + "/rumbod.log";
  struct stat info;
  const off_t offset = ::stat(log.c_str(), &info) == 0 ? info.st_size : 0;
  if (options.on_start) options.on_start(log);
  auto process = SpawnDetached(*program, {"--socket", socket}, log);
  if (!process.ok()) return FromAbsl(process.status());
  while (!ProbeLocalSocket(socket, must_be_ours).ok()) {
    if (process->HasEnded(2ms)) return StartFailed("the daemon ended while starting", log, offset);
    if (Clock::now() >= deadline) return StartFailed("the daemon was not ready in time", log, offset);
  }
  return Done{};
}

}  // namespace

Result<Client> Client::Connect(const ConnectOptions& options) {
  const std::string socket = options.socket.empty() ? ClientSocketPath() : AbsolutePath(options.socket);
  // A place that we chose ourselves may lie in a shared folder; one that was named is trusted.
  const bool must_be_ours = options.socket.empty() && std::getenv("RUMBO_SOCKET") == nullptr;
  if (const auto probe = ProbeLocalSocket(socket, must_be_ours); !probe.ok()) {
    if (!options.start_daemon || ReasonOf(probe) != Reason::kDaemonUnreachable) return FromAbsl(probe);
    if (auto started = StartDaemon(socket, must_be_ours, options); !started) return started.error();
    Client client(std::make_shared<Channel>(socket, options.app));
    CallOptions call;
    call.timeout = options.start_timeout;
    if (auto status = client.Status(call); !status) return status.error();
    return client;
  }
  return Client(std::make_shared<Channel>(socket, options.app));
}

}  // namespace rumbo::inline sdk
