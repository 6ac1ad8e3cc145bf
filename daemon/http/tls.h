#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rumbo {

// One connection's TLS over a non-blocking socket. The handshake happens inside the first reads.
// Threading: one thread. Ownership: does not own the descriptor.
class TlsSession {
 public:
  enum class State {
    kDone,       // `bytes` were moved, at least one
    kWantRead,   // call again once the socket is readable
    kWantWrite,  // call again once it is writable; Write with the same bytes first
    kEnded,      // the peer said goodbye
    kBroken,     // not TLS, a bad certificate, a lost connection
  };
  struct Step {
    State state = State::kBroken;
    size_t bytes = 0;
  };

  virtual ~TlsSession() = default;
  virtual Step Read(char* to, size_t size) = 0;
  // May take a part only.
  virtual Step Write(std::string_view bytes) = 0;
  // Decrypted bytes wait, though the socket may not be readable.
  virtual bool Pending() const = 0;
  // Says goodbye, as far as the socket takes it now.
  virtual void Shutdown() = 0;
};

// A certificate and its key, TLS 1.2 and newer, HTTP/1.1. Immutable, thread-safe.
class TlsContext {
 public:
  // PEM files; the certificate's file may hold the chain.
  // Errors: kFailedPrecondition where a file cannot be read, does not parse, the key is another certificate's
  // or readable by others.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(const std::string& certificate_file,
                                                          const std::string& key_file);
  virtual ~TlsContext() = default;
  // nullptr where the system gives no memory.
  virtual std::unique_ptr<TlsSession> NewSession(int fd) const = 0;
};

}  // namespace rumbo
