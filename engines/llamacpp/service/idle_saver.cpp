#include "engines/llamacpp/service/idle_saver.h"

#include <pthread.h>

namespace rumbo {

IdleSaver::IdleSaver(DecodeLoop* loop, std::chrono::milliseconds after)
    : loop_(loop), after_(after), thread_([this] { Run(); }) {}

IdleSaver::~IdleSaver() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void IdleSaver::Touch() {
  bool was_waiting = false;
  {
    const std::lock_guard lock(mutex_);
    was_waiting = due_ != std::chrono::steady_clock::time_point::max();
    due_ = std::chrono::steady_clock::now() + after_;
  }
  // Who waits already looks at the new time when the old one is over.
  if (!was_waiting) wake_.notify_one();
}

void IdleSaver::Run() {
  pthread_setname_np(pthread_self(), "idle-saver");
  constexpr auto kNever = std::chrono::steady_clock::time_point::max();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (due_ == kNever) {
      wake_.wait(lock);
    } else if (const auto until = due_; std::chrono::steady_clock::now() < until) {
      wake_.wait_until(lock, until);
    } else {
      due_ = kNever;
      SaveLater();
    }
  }
}

void IdleSaver::SaveLater() {
  loop_->Run([this] {
    if (loop_->scheduler() != nullptr && loop_->scheduler()->PersistIdle()) SaveLater();
  });
}

}  // namespace rumbo
