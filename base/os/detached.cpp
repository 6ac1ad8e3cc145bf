#include "base/os/detached.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

// What the new process reports before it becomes the program: its pid, then an errno where exec failed.
struct Report {
  int pid;
  int error;
};

// Between fork and exec: async-signal-safe calls only.
[[noreturn]] void Become(const char* program, char* const* argv, int null_fd, int log_fd, int report_fd) {
  Report report{::getpid(), 0};
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int s = 1; s < 32; ++s) ::signal(s, SIG_DFL);
  const bool ready =
      ::chdir("/") == 0 && ::dup2(null_fd, 0) == 0 && ::dup2(log_fd, 1) == 1 && ::dup2(log_fd, 2) == 2;
  for (int fd = 0; fd < 3; ++fd) ::fcntl(fd, F_SETFD, 0);  // They may have been these very numbers.
  // CLOSE_RANGE_CLOEXEC (4): the report pipe must live until exec.
  ::syscall(SYS_close_range, 3u, ~0u, 4u);
  ssize_t ignored = ::write(report_fd, &report, sizeof report);
  if (ready) ::execv(program, argv);
  report.error = errno;
  ignored = ::write(report_fd, &report, sizeof report);
  (void)ignored;
  ::_exit(127);
}

ssize_t ReadReport(int fd, Report* report) {
  ssize_t n;
  do {
    n = ::read(fd, report, sizeof *report);
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace

bool DetachedProcess::HasEnded(std::chrono::milliseconds wait) const {
  if (pidfd_.valid()) {
    pollfd poll{pidfd_.get(), POLLIN, 0};
    return ::poll(&poll, 1, static_cast<int>(wait.count())) > 0;
  }
  ::poll(nullptr, 0, static_cast<int>(wait.count()));
  return ::kill(pid_, 0) != 0 && errno == ESRCH;
}

absl::StatusOr<DetachedProcess> SpawnDetached(const std::string& program,
                                              const std::vector<std::string>& args,
                                              const std::string& log_path) {
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return ErrnoStatus(errno, "open /dev/null");
  UniqueFd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return ErrnoStatus(errno, "open " + log_path);
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd reader(pipe_fds[0]);
  UniqueFd writer(pipe_fds[1]);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);

  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child == 0) {
    ::setsid();
    const pid_t grandchild = ::fork();  // So that the starter has no zombie to wait for.
    if (grandchild != 0) ::_exit(grandchild < 0 ? 1 : 0);
    Become(program.c_str(), argv.data(), null.get(), log.get(), writer.get());
  }
  writer.reset();
  int ignored;
  while (::waitpid(child, &ignored, 0) < 0 && errno == EINTR) {
  }
  Report started{};
  if (ReadReport(reader.get(), &started) != sizeof started)
    return Internal("start " + program + ": fork failed");
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, started.pid, 0u)));
  Report failed{};
  if (ReadReport(reader.get(), &failed) == sizeof failed)
    return ErrnoStatus(failed.error, "start " + program);
  return DetachedProcess(started.pid, std::move(pidfd));
}

}  // namespace rumbo
