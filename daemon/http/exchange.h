#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/core/types.h"

// One request and its one answer, without a word of Boost: what handlers see.
namespace rumbo {

class AnswerEncoder;
struct Route;

struct HttpRequest {
  std::string method;
  std::string target;    // as sent
  std::string path;      // before '?', still percent-encoded
  std::string query;     // after '?'
  std::string argument;  // decoded last part of a route like /v1/models/{id}
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  ClientIdentity client;
  std::string
      own_name;    // "192.0.2.7:11712": our own end of a connection from another machine; "" on loopback
  std::string id;  // "req-...", ours; also the answer's x-request-id
  std::string principal;  // who asks, as Access found: "uid:1000", "token:ci"
  uint32_t scopes = 0;    // what they may: bits 1 << Scope
  bool own_user = false;  // the daemon's own user, on loopback
  const Route* route = nullptr;

  // The first header of that name (lower case); "" where there is none.
  std::string_view Header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
  size_t CountHeader(std::string_view name) const {
    size_t count = 0;
    for (const auto& [key, value] : headers) count += key == name;
    return count;
  }
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string subject;  // what was changed, for the audit log
  bool close = false;   // end the connection after this answer
};

// An answer of ready-made bytes that comes piece by piece, as server-sent events do. Threading: one producer
// at a time, any thread. Exactly one of Begin..End and Reply.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // First: status and headers; the body stays empty.
  virtual void Begin(HttpReply head) = 0;
  // False: enough waits for the client; more makes sense after the call's Resume(). Taken in any case.
  virtual bool Push(std::string_view bytes) = 0;
  virtual void End() = 0;
  // A whole answer instead of a stream.
  virtual void Reply(HttpReply whole) = 0;
};

// Threading: every method from any thread. Exactly one of Reply, Run and Stream ends it; one that is
// destroyed without an answer gives the client 503. After the client has gone all of them do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual HttpRequest& request() = 0;
  virtual void Reply(HttpReply reply) = 0;
  // Runs an inference whose events `encoder` turns into the answer. The client's leaving cancels it.
  virtual void Run(InferenceRequest request, std::unique_ptr<AnswerEncoder> encoder) = 0;
  // Runs `start` on the io thread; what it begins pushes into the stream. The call that it returns is resumed
  // as the stream says, and destroyed, which cancels, when the client leaves.
  using StreamStarter = std::function<std::unique_ptr<GenerateCall>(std::shared_ptr<ByteStream>)>;
  virtual void Stream(StreamStarter start) = 0;
};
using ExchangePtr = std::shared_ptr<Exchange>;

}  // namespace rumbo
