#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/core/core.h"
#include "engines/api/catalog.h"
#include "engines/api/engine.h"

namespace rumbo {

class LogRing;  // daemon/rpc/log_ring.h

struct RpcOptions {
  std::string socket;  // path of the Unix socket
  // A listening socket at `socket` that the service manager opened; its file then stays at the end. -1: we
  // open one.
  int listener = -1;
  // False: connections of our own user and of root alone. True: of everybody whom the socket's mode lets in,
  // as a system service has it (mode 0660, a group of its own).
  bool any_user = false;
  std::string version;
  int64_t started_unix_s = 0;
};

class ModelLibrary;  // daemon/store/library.h

// What the services need that the core does not know.
struct RpcHooks {
  ModelLibrary* library =
      nullptr;  // pulls, searches, the preflight; nullptr: those calls answer UNIMPLEMENTED
  std::function<std::string()> http_address;                   // "" where HTTP is off
  std::function<void(std::chrono::milliseconds limit)> drain;  // begins the end of the process
  std::function<std::vector<Finding>()> own_findings;          // the daemon's part of the doctor
  const EngineCatalog* catalog = nullptr;                      // what is known about engines
  std::vector<InstalledEngine> engines;                        // what is installed
  struct Reloaded {
    std::vector<std::string> changed, needs_restart;
  };
  std::function<absl::StatusOr<Reloaded>()> reload;  // reads the configuration again; any thread
  LogRing* logs = nullptr;                           // may be missing
};

// The gRPC front door: all services of rumbo.v1, health with Watch, reflection. It accepts connections
// itself, on a Unix socket of mode 0600, and hands a connection to gRPC only after SO_PEERCRED showed our own
// user (or root), or whoever the socket's mode lets in (RpcOptions::any_user).
//
// Threading: one accepting thread ("rumbo-accept") beside gRPC's own; none per call or stream.
// Ownership: borrows `core`, which outlives it.
class RpcServer {
 public:
  // Errors: kAlreadyExists (kAddressInUse) where another daemon answers on the socket; a left-over is
  // replaced.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(RpcOptions options, Core* core, RpcHooks hooks);
  virtual ~RpcServer() = default;
  // A way in for the daemon's own other doors, which have checked their callers: metadata "rumbo-uid" says
  // for whom a call is made. Calls fail as UNAVAILABLE once the server has stopped.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;
  // Refuses new connections and calls, lets calls under way end until `grace` has passed, then cancels them.
  virtual void Stop(std::chrono::milliseconds grace) = 0;
};

}  // namespace rumbo
