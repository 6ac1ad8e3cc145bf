#include "engines/worker_kit/token_stream.h"

#include "base/status.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {
namespace {

void Merge(v1::Chunk* into, v1::Chunk&& chunk) {
  into->mutable_text()->append(chunk.text());
  if (!chunk.reasoning().empty()) into->mutable_reasoning()->append(chunk.reasoning());
  into->set_tokens(into->tokens() + chunk.tokens());
  for (auto& logprob : *chunk.mutable_logprobs()) into->add_logprobs()->Swap(&logprob);
  for (auto& call : *chunk.mutable_tool_calls()) into->add_tool_calls()->Swap(&call);
}

}  // namespace

template <typename Response>
std::shared_ptr<BasicTokenStream<Response>> BasicTokenStream<Response>::Create(
    std::function<void(Event)> on_event) {
  std::shared_ptr<BasicTokenStream> stream(new BasicTokenStream(std::move(on_event)));
  stream->self_ = stream;
  return stream;
}

template <typename Response>
BasicTokenStream<Response>::BasicTokenStream(std::function<void(Event)> on_event)
    : on_event_(std::move(on_event)) {}

template <typename Response>
void BasicTokenStream<Response>::PushStarted(v1::Started started) {
  const std::lock_guard lock(mutex_);
  if (closed_ || ended_) return;
  started_ = std::move(started);
  has_started_ = true;
  Advance();
}

template <typename Response>
bool BasicTokenStream<Response>::PushChunk(v1::Chunk&& chunk) {
  const std::lock_guard lock(mutex_);
  if (closed_ || ended_) return true;
  if (has_chunk_) {
    Merge(&chunk_, std::move(chunk));
  } else {
    chunk_.Swap(&chunk);
    has_chunk_ = true;
  }
  return AfterPush();
}

template <typename Response>
bool BasicTokenStream<Response>::PushText(std::string_view text, uint32_t tokens) {
  const std::lock_guard lock(mutex_);
  if (closed_ || ended_) return true;
  chunk_.mutable_text()->append(text);
  chunk_.set_tokens(chunk_.tokens() + tokens);
  has_chunk_ = true;
  return AfterPush();
}

template <typename Response>
bool BasicTokenStream<Response>::AfterPush() {
  Advance();
  if (BufferedBytes() >= kPauseBytes) paused_ = true;
  return !paused_;
}

template <typename Response>
size_t BasicTokenStream<Response>::BufferedBytes() const {
  if (!has_chunk_) return 0;
  return chunk_.text().size() + chunk_.reasoning().size() + chunk_.tokens() * kBytesPerToken;
}

template <typename Response>
void BasicTokenStream<Response>::End(v1::Finished finished) {
  const std::lock_guard lock(mutex_);
  if (closed_ || ended_) return;
  ended_ = true;
  finished_ = std::move(finished);
  has_finished_ = true;
  Advance();
}

template <typename Response>
void BasicTokenStream<Response>::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (closed_ || ended_) return;
  ended_ = true;
  status_ = ToGrpcStatus(status);
  Advance();
}

template <typename Response>
void BasicTokenStream<Response>::Advance() {
  if (write_in_flight_ || closed_) return;
  if (cancelled_.load(std::memory_order_relaxed)) {
    Close(ToGrpcStatus(Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled by the caller")));
  } else if (has_started_) {
    has_started_ = false;
    *writing_.mutable_started() = std::move(started_);
    write_in_flight_ = true;
    this->StartWrite(&writing_);
  } else if (has_chunk_) {
    has_chunk_ = false;
    writing_.mutable_chunk()->Swap(&chunk_);
    chunk_.Clear();
    write_in_flight_ = true;
    this->StartWrite(&writing_);
  } else if (has_finished_) {
    closed_ = true;
    *writing_.mutable_finished() = std::move(finished_);
    this->StartWriteAndFinish(&writing_, grpc::WriteOptions(), grpc::Status::OK);
  } else if (ended_) {
    Close(status_);
  }
}

template <typename Response>
void BasicTokenStream<Response>::Close(const grpc::Status& status) {
  closed_ = true;
  this->Finish(status);
}

template <typename Response>
void BasicTokenStream<Response>::OnWriteDone(bool ok) {
  bool drained = false;
  {
    const std::lock_guard lock(mutex_);
    write_in_flight_ = false;
    if (!ok) cancelled_.store(true, std::memory_order_release);
    Advance();
    if (paused_ && BufferedBytes() <= kResumeBytes) {
      paused_ = false;
      drained = !closed_;
    }
  }
  if (drained) on_event_(Event::kDrained);
}

template <typename Response>
void BasicTokenStream<Response>::OnCancel() {
  bool tell = false;
  {
    const std::lock_guard lock(mutex_);
    tell = !ended_;
    cancelled_.store(true, std::memory_order_release);
    Advance();
  }
  if (tell) on_event_(Event::kCancelled);
}

template <typename Response>
void BasicTokenStream<Response>::OnDone() {
  std::shared_ptr<BasicTokenStream> last;
  last.swap(self_);
}

template class BasicTokenStream<engine::v1::GenerateResponse>;
template class BasicTokenStream<v1::GenerateResponse>;
template class BasicTokenStream<v1::ChatResponse>;

}  // namespace rumbo
