#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <stop_token>
#include <string>

#include "rumbo/client.h"
#include "rumbo/v1/admin.grpc.pb.h"
#include "rumbo/v1/device.grpc.pb.h"
#include "rumbo/v1/inference.grpc.pb.h"
#include "rumbo/v1/instance.grpc.pb.h"
#include "rumbo/v1/model.grpc.pb.h"
#include "rumbo/v1/plan.grpc.pb.h"

// How the SDK makes calls: deadlines, cancelling, retries, errors. Inside the SDK only.
namespace rumbo::inline sdk {

inline constexpr std::chrono::milliseconds kUnaryTimeout{60000};

// One connection and its stubs.
class Client::Channel {
 public:
  Channel(std::string socket, std::string app);

  // Before a call: gives a connection that failed before, to a daemon that listens again, the time to come
  // back (two seconds at most). Does nothing otherwise.
  void AwaitReturn() const;

  const std::string socket;
  const std::string app;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::DeviceService::Stub> device;
  const std::unique_ptr<v1::ModelService::Stub> model;
  const std::unique_ptr<v1::PlanService::Stub> plan;
  const std::unique_ptr<v1::InstanceService::Stub> instance;
  const std::unique_ptr<v1::InferenceService::Stub> inference;
  const std::unique_ptr<v1::AdminService::Stub> admin;
};

// A failed call as the SDK's error: ErrorInfo and RetryInfo where the daemon sent them; a transport's failure
// as DAEMON_UNREACHABLE.
Error FromStatus(const grpc::Status& status);

// The deadline of a call and its cancelling, over all its attempts.
class CallScope {
 public:
  using TimePoint = std::chrono::system_clock::time_point;

  CallScope(const CallOptions& options, std::optional<std::chrono::milliseconds> default_timeout);

  // A context for one attempt; cancelled when the caller says so. Its life ends before the scope's.
  class Attempt {
   public:
    explicit Attempt(const CallScope& scope);
    grpc::ClientContext context;

   private:
    std::stop_callback<std::function<void()>> on_stop_;
  };

  // Waits as the daemon asked and returns true where the call is to be made again.
  bool WaitToRetry(const Error& error);

 private:
  const CallOptions options_;
  std::optional<TimePoint> deadline_;
  int retries_ = 0;
};

// Makes one call with one answer. `stub` is the channel's, `method` the stub's.
template <class Stub, class Request, class Response>
Result<std::shared_ptr<Response>> Unary(
    const Client::Channel& channel, const std::unique_ptr<Stub>& stub,
    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request,
    const CallOptions& options, std::optional<std::chrono::milliseconds> default_timeout = kUnaryTimeout) {
  CallScope scope(options, default_timeout);
  channel.AwaitReturn();
  for (;;) {
    auto response = std::make_shared<Response>();
    CallScope::Attempt attempt(scope);
    const grpc::Status status = ((*stub).*method)(&attempt.context, request, response.get());
    if (status.ok()) return response;
    Error error = FromStatus(status);
    if (!scope.WaitToRetry(error)) return error;
  }
}

}  // namespace rumbo::inline sdk
