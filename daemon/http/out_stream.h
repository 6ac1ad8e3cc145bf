#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/core.h"
#include "daemon/http/answer_encoder.h"

namespace rumbo {

class OutStream;

// Streams with something to send, on their way to the io thread. However many come between two runs of the io
// thread, it is woken once. Thread-safe.
class Mailbox {
 public:
  // `wake` makes the io thread call Drain; called without the lock, from any thread.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Notify(std::shared_ptr<OutStream> stream);
  // Io thread: moves everything that waits to `out` (which is cleared first).
  void Drain(std::vector<std::shared_ptr<OutStream>>& out);
  // The io thread has ended: forgets what waits and whatever still comes.
  void Shut();

 private:
  std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<OutStream>> ready_;
  bool shut_ = false;
};

// One answer between the threads that produce it and the io thread that sends it. As the core's sink it
// encodes in the producer's thread, straight into the buffer that the io thread takes next: no copy, no
// allocation per token. The buffer's bound is `limit` bytes; beyond it the engine is paused.
class OutStream final : public AnswerSink, public ByteStream, public std::enable_shared_from_this<OutStream> {
 public:
  OutStream(std::shared_ptr<Mailbox> mailbox, std::unique_ptr<AnswerEncoder> encoder, size_t limit)
      : mailbox_(std::move(mailbox)), encoder_(std::move(encoder)), limit_(limit) {}

  // AnswerSink: producers.
  void OnPlaced(const Placement& placement) override;
  void OnStarted(const StartedEvent& event) override;
  bool OnChunk(ChunkEvent& chunk) override;
  void OnEnd(const absl::Status& status, const FinishedEvent* finished) override;

  // ByteStream, where there is no encoder: producers.
  void Begin(HttpReply head) override;
  bool Push(std::string_view bytes) override;
  void End() override;
  void Reply(HttpReply whole) override;

  // ---- Io thread ----
  struct Batch {
    std::optional<HttpReply> head;          // before the first bytes; its body is whole where `whole`
    bool whole = false;                     // the head is the complete answer
    bool last = false;                      // nothing comes after this
    bool resume = false;                    // the engine waits for Resume()
    std::optional<FinishedEvent> finished;  // with `last`, where the answer ended well
  };
  // Swaps what has come into `bytes` (which must be empty) and says what it is.
  Batch Take(std::string& bytes);

  // Nobody reads any more: what still comes is dropped.
  void Abandon();

  // The connection that sends it; only the io thread looks at this.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnStreamReady() = 0;
  };
  Owner* owner = nullptr;
  // Keeps the inference going; dropping it cancels. Io thread.
  std::unique_ptr<GenerateCall> call;

 private:
  void NotifyLocked(std::unique_lock<std::mutex> lock);

  const std::shared_ptr<Mailbox> mailbox_;
  std::mutex mutex_;
  std::unique_ptr<AnswerEncoder> encoder_;
  const size_t limit_;
  std::string pending_;
  std::optional<HttpReply> head_;
  std::optional<FinishedEvent> finished_;
  std::vector<std::pair<std::string, std::string>> placement_headers_;
  bool head_made_ = false;
  bool whole_ = false;
  bool last_ = false;
  bool paused_ = false;
  bool queued_ = false;  // in the mailbox
  bool abandoned_ = false;
};

}  // namespace rumbo
