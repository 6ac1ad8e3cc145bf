#include "base/os/subprocess.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

// Runs closures on one thread that lives as long as the process.
class ImmortalThread {
 public:
  static ImmortalThread& Get() {
    static ImmortalThread* thread = new ImmortalThread;
    return *thread;
  }

  void RunAndWait(const std::function<void()>& work) {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [&] { return work_ == nullptr; });
    work_ = &work;
    wake_.notify_one();
    done_.wait(lock, [&] { return work_ != &work; });
  }

 private:
  ImmortalThread() {
    std::thread thread([this] { Run(); });
    pthread_setname_np(thread.native_handle(), "rumbo-spawn");
    thread.detach();
  }

  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return work_ != nullptr; });
      (*work_)();
      work_ = nullptr;
      done_.notify_all();
      free_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_, free_;
  const std::function<void()>* work_ = nullptr;  // guarded by mutex_
};

// Everything the child needs, laid out before the clone: after it only raw system calls are allowed.
struct ChildImage {
  std::vector<char*> argv, envp;
  std::vector<std::pair<int, int>> fds;
  char uid_map[64];
  char gid_map[64];
  bool isolate;
  int error_pipe;
  pid_t parent;
};

void WriteWhole(const char* path, const char* text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(fd, text, strlen(text));
  ::close(fd);
}

[[noreturn]] void Fail(int error_pipe) {
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(error_pipe, &error, sizeof error);
  ::_exit(127);
}

