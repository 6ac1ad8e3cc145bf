#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "daemon/core/types.h"

namespace rumbo {

// One request from its arrival to its one end, shared by the front door (through RequestCall), the core and
// the engine. It is the sink the engine writes to: events pass straight through to the front door's sink on
// the engine's thread; only the end comes back to the core.
//
// Threading: thread-safe. `on_attempt_end` is called on the engine's thread, once per Dispatch.
class ActiveRequest final : public GenerateSink, public std::enable_shared_from_this<ActiveRequest> {
 public:
  using EndCallback =
      std::function<void(std::shared_ptr<ActiveRequest>, const absl::Status&, bool replayable)>;

  // `clock` outlives this and may be read from any thread.
  ActiveRequest(InferenceRequest request, std::shared_ptr<AnswerSink> sink, const Clock& clock,
                EndCallback on_attempt_end)
      : request_(std::move(request)),
        sink_(std::move(sink)),
        clock_(clock),
        arrived_(clock.Now()),
        on_attempt_end_(std::move(on_attempt_end)) {}

  const InferenceRequest& request() const { return request_; }
  AnswerSink& sink() { return *sink_; }
  TimePoint arrived() const { return arrived_; }
  const std::string& id() const { return request_.id; }

  // Core: the request goes to `engine` now, which is launch number `launch` of its instance.
  void Dispatch(Engine& engine, uint64_t launch);

  // Core, while no attempt runs: ends the request with `status` unless it has ended. True for the call that
  // ended it.
  bool EndWith(const absl::Status& status);

  // Core: the engine is about to be ended on purpose; should the attempt die of it, this is why. `replay`: it
  // may still run again where the client saw nothing.
  void SetCauseOfDeath(absl::Status why, bool replay);

  bool ended() const { return ended_.load(); }

  // Front door. Cancel stops a running attempt; a waiting request is the core's to end.
  void CancelAttempt();
  void Resume();
  bool cancelled() const { return cancelled_.load(); }

  int attempts() const { return attempts_; }             // core only
  TimePoint dispatched() const { return dispatched_; }   // core only: the last attempt
  double running_mark() const { return running_mark_; }  // core only, see CoreImpl::RunningSeconds
  void set_running_mark(double value) { running_mark_ = value; }
  bool held_up() const { return held_up_.load(std::memory_order_relaxed); }  // by its client, for a while
  uint64_t launch() const { return launch_; }  // core only: of the last Dispatch
  uint64_t tokens() const { return tokens_.load(std::memory_order_relaxed); }
  // When the engine last gave a sign of life for this request; never while the client holds the stream up.
  TimePoint last_event() const;

  // Of a finished answer: tokens/s and TTFT for the instance's averages.
  const FinishedEvent& finished() const { return finished_; }

  void OnStarted(const StartedEvent& event) override;
  bool OnChunk(ChunkEvent& chunk) override;
  void OnEnd(const absl::Status& status, const FinishedEvent* finished) override;

 private:
  void NoteEvent() { last_event_.store(clock_.Now().time_since_epoch().count(), std::memory_order_relaxed); }
  void Complete(const FinishedEvent& finished);
  absl::Status TrueCause(const absl::Status& status, bool* replay);

  const InferenceRequest request_;
  const std::shared_ptr<AnswerSink> sink_;
  const Clock& clock_;
  const TimePoint arrived_;
  const EndCallback on_attempt_end_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> paused_{false};  // the sink asked for a pause and has not resumed
  std::atomic<uint64_t> tokens_{0};
  std::atomic<int64_t> last_event_{0};  // ticks of the clock
  int attempts_ = 0;
  uint64_t launch_ = 0;
  double running_mark_ = 0;
  std::atomic<bool> held_up_{false};
  bool started_ = false;    // engine's thread
  bool delivered_ = false;  // engine's thread: the client has seen part of the answer
  double queue_ms_ = 0;     // set before dispatch
  TimePoint dispatched_{};
  TimePoint first_token_{};  // engine's thread
  FinishedEvent finished_;

  std::mutex mutex_;
  std::shared_ptr<GenerateCall> call_;  // guarded by mutex_; none after the attempt's end
  bool attempt_over_ = true;            // guarded by mutex_
  bool resume_wanted_ = false;          // guarded by mutex_: Resume came before Dispatch stored the call
  absl::Status cause_;                  // guarded by mutex_
  bool cause_replay_ = false;           // guarded by mutex_
};

}  // namespace rumbo
