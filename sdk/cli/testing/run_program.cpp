#include "sdk/cli/testing/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>

namespace rumbo {
namespace {

std::vector<std::string> Environment(const Program::Spec& spec) {
  std::vector<std::string> env;
  for (const char* name : {"PATH", "HOME", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) env.push_back(std::string(name) + "=" + value);
  }
  env.push_back("TERM=xterm");
  for (const auto& [name, value] : spec.env) env.push_back(name + "=" + value);
  return env;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Program::Program(Spec spec) : input_(std::move(spec.input)), terminal_(spec.terminal) {
  int in[2], out[2], err[2];
  if (::pipe2(err, O_CLOEXEC) != 0) std::abort();
  if (terminal_) {
    termios quiet{};
    ::cfmakeraw(&quiet);
    quiet.c_lflag |= ICANON | ISIG;  // Lines and control characters, but no echo.
    quiet.c_cc[VEOF] = 4;
    winsize size{24, 200, 0, 0};
    if (::openpty(&out[0], &out[1], nullptr, &quiet, &size) != 0) std::abort();
    in[0] = out[1];
    in[1] = ::dup(out[0]);
  } else if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    std::abort();
  }
  auto env = Environment(spec);
  const auto env_pointers = Pointers(env);
  const auto argv = Pointers(spec.argv);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setsid();
    if (terminal_) ::ioctl(out[1], TIOCSCTTY, 0);
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    ::dup2(spec.errors_too ? out[1] : err[1], 2);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    for (int fd = 3; fd < 64; ++fd) ::close(fd);
    ::execve(argv[0], argv.data(), env_pointers.data());
    ::_exit(126);
  }
  ::close(out[1]);
  ::close(err[1]);
  if (!terminal_) ::close(in[0]);
  in_ = in[1];
  out_ = out[0];
  err_ = err[0];
  ::fcntl(in_, F_SETFL, O_NONBLOCK);
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {in_, out_, err_}) {
    if (fd >= 0) ::close(fd);
  }
}

void Program::Signal(int signal) { ::kill(pid_, signal); }

Program::Outcome Program::Wait() {
  Outcome outcome;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto drain = [](int* fd, std::string* text) {
    char buffer[65536];
    const ssize_t n = ::read(*fd, buffer, sizeof buffer);
    if (n > 0) return static_cast<void>(text->append(buffer, n));
    if (n < 0 && errno == EINTR) return;
    ::close(*fd);  // A terminal says EIO when its last program is gone.
    *fd = -1;
  };
  while (out_ >= 0 || err_ >= 0) {
    pollfd fds[3] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}, {in_, POLLOUT, 0}};
    if (std::chrono::steady_clock::now() > deadline) ::kill(pid_, SIGKILL);
    if (::poll(fds, 3, 1000) < 0) continue;
    if (fds[0].revents != 0) drain(&out_, &outcome.out);
    if (fds[1].revents != 0) drain(&err_, &outcome.err);
    if (in_ < 0 || fds[2].revents == 0) continue;
    const ssize_t n = input_.empty() ? 0 : ::write(in_, input_.data(), input_.size());
    if (n > 0) input_.erase(0, n);
    if (n < 0 || input_.empty()) {
      ::close(in_);
      in_ = -1;
    }
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return outcome;
}

}  // namespace rumbo
