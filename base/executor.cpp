#include "base/executor.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

namespace rumbo {
namespace {

class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(const char* name) : thread_([this] { Run(); }) {
    pthread_setname_np(thread_.native_handle(), name);
  }

  ~ThreadExecutor() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void Post(Task task) override {
    {
      std::lock_guard lock(mutex_);
      ready_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

  void PostAfter(std::chrono::milliseconds delay, Task task) override {
    {
      std::lock_guard lock(mutex_);
      timed_.emplace(clock_.Now() + delay, std::move(task));
    }
    wake_.notify_one();
  }

  bool IsCurrent() const override { return std::this_thread::get_id() == thread_.get_id(); }
  const Clock& clock() const override { return clock_; }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const auto now = clock_.Now();
      while (!timed_.empty() && timed_.begin()->first <= now) {
        ready_.push_back(std::move(timed_.begin()->second));
        timed_.erase(timed_.begin());
      }
      if (!ready_.empty()) {
        Task task = std::move(ready_.front());
        ready_.pop_front();
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
        continue;
      }
      if (timed_.empty()) {
        wake_.wait(lock);
      } else {
        wake_.wait_until(lock, timed_.begin()->first);
      }
    }
  }

  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> ready_;                       // guarded by mutex_
  std::multimap<Clock::TimePoint, Task> timed_;  // guarded by mutex_
  bool stopping_ = false;                        // guarded by mutex_
  std::thread thread_;                           // last: starts when the rest is ready
};

}  // namespace

std::unique_ptr<Executor> NewThreadExecutor(const char* thread_name) {
  return std::make_unique<ThreadExecutor>(thread_name);
}

}  // namespace rumbo
