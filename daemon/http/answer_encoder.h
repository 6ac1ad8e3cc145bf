#pragma once

#include <string>

#include "daemon/core/types.h"
#include "daemon/http/exchange.h"

namespace rumbo {

// One dialect's rendering of one answer. Called like a sink: one call at a time, in order (Placed, Started,
// Chunk any number of times, then Finished or Failed), from the core's and the engine's threads. All append
// to `out`.
//
// A streaming encoder's bytes go out as they come. One that gathers appends nothing before Finished.
class AnswerEncoder {
 public:
  virtual ~AnswerEncoder() = default;
  virtual bool streaming() const = 0;
  virtual const char* content_type() const = 0;

  virtual void Placed(const Placement& placement) = 0;
  virtual void Started(const StartedEvent& event, std::string& out) = 0;
  virtual void Chunk(ChunkEvent& chunk, std::string& out) = 0;
  virtual void Finished(const FinishedEvent& finished, std::string& out) = 0;
  // The answer broke off after its head was sent (streaming only).
  virtual void Failed(const absl::Status& status, std::string& out) = 0;
  // The answer failed before its head was sent.
  virtual HttpReply ErrorReply(const absl::Status& status) = 0;
};

}  // namespace rumbo
