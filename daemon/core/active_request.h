#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "daemon/core/types.h"

namespace rumbo {

// One request from its arrival to its one end, shared by the front door (through RequestCall), the core and the engine.
// It is the sink the engine writes to: events pass straight through to the front door's sink on the engine's
// thread; only the end comes back to the core.
//
// Threading: thread-safe. `on_attempt_end` is called on the engine's thread, once per Attach.
class ActiveRequest final : public GenerateSink, public std::enable_shared_from_this<ActiveRequest> {
 public:
  using EndCallback = std::function<void(std::shared_ptr<ActiveRequest>, const absl::Status&, bool replayable)>;

  ActiveRequest(InferenceRequest request, std::shared_ptr<AnswerSink> sink, TimePoint arrived, EndCallback on_attempt_end)
      : request_(std::move(request)), sink_(std::move(sink)), arrived_(arrived), on_attempt_end_(std::move(on_attempt_end)) {}

  const InferenceRequest& request() const { return request_; }
  AnswerSink& sink() { return *sink_; }
  TimePoint arrived() const { return arrived_; }
  const std::string& id() const { return request_.id; }

  // Core: the request goes to `engine` now. `queued` is the time it waited.
  void Dispatch(Engine& engine, std::chrono::steady_clock::duration queued);

  // Core, front door: ends the request with `status` unless it has ended. Returns true for the call that ended it.
  bool EndWith(const absl::Status& status);

  bool ended() const { return ended_.load(); }

  // Front door. Cancel stops a running attempt; a waiting request is the core's to end.
  void CancelAttempt();
  void Resume();
  bool cancelled() const { return cancelled_.load(); }

  int attempts() const { return attempts_; }  // core only
  uint64_t tokens() const { return tokens_.load(std::memory_order_relaxed); }
  // Time of the last event, for the watch against hangs; steady_clock ticks.
  int64_t last_event() const { return last_event_.load(std::memory_order_relaxed); }

  // Of a finished answer: tokens/s and TTFT for the instance's averages.
  const FinishedEvent& finished() const { return finished_; }

  void OnStarted(const StartedEvent& event) override;
  bool OnChunk(ChunkEvent& chunk) override;
  void OnEnd(const absl::Status& status, const FinishedEvent* finished) override;

 private:
  const InferenceRequest request_;
  const std::shared_ptr<AnswerSink> sink_;
  const TimePoint arrived_;
  const EndCallback on_attempt_end_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> tokens_{0};
  std::atomic<int64_t> last_event_{0};
  int attempts_ = 0;
  bool started_ = false;          // engine's thread
  double queue_ms_ = 0;           // set before dispatch
  TimePoint dispatched_{};
  TimePoint first_token_{};       // engine's thread
  FinishedEvent finished_;

  std::mutex mutex_;
  std::shared_ptr<GenerateCall> call_;  // guarded by mutex_
  bool resume_wanted_ = false;          // guarded by mutex_: Resume came before Dispatch stored the call
};

}  // namespace rumbo
