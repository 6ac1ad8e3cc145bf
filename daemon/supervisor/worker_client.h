#pragma once

#include <functional>
#include <memory>

#include "base/os/unique_fd.h"
#include "engines/api/engine.h"

namespace rumbo {

// The daemon's side of rumbo.engine.v1: one worker behind one connected socket.
//
// Threading: thread-safe; callbacks run on gRPC's threads.
// Trust: none. A worker that answers outside the protocol fails the request with kEngineProtocol and
// `on_violation` is called (any thread, maybe more than once) so that its owner can end it.
class WorkerClient : public Engine {
 public:
  // Takes the socket. Nothing is sent before Load.
  static std::shared_ptr<WorkerClient> Create(UniqueFd socket, std::function<void(std::string)> on_violation);

  // Loads; `progress` any number of times, then `done` once.
  virtual void Load(const LaunchSpec& spec,
                    std::function<void(double fraction, const std::string& step)> progress,
                    Callback<EngineInfo> done) = 0;
};

}  // namespace rumbo
