#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/executor.h"
#include "daemon/core/types.h"

namespace rumbo {

// Answers that may be asked for again under the same key of the same owner: a client whose connection broke
// repeats its request and gets the same answer from its beginning, whether it runs or has ended; it never
// runs twice.
//
// An answer is kept for ten minutes, at most 16 MiB of one and 256 MiB of all (the oldest ended ones go
// first). One that nobody listens to runs on for 30 s. Threading: thread-safe. Owned by a shared_ptr: answers
// under way keep it.
class RepeatTable : public std::enable_shared_from_this<RepeatTable> {
 public:
  using StartRequest =
      std::function<std::unique_ptr<GenerateCall>(InferenceRequest, std::shared_ptr<AnswerSink>)>;

  explicit RepeatTable(Executor* executor) : executor_(executor) {}

  // Starts `request`, or joins the one that had its key; `sink` gets the whole answer in both cases. Errors,
  // through the sink: kInvalidArgument where the key stood for another request; kResourceExhausted where too
  // much is kept.
  std::unique_ptr<GenerateCall> Generate(InferenceRequest request, std::shared_ptr<AnswerSink> sink,
                                         const StartRequest& start);

 private:
  class Kept;
  class Listener;
  struct Entry {
    std::string fingerprint;
    TimePoint begun{};
    std::shared_ptr<Kept> answer;
  };

  void MakeRoom();

  Executor* const executor_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Entry> entries_;  // guarded by mutex_
};

// A text that two requests share exactly where they ask for the same.
std::string FingerprintOf(const InferenceRequest& request);

}  // namespace rumbo
