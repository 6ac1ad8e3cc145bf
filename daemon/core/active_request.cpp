#include "daemon/core/active_request.h"

#include "base/status.h"

namespace rumbo {
namespace {

double Milliseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

}  // namespace

void ActiveRequest::Dispatch(Engine& engine, uint64_t launch) {
  ++attempts_;
  launch_ = launch;
  dispatched_ = clock_.Now();
  queue_ms_ = Milliseconds(dispatched_ - arrived_);
  NoteEvent();
  {
    std::lock_guard lock(mutex_);
    cause_ = absl::OkStatus();
    attempt_over_ = false;
  }
  // The engine may deliver events, even the end, before Generate returns; and a call may run callbacks on
  // this thread: so none is made under the lock.
  std::shared_ptr<GenerateCall> call =
      engine.Generate(request_.generate, request_.deadline, shared_from_this());
  std::shared_ptr<GenerateCall> previous = call;
  bool resume;
  {
    std::lock_guard lock(mutex_);
    if (!attempt_over_) std::swap(previous, call_);
    resume = std::exchange(resume_wanted_, false);
  }
  if (call && resume) call->Resume();
  if (call && cancelled_) call->Cancel();
}

bool ActiveRequest::EndWith(const absl::Status& status) {
  if (ended_.exchange(true)) return false;
  sink_->OnEnd(status, nullptr);
  return true;
}

void ActiveRequest::SetCauseOfDeath(absl::Status why, bool replay) {
  std::lock_guard lock(mutex_);
  cause_ = std::move(why);
  cause_replay_ = replay;
}

void ActiveRequest::CancelAttempt() {
  cancelled_ = true;
  std::shared_ptr<GenerateCall> call;
  {
    std::lock_guard lock(mutex_);
    call = call_;
  }
  if (call) call->Cancel();
}

void ActiveRequest::Resume() {
  paused_ = false;
  NoteEvent();
  std::shared_ptr<GenerateCall> call;
  {
    std::lock_guard lock(mutex_);
    call = call_;
    if (!call && !attempt_over_) resume_wanted_ = true;
  }
  if (call) call->Resume();
}

TimePoint ActiveRequest::last_event() const {
  if (paused_) return clock_.Now();
  return TimePoint(TimePoint::duration(last_event_.load(std::memory_order_relaxed)));
}

void ActiveRequest::OnStarted(const StartedEvent& event) {
  NoteEvent();
  if (started_ || ended_) return;  // a replay begins again; the client knows already
  started_ = true;
  sink_->OnStarted(event);
}

bool ActiveRequest::OnChunk(ChunkEvent& chunk) {
  NoteEvent();
  if (ended_) return true;
  delivered_ = true;
  if (tokens_.fetch_add(chunk.tokens, std::memory_order_relaxed) == 0) first_token_ = clock_.Now();
  paused_ = true;  // before the call: the sink may resume while it is in it
  const bool go_on = sink_->OnChunk(chunk);
  if (go_on) {
    paused_ = false;
  } else {
    held_up_.store(true, std::memory_order_relaxed);
  }
  return go_on;
}

void ActiveRequest::Complete(const FinishedEvent& finished) {
  finished_ = finished;
  const TimePoint now = clock_.Now();
  finished_.queue_ms = queue_ms_;
  finished_.total_ms = Milliseconds(now - arrived_);
  if (first_token_ == TimePoint{}) return;
  finished_.ttft_ms = Milliseconds(first_token_ - dispatched_);
  const double decode_ms = Milliseconds(now - first_token_);
  if (finished_.decode_ms <= 0) finished_.decode_ms = decode_ms;
  if (finished_.completion_tokens > 1 && decode_ms > 0) {
    finished_.decode_tok_s = (finished_.completion_tokens - 1) * 1000.0 / decode_ms;
  }
}

// What really ended an attempt: an engine that we ended looks to its requests like one that crashed.
absl::Status ActiveRequest::TrueCause(const absl::Status& status, bool* replay) {
  *replay = ReasonOf(status) == Reason::kEngineCrashed || ReasonOf(status) == Reason::kEngineProtocol;
  if (!*replay) return status;
  std::lock_guard lock(mutex_);
  if (cause_.ok()) return status;
  *replay = cause_replay_;
  return Annotate(cause_, "after " + std::to_string(tokens()) + " tokens");
}

void ActiveRequest::OnEnd(const absl::Status& status, const FinishedEvent* finished) {
  // The call keeps its sink, which is this, and this keeps the call: whoever ends first lets go.
  std::shared_ptr<GenerateCall> over;
  {
    std::lock_guard lock(mutex_);
    attempt_over_ = true;
    over.swap(call_);
  }
  if (finished != nullptr) Complete(*finished);
  bool replay = false;
  const absl::Status cause = TrueCause(status, &replay);
  // An attempt that died before the client saw anything may run again on a fresh instance.
  const bool replayable = replay && !delivered_ && !cancelled_;
  if (!replayable && !ended_.exchange(true)) sink_->OnEnd(cause, finished != nullptr ? &finished_ : nullptr);
  on_attempt_end_(shared_from_this(), cause, replayable);
}

}  // namespace rumbo
