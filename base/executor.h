#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace rumbo {

// Runs tasks one after another in the order of posting: the thread of everything in daemon/core
// that has state. Implementations: ThreadExecutor here, ManualExecutor (tests, simulation).
class Executor {
 public:
  using Task = std::function<void()>;
  virtual ~Executor() = default;

  // Runs `task` later on the executor, never inside this call. From any thread.
  virtual void Post(Task task) = 0;

  // Runs `task` on the executor once `delay` has passed. From any thread. Not cancellable: a task
  // that may have lost its purpose checks that itself.
  virtual void PostAfter(std::chrono::milliseconds delay, Task task) = 0;

  // True on the executor's own thread.
  virtual bool IsCurrent() const = 0;

  virtual const Clock& clock() const = 0;
};

// One named, joined thread. Tasks still waiting when it is destroyed are dropped; tasks posted by
// other threads after that are a bug of the caller.
std::unique_ptr<Executor> NewThreadExecutor(const char* thread_name);

}  // namespace rumbo
