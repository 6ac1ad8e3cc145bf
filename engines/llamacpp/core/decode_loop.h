#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "engines/llamacpp/core/scheduler.h"

namespace rumbo {

// The one thread that touches the model: loads it, then runs the scheduler while there is work and sleeps
// otherwise. Everything else posts to it.
//
// Threading: Post functions from any thread; they never wait for a step.
class DecodeLoop {
 public:
  DecodeLoop();
  // Joins; what is under way ends with kCancelled.
  ~DecodeLoop();

  // Runs `task` on the loop's thread between two steps, in order of posting.
  void Run(std::function<void()> task);

  // Hands the scheduler to the loop. On the loop's thread (inside Run), once.
  void Adopt(std::unique_ptr<Scheduler> scheduler);
  // The scheduler, or null before Adopt. On the loop's thread.
  Scheduler* scheduler() { return scheduler_.get(); }

  void Submit(Job job);
  void Cancel(uint64_t id);
  void Resume(uint64_t id);

  // As of the last step. Any thread.
  EngineStats stats() const;

 private:
  struct CancelId {
    uint64_t id;
  };
  struct ResumeId {
    uint64_t id;
  };
  using Message = std::variant<std::function<void()>, Job, CancelId, ResumeId>;

  void Post(Message message);
  void Loop();
  void Handle(Message* message);
  void PublishStats();

  std::unique_ptr<Scheduler> scheduler_;  // the loop's thread only

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Message> inbox_;
  std::atomic<bool> has_mail_{false};
  bool stop_ = false;
  EngineStats stats_;

  std::thread thread_;  // last: starts when all else is there
};

}  // namespace rumbo
