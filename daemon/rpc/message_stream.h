#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {

// What a stream holds while it is open: a watch, a lease, a seat at a download. Dropped once, by whoever
// comes first, the client's end or ours; what is set after that is let go at once. Thread-safe; the token is
// let go without the lock.
class StreamToken {
 public:
  void Set(std::shared_ptr<void> token) {
    std::lock_guard lock(mutex_);
    if (!over_) token_.swap(token);
  }
  void Drop() {
    std::shared_ptr<void> last;
    std::lock_guard lock(mutex_);
    over_ = true;
    last.swap(token_);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<void> token_;  // guarded by mutex_
  bool over_ = false;            // guarded by mutex_
};

// A server stream of few messages (progress, state changes): a bounded queue between whoever pushes and a
// client that may be slow. Thread-safe; shared between the producer and gRPC (until OnDone).
template <typename Response>
class MessageStream final : public grpc::ServerWriteReactor<Response> {
 public:
  static constexpr size_t kLimit = 4096;

  // `on_cancel` comes once where the client goes before Finish; it must only post.
  static std::shared_ptr<MessageStream> Create(std::function<void()> on_cancel = nullptr) {
    std::shared_ptr<MessageStream> stream(new MessageStream(std::move(on_cancel)));
    stream->self_ = stream;
    return stream;
  }

  // Queues `message`. `replaceable` ones (progress) give way to the next one while the client is behind;
  // where the queue is full of others, the oldest goes.
  void Push(Response message, bool replaceable = false) {
    std::lock_guard lock(mutex_);
    if (ended_ || closed_) return;
    if (!queue_.empty() && queue_.back().replaceable) queue_.pop_back();
    if (queue_.size() >= kLimit) queue_.pop_front();
    queue_.push_back({std::move(message), replaceable});
    Advance();
  }

  void End(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    if (ended_ || closed_) return;
    ended_ = true;
    status_ = ToGrpcStatus(status);
    Advance();
  }

  bool gone() const {
    std::lock_guard lock(mutex_);
    return closed_ || cancelled_;
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) cancelled_ = true;
    Advance();
  }

  void OnCancel() override {
    bool tell;
    {
      std::lock_guard lock(mutex_);
      tell = !ended_;  // also where a write has failed before
      cancelled_ = true;
      Advance();
    }
    if (tell && on_cancel_) on_cancel_();
  }

  void OnDone() override {
    std::shared_ptr<MessageStream> last;
    last.swap(self_);
  }

 private:
  struct Item {
    Response message;
    bool replaceable;
  };

  explicit MessageStream(std::function<void()> on_cancel) : on_cancel_(std::move(on_cancel)) {}

  void Advance() {
    if (writing_ || closed_) return;
    if (cancelled_) {
      closed_ = true;
      this->Finish(grpc::Status::CANCELLED);
    } else if (!queue_.empty()) {
      current_ = std::move(queue_.front().message);
      queue_.pop_front();
      writing_ = true;
      this->StartWrite(&current_);
    } else if (ended_) {
      closed_ = true;
      this->Finish(status_);
    }
  }

  const std::function<void()> on_cancel_;
  mutable std::mutex mutex_;
  std::deque<Item> queue_;
  Response current_;
  grpc::Status status_;
  bool writing_ = false, ended_ = false, closed_ = false, cancelled_ = false;
  std::shared_ptr<MessageStream> self_;
};

}  // namespace rumbo
