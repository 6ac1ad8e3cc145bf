#include "daemon/http/out_stream.h"

#include "base/status.h"
#include "daemon/http/inference.h"

namespace rumbo {
void Mailbox::Notify(std::shared_ptr<OutStream> stream) {
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    if (shut_) return;
    first = ready_.empty();
    ready_.push_back(std::move(stream));
  }
  if (first) wake_();
}

void Mailbox::Drain(std::vector<std::shared_ptr<OutStream>>& out) {
  out.clear();
  std::lock_guard lock(mutex_);
  out.swap(ready_);
}

void Mailbox::Shut() {
  std::vector<std::shared_ptr<OutStream>> dropped;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  shut_ = true;
  dropped.swap(ready_);
}

void OutStream::NotifyLocked(std::unique_lock<std::mutex> lock) {
  if (queued_ || abandoned_) return;
  queued_ = true;
  lock.unlock();
  mailbox_->Notify(shared_from_this());
}

void OutStream::OnPlaced(const Placement& placement) {
  std::lock_guard lock(mutex_);
  if (abandoned_) return;
  placement_headers_ = PlacementHeaders(placement);
  encoder_->Placed(placement);
}

void OutStream::OnStarted(const StartedEvent& event) {
  std::unique_lock lock(mutex_);
  if (abandoned_ || last_) return;
  encoder_->Started(event, pending_);
  if (!encoder_->streaming() || head_made_) return;
  head_.emplace();
  head_->content_type = encoder_->content_type();
  head_->headers = std::move(placement_headers_);
  head_->headers.emplace_back("cache-control", "no-cache");
  head_made_ = true;
  NotifyLocked(std::move(lock));
}

bool OutStream::OnChunk(ChunkEvent& chunk) {
  std::unique_lock lock(mutex_);
  if (abandoned_ || last_) return true;
  encoder_->Chunk(chunk, pending_);
  if (!head_made_) return true;  // gathered, or an engine that forgot to start: shown with the end
  const bool full = pending_.size() >= limit_;
  paused_ = full;
  NotifyLocked(std::move(lock));
  return !full;
}

void OutStream::OnEnd(const absl::Status& status, const FinishedEvent* finished) {
  std::unique_lock lock(mutex_);
  if (abandoned_ || last_) return;
  last_ = true;
  if (finished != nullptr) finished_ = *finished;
  const bool ok = status.ok() && finished != nullptr;
  const absl::Status shown = status.ok() ? Internal("the engine ended without a result") : status;
  if (head_made_) {
    ok ? encoder_->Finished(*finished, pending_) : encoder_->Failed(shown, pending_);
  } else {
    if (ok) {
      head_.emplace();
      head_->content_type = encoder_->content_type();
      encoder_->Finished(*finished, pending_);
      head_->body = std::move(pending_);
    } else {
      head_ = encoder_->ErrorReply(shown);
    }
    pending_.clear();
    for (auto& header : placement_headers_) head_->headers.push_back(std::move(header));
    head_made_ = whole_ = true;
  }
  NotifyLocked(std::move(lock));
}

void OutStream::Begin(HttpReply head) {
  std::unique_lock lock(mutex_);
  if (abandoned_ || head_made_) return;
  head_ = std::move(head);
  head_made_ = true;
  NotifyLocked(std::move(lock));
}

bool OutStream::Push(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  if (abandoned_ || last_) return true;
  pending_ += bytes;
  const bool full = pending_.size() >= limit_;
  paused_ = full;
  NotifyLocked(std::move(lock));
  return !full;
}

void OutStream::End() {
  std::unique_lock lock(mutex_);
  if (abandoned_ || last_) return;
  last_ = true;
  NotifyLocked(std::move(lock));
}

void OutStream::Reply(HttpReply whole) {
  std::unique_lock lock(mutex_);
  if (abandoned_ || last_ || head_made_) return;
  head_ = std::move(whole);
  head_made_ = whole_ = last_ = true;
  NotifyLocked(std::move(lock));
}

OutStream::Batch OutStream::Take(std::string& bytes) {
  std::lock_guard lock(mutex_);
  queued_ = false;
  bytes.swap(pending_);
  Batch batch;
  batch.head = std::move(head_);
  head_.reset();
  batch.whole = whole_;
  batch.last = last_;
  batch.resume = paused_;
  batch.finished = std::move(finished_);
  finished_.reset();
  paused_ = false;
  return batch;
}

void OutStream::Abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  pending_.clear();
  pending_.shrink_to_fit();
}

}  // namespace rumbo
