#pragma once

#include <deque>
#include <map>

#include "base/executor.h"

namespace rumbo {

// For tests and the simulation: nothing runs until asked, and time moves only when told.
class ManualExecutor final : public Executor {
 public:
  void Post(Task task) override { ready_.push_back(std::move(task)); }
  void PostAfter(std::chrono::milliseconds delay, Task task) override {
    timed_.emplace(clock_.now + delay, std::move(task));
  }
  bool IsCurrent() const override { return true; }
  const Clock& clock() const override { return clock_; }

  // Runs what is ready, including what that posts. Returns the number of tasks run.
  int RunReady() {
    int count = 0;
    while (!ready_.empty()) {
      Task task = std::move(ready_.front());
      ready_.pop_front();
      task();
      ++count;
    }
    return count;
  }

  // Moves time forward by `step`, running each timed task at its own time.
  void Advance(std::chrono::milliseconds step) {
    const Clock::TimePoint end = clock_.now + step;
    RunReady();
    while (!timed_.empty() && timed_.begin()->first <= end) {
      clock_.now = timed_.begin()->first;
      Task task = std::move(timed_.begin()->second);
      timed_.erase(timed_.begin());
      task();
      RunReady();
    }
    clock_.now = end;
  }

  bool idle() const { return ready_.empty() && timed_.empty(); }

 private:
  struct ManualClock final : Clock {
    TimePoint Now() const override { return now; }
    TimePoint now{};
  };
  ManualClock clock_;
  std::deque<Task> ready_;
  std::multimap<Clock::TimePoint, Task> timed_;
};

}  // namespace rumbo
