#include "daemon/core/active_request.h"

#include "base/status.h"

namespace rumbo {
namespace {

double Milliseconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

int64_t NowTicks() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

void ActiveRequest::Dispatch(Engine& engine, std::chrono::steady_clock::duration queued) {
  ++attempts_;
  queue_ms_ = Milliseconds(queued);
  dispatched_ = std::chrono::steady_clock::now();
  last_event_ = NowTicks();
  // The engine may deliver events, even the end, before Generate returns; and a call may run callbacks on this thread:
  // so none is made under the lock.
  std::shared_ptr<GenerateCall> call = engine.Generate(request_.generate, request_.deadline, shared_from_this());
  std::shared_ptr<GenerateCall> previous = call;
  bool resume;
  {
    std::lock_guard lock(mutex_);
    std::swap(previous, call_);
    resume = std::exchange(resume_wanted_, false);
  }
  if (resume) call->Resume();
  if (cancelled_) call->Cancel();
}

bool ActiveRequest::EndWith(const absl::Status& status) {
  if (ended_.exchange(true)) return false;
  sink_->OnEnd(status, nullptr);
  return true;
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
  std::shared_ptr<GenerateCall> call;
  {
    std::lock_guard lock(mutex_);
    call = call_;
    if (!call) resume_wanted_ = true;
  }
  if (call) call->Resume();
}

void ActiveRequest::OnStarted(const StartedEvent& event) {
  last_event_.store(NowTicks(), std::memory_order_relaxed);
  if (started_ || ended_) return;  // a replay begins again; the client knows already
  started_ = true;
  sink_->OnStarted(event);
}

bool ActiveRequest::OnChunk(ChunkEvent& chunk) {
  last_event_.store(NowTicks(), std::memory_order_relaxed);
  if (ended_) return true;
  if (tokens_.fetch_add(chunk.tokens, std::memory_order_relaxed) == 0) first_token_ = std::chrono::steady_clock::now();
  return sink_->OnChunk(chunk);
}

void ActiveRequest::OnEnd(const absl::Status& status, const FinishedEvent* finished) {
  if (finished != nullptr) {
    finished_ = *finished;
    const TimePoint now = std::chrono::steady_clock::now();
    finished_.queue_ms = queue_ms_;
    finished_.total_ms = Milliseconds(now - arrived_);
    if (first_token_ != TimePoint{}) {
      finished_.ttft_ms = Milliseconds(first_token_ - dispatched_);
      const double decode_ms = Milliseconds(now - first_token_);
      if (finished_.decode_ms <= 0) finished_.decode_ms = decode_ms;
      if (finished_.completion_tokens > 1 && decode_ms > 0) {
        finished_.decode_tok_s = (finished_.completion_tokens - 1) * 1000.0 / decode_ms;
      }
    }
  }
  // An attempt that died before the client saw a token may run again on a fresh instance.
  const bool replayable = !status.ok() && tokens() == 0 && !cancelled_ &&
                          (ReasonOf(status) == Reason::kEngineCrashed || ReasonOf(status) == Reason::kEngineProtocol);
  if (!replayable && !ended_.exchange(true)) sink_->OnEnd(status, finished != nullptr ? &finished_ : nullptr);
  on_attempt_end_(shared_from_this(), status, replayable);
}

}  // namespace rumbo
