#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rumbo/v1/inference.pb.h"
#include "rumbo/v1/model.pb.h"
#include "rumbo/v1/plan.pb.h"

namespace rumbo {

// A daemon with canned answers, in this process on a real Unix socket. What a model does follows from its
// name:
//   hello     answers "Hello, world" in three chunks
//   echo      answers with the last prompt
//   base      like hello, but has no chat template and refuses Chat (CAPABILITY_MISSING)
//   evil      its answer and its listing hold terminal escapes
//   busy      QUEUE_FULL with a retry time of 10 ms, `busy_times` times, then like hello
//   silent    starts, then says nothing until cancelled
//   crash     one chunk, then ENGINE_CRASHED
//   cut       one chunk, then a good end without `finished`
//   big       DOES_NOT_FIT when loaded, a plan without `chosen` when planned
//   any other MODEL_NOT_FOUND
// Thread-safe.
class FakeDaemon {
 public:
  explicit FakeDaemon(const std::string& socket);
  ~FakeDaemon();

  // Ends the server now: running calls are cancelled.
  void Stop();

  // What the tests look at.
  struct Seen {
    std::optional<v1::ChatRequest> chat;
    std::optional<v1::GenerateRequest> generate;
    std::optional<v1::MakePlanRequest> plan;
    std::optional<v1::LoadModelRequest> load;
    std::optional<v1::ImportModelRequest> import;
    int calls = 0;      // of Chat and Generate
    int cancelled = 0;  // streams whose client went away
    bool has_deadline = false;
  };
  Seen seen() const;

  // Waits up to 10 s until `count` streams were cancelled; false where that did not happen.
  bool WaitForCancelled(int count);

  // Waits up to 10 s until a stream of "silent" is open.
  bool WaitForSilent();

  int busy_times = 1;
  bool doctor_broken = false;

  struct State;

 private:
  std::shared_ptr<State> state_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;
};

// A status as the daemon sends it.
grpc::Status TypedStatus(grpc::StatusCode code, const std::string& reason, const std::string& message,
                         const std::string& next_step,
                         std::optional<std::chrono::milliseconds> retry = std::nullopt);

}  // namespace rumbo