// Async-signal-safe: runs in the copy of a multi-threaded process.
[[noreturn]] void RunChild(ChildImage& image) {
  ::setpgid(0, 0);
  if (image.isolate) {
    WriteWhole("/proc/self/setgroups", "deny");
    WriteWhole("/proc/self/uid_map", image.uid_map);
    WriteWhole("/proc/self/gid_map", image.gid_map);
  }
  // Move every source out of the way of every target first.
  int error_pipe = ::fcntl(image.error_pipe, F_DUPFD_CLOEXEC, 200);
  if (error_pipe < 0) Fail(image.error_pipe);
  for (auto& [from, to] : image.fds) {
    from = ::fcntl(from, F_DUPFD_CLOEXEC, 200);
    if (from < 0) Fail(error_pipe);
  }
  int highest = 2;
  for (const auto& [from, to] : image.fds) {
    if (::dup2(from, to) < 0) Fail(error_pipe);
    if (to > highest) highest = to;
  }
  // Close-on-exec for all but what was asked for; targets below `highest` that nobody asked for included.
  ::syscall(SYS_close_range, highest + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (int fd = 3; fd <= highest; ++fd) {
    bool wanted = false;
    for (const auto& [from, to] : image.fds) wanted = wanted || to == fd;
    if (!wanted) ::close(fd);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Our parent may have died before the line above; in a PID namespace it has the number 0.
  const pid_t parent = ::getppid();
  if (parent != image.parent && parent != 0) ::_exit(127);
  ::execve(image.argv[0], image.argv.data(), image.envp.data());
  Fail(error_pipe);
}

pid_t Clone(bool isolate, int* pidfd) {
  clone_args args = {};
  args.flags = CLONE_PIDFD;
  if (isolate) args.flags |= CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC;
  args.pidfd = reinterpret_cast<uint64_t>(pidfd);
  args.exit_signal = SIGCHLD;
  const long pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid >= 0 || errno != ENOSYS) return static_cast<pid_t>(pid);
  // A filter that looks at the flags cannot see those of clone3 and says that there is none (systemd's
  // RestrictNamespaces=); with no stack of its own the child goes on as after fork.
  return static_cast<pid_t>(::syscall(SYS_clone, args.flags | SIGCHLD, nullptr, pidfd, nullptr, nullptr));
}

absl::StatusOr<Child> SpawnHere(const SpawnSpec& spec) {
  ChildImage image;
  for (const std::string& arg : spec.argv) image.argv.push_back(const_cast<char*>(arg.c_str()));
  for (const std::string& var : spec.env) image.envp.push_back(const_cast<char*>(var.c_str()));
  image.argv.push_back(nullptr);
  image.envp.push_back(nullptr);
  std::snprintf(image.uid_map, sizeof image.uid_map, "%u %u 1", ::geteuid(), ::geteuid());
  std::snprintf(image.gid_map, sizeof image.gid_map, "%u %u 1", ::getegid(), ::getegid());
  image.parent = ::getpid();

  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  image.fds = spec.fds;
  for (int standard = 0; standard <= 2; ++standard) {
    bool given = false;
    for (const auto& [from, to] : spec.fds) given = given || to == standard;
    if (!given) image.fds.emplace_back(null.get(), standard);
  }
  int error_pipe[2];
  if (::pipe2(error_pipe, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd error_read(error_pipe[0]), error_write(error_pipe[1]);
  image.error_pipe = error_write.get();

  Child child;
  int pidfd = -1;
  for (const bool isolate : {true, false}) {
    if (isolate && !spec.isolate) continue;
    image.isolate = isolate;
    child.pid = Clone(isolate, &pidfd);
    if (child.pid == 0) RunChild(image);
    child.isolated = isolate;
    if (child.pid > 0) break;
  }
  if (child.pid < 0) return ErrnoStatus(errno, "start " + spec.argv[0]);
  child.pidfd.reset(pidfd);
  error_write.reset();
  int error = 0;
  ssize_t n;
  do {
    n = ::read(error_read.get(), &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof error) {
    Reap(child);
    return ErrnoStatus(error, "start " + spec.argv[0]);
  }
  return child;
}

}  // namespace

absl::StatusOr<Child> Spawn(const SpawnSpec& spec) {
  absl::StatusOr<Child> result = Internal("not started");
  ImmortalThread::Get().RunAndWait([&] { result = SpawnHere(spec); });
  return result;
}

void KillTree(const Child& child) {
  if (child.pid <= 0) return;
  if (!child.isolated) ::kill(-child.pid, SIGKILL);
  Signal(child, SIGKILL);
}

void Signal(const Child& child, int signal) {
  if (child.pidfd.valid()) ::syscall(SYS_pidfd_send_signal, child.pidfd.get(), signal, nullptr, 0);
}

std::string ExitStatus::Describe() const {
  if (exited) return "exit code " + std::to_string(code);
  const char* name = ::strsignal(code);
  return "signal " + std::to_string(code) + " (" + (name ? name : "?") + ")";
}

ExitStatus Reap(const Child& child) {
  siginfo_t info = {};
  int rc;
  do {
    rc = ::waitid(P_PID, child.pid, &info, WEXITED);
  } while (rc != 0 && errno == EINTR);
  ExitStatus status;
  if (rc != 0) return status;
  status.exited = info.si_code == CLD_EXITED;
  status.code = info.si_status;
  return status;
}

absl::StatusOr<HelperResult> RunHelper(SpawnSpec spec, std::chrono::milliseconds deadline,
                                       size_t max_output) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd out_read(out[0]), out_write(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd err_read(err[0]), err_write(err[1]);
  spec.fds.emplace_back(out_write.get(), 1);
  spec.fds.emplace_back(err_write.get(), 2);
  RUMBO_ASSIGN_OR_RETURN(Child child, Spawn(spec));
  out_write.reset();
  err_write.reset();

  HelperResult result;
  const auto end = std::chrono::steady_clock::now() + deadline;
  bool out_open = true, err_open = true;
  constexpr size_t kErrTail = 4096;
  while (out_open || err_open) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) {
      result.timed_out = true;
      break;
    }
    pollfd fds[2] = {{out_open ? out_read.get() : -1, POLLIN, 0},
                     {err_open ? err_read.get() : -1, POLLIN, 0}};
    if (::poll(fds, 2, static_cast<int>(left)) < 0 && errno != EINTR) break;
    char buffer[16384];
    const auto drain = [&](pollfd& fd, std::string& into, bool& open) {
      if (!(fd.revents & (POLLIN | POLLHUP | POLLERR))) return;
      const ssize_t n = ::read(fd.fd, buffer, sizeof buffer);
      if (n > 0) into.append(buffer, n);
      if (n == 0 || (n < 0 && errno != EINTR)) open = false;
    };
    drain(fds[0], result.out, out_open);
    drain(fds[1], result.err, err_open);
    if (result.err.size() > 2 * kErrTail) result.err.erase(0, result.err.size() - kErrTail);
    if (result.out.size() > max_output) {
      KillTree(child);
      Reap(child);
      return Error(absl::StatusCode::kInternal, Reason::kInternal, spec.argv[0] + " printed too much");
    }
  }
  if (!result.timed_out) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd fd = {child.pidfd.get(), POLLIN, 0};
    result.timed_out = ::poll(&fd, 1, static_cast<int>(std::max<int64_t>(left, 1))) <= 0;
  }
  // Also ends what a finished helper left behind in its process group.
  KillTree(child);
  result.exit = Reap(child);
  if (result.err.size() > kErrTail) result.err.erase(0, result.err.size() - kErrTail);
  return result;
}

std::vector<std::string> CleanEnvironment() {
  std::vector<std::string> env = {"LC_ALL=C.UTF-8"};
  for (const char* name : {"PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
                           "XDG_RUNTIME_DIR", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "ASAN_OPTIONS",
                           "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) env.push_back(std::string(name) + "=" + value);
  }
  if (!std::getenv("PATH")) env.push_back("PATH=/usr/local/bin:/usr/bin:/bin");
  return env;
}

}  // namespace rumbo
