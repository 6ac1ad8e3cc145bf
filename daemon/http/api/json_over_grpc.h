#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "daemon/http/json_api.h"

namespace rumbo {

// Every method of rumbo.v1 as JSON, by asking the daemon's own gRPC server inside the process: whatever a
// service does, it does here too, with the same checks, errors and back-pressure. Knows messages only by
// their descriptors.
//
// Threading: thread-safe. Ownership: keeps the channel; the server behind it may end first (calls then fail
// as UNAVAILABLE). Must outlive the HTTP server.
class JsonOverGrpc final : public JsonApi {
 public:
  // Until then calls are answered 503.
  void Connect(std::shared_ptr<grpc::Channel> channel);

  void Call(std::string_view method, ExchangePtr exchange) override;

 private:
  std::shared_ptr<grpc::Channel> channel();

  std::mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace rumbo
