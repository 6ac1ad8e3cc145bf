#pragma once

#include <functional>
#include <thread>

#include "base/os/unique_fd.h"

namespace rumbo {

// Takes SIGINT and SIGTERM as calls instead of death, for as long as it lives. Make it before any other
// thread starts: threads inherit the mask it sets. A second signal ends the process at once with 130.
class InterruptWatch {
 public:
  // `on_interrupt` runs on the watch's own thread, once per Rearm.
  explicit InterruptWatch(std::function<void()> on_interrupt);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // The next signal is a first one again.
  void Rearm();

  // While it lives, signals to its thread have their usual effect: for waiting at a prompt.
  class UsualEffect {
   public:
    UsualEffect();
    ~UsualEffect();
  };

 private:
  void Run();

  std::function<void()> on_interrupt_;
  UniqueFd signals_;
  UniqueFd wake_;
  std::thread thread_;
};

}  // namespace rumbo
