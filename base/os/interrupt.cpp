#include "base/os/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace rumbo {
namespace {

constexpr uint64_t kRearm = 1;
constexpr uint64_t kStop = uint64_t{1} << 32;

sigset_t Signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  return set;
}

void Wake(int fd, uint64_t what) {
  const ssize_t n = ::write(fd, &what, sizeof what);
  RUMBO_CHECK(n == sizeof what);
}

}  // namespace

InterruptWatch::InterruptWatch(std::function<void()> on_interrupt) : on_interrupt_(std::move(on_interrupt)) {
  const sigset_t set = Signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC));
  RUMBO_CHECK(signals_.valid() && wake_.valid());
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "interrupt");
    Run();
  });
}

InterruptWatch::~InterruptWatch() {
  Wake(wake_.get(), kStop);
  thread_.join();
  const sigset_t set = Signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void InterruptWatch::Rearm() { Wake(wake_.get(), kRearm); }

void InterruptWatch::Run() {
  bool called = false;
  for (;;) {
    pollfd fds[2] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) {
      RUMBO_CHECK(errno == EINTR);
      continue;
    }
    if (fds[1].revents != 0) {
      uint64_t what = 0;
      if (::read(wake_.get(), &what, sizeof what) != sizeof what) continue;
      if (what >= kStop) return;
      called = false;
    }
    if (fds[0].revents == 0) continue;
    signalfd_siginfo info;
    if (::read(signals_.get(), &info, sizeof info) != sizeof info) continue;
    if (called) ::_exit(130);
    called = true;
    on_interrupt_();
  }
}

InterruptWatch::UsualEffect::UsualEffect() {
  const sigset_t set = Signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

InterruptWatch::UsualEffect::~UsualEffect() {
  const sigset_t set = Signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace rumbo
