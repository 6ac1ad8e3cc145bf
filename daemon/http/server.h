#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/core/core.h"
#include "daemon/http/options.h"

namespace rumbo {

class JsonApi;

// The HTTP front door: OpenAI, Anthropic and Ollama dialects over one Core, on loopback and, only where asked
// for, over TLS for other machines. One thread, "rumbo-http", holds every connection; large bodies and spans
// have one each. No thread per connection or stream.
//
// Threading: Start, Stop and the destructor from one thread, not from a Core callback.
// Ownership: borrows `core` and `json` (rumbo.v1 as JSON; null: not served), which must outlive it.
class HttpServer {
 public:
  // Errors: kInvalidArgument (not an address), kFailedPrecondition (not a loopback address; a door for other
  // machines without a usable certificate or without any token), kAlreadyExists with kAddressInUse,
  // kPermissionDenied (a privileged port).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options, Core* core,
                                                           JsonApi* json = nullptr);

  virtual ~HttpServer() = default;

  // Takes no new connections, lets answers under way end for up to `grace`, then closes everything.
  // Idempotent; the destructor stops with no grace.
  virtual void Stop(std::chrono::milliseconds grace) = 0;

  // "127.0.0.1:11711"
  virtual std::string address() const = 0;
  virtual uint16_t port() const = 0;
  virtual uint16_t second_port() const = 0;  // 0 none
  virtual uint16_t remote_port() const = 0;  // 0 none
};

}  // namespace rumbo
