#include "engines/worker_kit/grpc_status.h"

#include <string>

#include "base/status.h"
#include "base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace rumbo {
namespace {

constexpr size_t kMaxMessageBytes = 4096;
constexpr char kDomain[] = "rumbo";
constexpr char kNextStepKey[] = "next_step";

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message = SanitizeUtf8(MessageOf(status));
  if (message.size() > kMaxMessageBytes) {
    message.resize(CompleteUtf8Prefix(std::string_view(message).substr(0, kMaxMessageBytes)));
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_domain(kDomain);
  info.set_reason(std::string(ReasonCode(ReasonOf(status))));
  if (std::string next = NextStepOf(status); !next.empty()) {
    (*info.mutable_metadata())[kNextStepKey] = SanitizeUtf8(next);
  }
  details.add_details()->PackFrom(info);
  if (const auto retry = RetryAfterOf(status)) {
    google::rpc::RetryInfo retry_info;
    retry_info.mutable_retry_delay()->set_seconds(retry->count() / 1000);
    retry_info.mutable_retry_delay()->set_nanos(static_cast<int>(retry->count() % 1000) * 1000000);
    details.add_details()->PackFrom(retry_info);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message, details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  auto code = static_cast<absl::StatusCode>(status.error_code());
  Reason reason = Reason::kUnspecified;
  std::string next_step;
  std::optional<std::chrono::milliseconds> retry;
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    for (const auto& any : details.details()) {
      google::rpc::ErrorInfo info;
      google::rpc::RetryInfo retry_info;
      if (any.UnpackTo(&info) && info.domain() == kDomain) {
        reason = ReasonFromCode(info.reason()).value_or(Reason::kUnspecified);
        if (const auto it = info.metadata().find(kNextStepKey); it != info.metadata().end()) {
          next_step = it->second;
        }
      } else if (any.UnpackTo(&retry_info)) {
        retry = std::chrono::milliseconds(retry_info.retry_delay().seconds() * 1000 +
                                          retry_info.retry_delay().nanos() / 1000000);
      }
    }
  }
  if (retry) return RetryableError(code, reason, status.error_message(), next_step, *retry);
  return Error(code, reason, status.error_message(), next_step);
}

}  // namespace rumbo
