#include "devices/probe/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <thread>

#include "devices/api/steering.h"

extern char** environ;

namespace rumbo {
namespace {

constexpr size_t kMaxOutput = 4 * 1024 * 1024;
constexpr size_t kMaxError = 4096;

using Time = std::chrono::steady_clock;

int MillisLeft(Time::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Time::now()).count();
  return left < 0 ? 0 : static_cast<int>(left) + 1;
}

// False at the end of the stream. Beyond `limit` bytes are read and dropped.
bool Drain(UniqueFd& fd, std::string& into, size_t limit) {
  char buffer[16384];
  const ssize_t n = read(fd.get(), buffer, sizeof buffer);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) {
    fd.reset();
    return false;
  }
  into.append(buffer, std::min(static_cast<size_t>(n), limit - std::min(limit, into.size())));
  return true;
}

// Our environment without what steers vendor runtimes: a child's ordinals are those of the whole machine.
std::vector<char*> ChildEnvironment() {
  std::vector<char*> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    const bool steers = std::any_of(std::begin(kSteeringVariables), std::end(kSteeringVariables),
                                    [&](const char* word) { return name == word; });
    if (!steers) out.push_back(*variable);
  }
  out.push_back(nullptr);
  return out;
}

// The last line, which is where programs say why.
std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of("\r\n ");
  if (end == std::string::npos) return "";
  const size_t start = text.rfind('\n', end);
  return text
      .substr(start == std::string::npos ? 0 : start + 1, end - (start == std::string::npos ? -1 : start))
      .substr(0, 300);
}

}  // namespace

ProbeChild::ProbeChild(std::vector<std::string> argv) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) {
    spawn_error_ = errno;
    return;
  }
  out_.reset(out[0]);
  UniqueFd out_write(out[1]);
  if (pipe2(err, O_CLOEXEC) != 0) {
    spawn_error_ = errno;
    return;
  }
  err_.reset(err[0]);
  UniqueFd err_write(err[1]);

  std::vector<char*> arguments;
  for (std::string& a : argv) arguments.push_back(a.data());
  arguments.push_back(nullptr);
  const std::vector<char*> environment = ChildEnvironment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err_write.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  spawn_error_ =
      posix_spawnp(&pid_, argv[0].c_str(), &actions, &attributes, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (spawn_error_ != 0) pid_ = -1;
}

ProbeChild::~ProbeChild() { Kill(); }

void ProbeChild::Kill() {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  // A child stuck inside a driver cannot be reaped now; init gets it when this short-lived process ends.
  for (int i = 0; i < 50 && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
}

ProbeChild::Outcome ProbeChild::Finish(Time::time_point deadline) {
  Outcome outcome;
  if (pid_ <= 0) {
    outcome.error =
        spawn_error_ == 0 ? "already finished" : fmt::format("cannot start: {}", strerror(spawn_error_));
    return outcome;
  }
  std::string errors;
  // A child that answered in time is read even where we come late (another one used up the time), but not for
  // ever: `late` reads at most.
  for (int late = 1024; (out_.valid() || err_.valid()) && late > 0;) {
    pollfd fds[2] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};  // poll ignores an fd of -1
    const int left = MillisLeft(deadline);
    if (left == 0) --late;
    const int ready = poll(fds, 2, left);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    if (fds[0].revents != 0) Drain(out_, outcome.output, kMaxOutput);
    if (fds[1].revents != 0) Drain(err_, errors, kMaxError);
  }
  int status = 0;
  pid_t reaped = 0;
  // Both streams at their end means exiting, which takes microseconds; until the deadline at most.
  while ((reaped = waitpid(pid_, &status, WNOHANG)) == 0 && MillisLeft(deadline) > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  if (reaped == 0) {
    Kill();
    outcome.timed_out = true;
    outcome.error = "did not answer within its deadline";
    return outcome;
  }
  kill(-pid_, SIGKILL);  // whatever it started
  pid_ = -1;
  if (reaped > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    outcome.ok = true;
  } else if (reaped > 0 && WIFSIGNALED(status)) {
    outcome.error = fmt::format("crashed with signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    outcome.error = fmt::format("failed with exit code {}", WEXITSTATUS(status));
    if (const std::string line = LastLine(errors); !line.empty()) outcome.error += ": " + line;
  }
  return outcome;
}

}  // namespace rumbo
