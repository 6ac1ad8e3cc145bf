#include "sdk/cpp/call.h"

#include <condition_variable>
#include <mutex>

#include "base/os/local_socket.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace rumbo::inline sdk {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  // With a fixed window a reader that stops is felt by the daemon at once, not after many megabytes.
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65535);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  return grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(), args);
}

void ReadDetails(const std::string& bytes, Error* error) {
  google::rpc::Status details;
  if (!details.ParseFromString(bytes)) return;
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info) && info.domain() == "rumbo") {
      error->reason_code = info.reason();
      error->reason = ReasonFromCode(info.reason()).value_or(Reason::kUnspecified);
      if (const auto step = info.metadata().find("next_step"); step != info.metadata().end()) {
        error->next_step = step->second;
      }
    } else if (any.UnpackTo(&retry)) {
      const auto& delay = retry.retry_delay();
      error->retry_after = std::chrono::milliseconds(delay.seconds() * 1000 + delay.nanos() / 1'000'000);
    }
  }
}

// For what no daemon explained: the transport, our own deadline, our own cancelling.
void ExplainLocally(Error* error) {
  const auto set = [&](Reason reason, std::string message, std::string next_step) {
    error->reason = reason;
    error->reason_code = ReasonCode(reason);
    error->message = std::move(message);
    error->next_step = std::move(next_step);
  };
  const std::string detail = error->message.empty() ? "" : ": " + error->message;
  switch (error->code) {
    case Code::kUnavailable:
      return set(Reason::kDaemonUnreachable, "the connection to the daemon failed" + detail,
                 "Look whether it runs with `rumbo status`; start it with `rumbod`.");
    case Code::kDeadlineExceeded:
      return set(Reason::kDeadlineExceeded, "the daemon did not answer in time",
                 "Allow more time, or look what it does with `rumbo ps`.");
    case Code::kCancelled:
      return set(Reason::kCancelled, "cancelled", "");
    case Code::kUnimplemented:
      return set(Reason::kNotImplemented, "this daemon cannot do that" + detail,
                 "Use a daemon and a client of the same version.");
    default:
      return;
  }
}

}  // namespace

const char* CodeName(Code code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const int number = static_cast<int>(code);
  return number >= 0 && number <= 16 ? kNames[number] : "UNKNOWN";
}

Client::Channel::Channel(std::string socket_path, std::string app_name)
    : socket(std::move(socket_path)),
      app(std::move(app_name)),
      channel(MakeChannel(socket)),
      device(v1::DeviceService::NewStub(channel)),
      model(v1::ModelService::NewStub(channel)),
      plan(v1::PlanService::NewStub(channel)),
      instance(v1::InstanceService::NewStub(channel)),
      inference(v1::InferenceService::NewStub(channel)),
      admin(v1::AdminService::NewStub(channel)) {}

void Client::Channel::AwaitReturn() const {
  if (channel->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE || !ProbeLocalSocket(socket, false).ok())
    return;
  grpc::experimental::ChannelResetConnectionBackoff(channel.get());
  channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(2));
}

Error FromStatus(const grpc::Status& status) {
  Error error;
  const int code = status.error_code();
  error.code = code >= 1 && code <= 16 ? static_cast<Code>(code) : Code::kUnknown;
  error.message = status.error_message();
  ReadDetails(status.error_details(), &error);
  if (error.reason_code.empty()) ExplainLocally(&error);
  if (error.message.empty()) error.message = CodeName(error.code);
  return error;
}

CallScope::CallScope(const CallOptions& options, std::optional<std::chrono::milliseconds> default_timeout)
    : options_(options) {
  const auto timeout = options.timeout ? options.timeout : default_timeout;
  if (timeout) deadline_ = std::chrono::system_clock::now() + *timeout;
}

CallScope::Attempt::Attempt(const CallScope& scope)
    : on_stop_(scope.options_.cancel, [this] { context.TryCancel(); }) {
  if (scope.deadline_) context.set_deadline(*scope.deadline_);
}

bool CallScope::WaitToRetry(const Error& error) {
  if (!error.retry_after || retries_ >= options_.max_retries ||
      *error.retry_after > options_.max_retry_wait) {
    return false;
  }
  if (deadline_ && std::chrono::system_clock::now() + *error.retry_after >= *deadline_) return false;
  ++retries_;
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, options_.cancel, *error.retry_after, [] { return false; });
  return !options_.cancel.stop_requested();
}

}  // namespace rumbo::inline sdk
