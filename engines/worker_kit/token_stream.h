#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "rumbo/engine/v1/engine.pb.h"

namespace rumbo {

// One answer on its way out: a bounded buffer between a producer that must not block and a client that may be
// slow. While one message is being written, further chunks are merged into one that waits.
//
// Threading: thread-safe. The producer calls the Push functions and End from any one thread at a time;
// `on_event` is called from gRPC's threads, never under a lock, and must only post.
// Ownership: shared between the producer and gRPC (until OnDone); create with Create.
// Response: any message with the events `started`, `chunk` and `finished`; see the instantiations below.
template <typename Response>
class BasicTokenStream final : public grpc::ServerWriteReactor<Response> {
 public:
  // The buffered text at which PushChunk asks the producer to pause, and that at which it may go on.
  static constexpr size_t kPauseBytes = 16 * 1024;
  static constexpr size_t kResumeBytes = 4 * 1024;
  // Buffered tokens count as so many bytes each, so that empty pieces are bounded too.
  static constexpr size_t kBytesPerToken = 32;

  enum class Event {
    kCancelled,  // the client is gone: stop producing. At most once, never after End.
    kDrained,    // after PushChunk returned false: go on
  };

  static std::shared_ptr<BasicTokenStream> Create(std::function<void(Event)> on_event);

  // Sends the one `started`.
  void PushStarted(v1::Started started);

  // Adds to the answer. Returns false where the producer is to pause until kDrained. The chunk is taken
  // (moved from) in any case; nothing happens once the client is gone.
  bool PushChunk(v1::Chunk&& chunk);
  // The same for plain text, without building a message.
  bool PushText(std::string_view text, uint32_t tokens);

  // Ends the answer: `finished` after everything buffered. Exactly one of End and Fail; both are no-ops once
  // the client is gone.
  void End(v1::Finished finished);
  void Fail(const absl::Status& status);

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // grpc::ServerWriteReactor
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit BasicTokenStream(std::function<void(Event)> on_event);

  // Starts the next write or finishes, where that is due. mutex_ is held.
  void Advance();
  size_t BufferedBytes() const;
  bool AfterPush();
  void Close(const grpc::Status& status);

  const std::function<void(Event)> on_event_;
  std::shared_ptr<BasicTokenStream> self_;  // until OnDone
  std::atomic<bool> cancelled_{false};

  std::mutex mutex_;
  Response writing_;  // on its way
  v1::Started started_;
  v1::Chunk chunk_;  // merged, next
  v1::Finished finished_;
  grpc::Status status_;
  bool has_started_ = false;
  bool has_chunk_ = false;
  bool has_finished_ = false;
  bool write_in_flight_ = false;
  bool paused_ = false;
  bool ended_ = false;   // End or Fail was called
  bool closed_ = false;  // Finish was called: no further operation
};

extern template class BasicTokenStream<engine::v1::GenerateResponse>;
extern template class BasicTokenStream<v1::GenerateResponse>;
extern template class BasicTokenStream<v1::ChatResponse>;

using TokenStream = BasicTokenStream<engine::v1::GenerateResponse>;

}  // namespace rumbo
