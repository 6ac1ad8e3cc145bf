#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "engines/llamacpp/core/decode_loop.h"

namespace rumbo {

// Gives idle sequences to the disk once no answer has ended for a moment, one at a time between the loop's
// other tasks, so that they outlive the process however it ends.
//
// Threading: Touch from any thread. Ownership: borrows the loop, which must outlive it.
class IdleSaver {
 public:
  IdleSaver(DecodeLoop* loop, std::chrono::milliseconds after);
  ~IdleSaver();

  // An answer ended.
  void Touch();

 private:
  void Run();
  void SaveLater();

  DecodeLoop* const loop_;
  const std::chrono::milliseconds after_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::chrono::steady_clock::time_point due_ = std::chrono::steady_clock::time_point::max();
  bool stop_ = false;
  std::thread thread_;  // last
};

}  // namespace rumbo
