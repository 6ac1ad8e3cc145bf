#include "base/status.h"

#include "absl/strings/cord.h"

namespace rumbo {
namespace {

constexpr char kReasonUrl[] = "rumbo/reason";
constexpr char kNextStepUrl[] = "rumbo/next_step";
constexpr char kRetryUrl[] = "rumbo/retry_ms";

absl::string_view Absl(std::string_view s) { return {s.data(), s.size()}; }

std::optional<std::string> Payload(const absl::Status& status, const char* url) {
  const auto cord = status.GetPayload(url);
  if (!cord) return std::nullopt;
  return std::string(*cord);
}

}  // namespace

absl::Status Error(absl::StatusCode code, Reason reason, std::string_view message,
                   std::string_view next_step) {
  absl::Status status(code, Absl(message));
  status.SetPayload(kReasonUrl, absl::Cord(std::to_string(static_cast<int>(reason))));
  if (!next_step.empty()) status.SetPayload(kNextStepUrl, absl::Cord(Absl(next_step)));
  return status;
}

absl::Status RetryableError(absl::StatusCode code, Reason reason, std::string_view message,
                            std::string_view next_step, std::chrono::milliseconds retry_after) {
  absl::Status status = Error(code, reason, message, next_step);
  status.SetPayload(kRetryUrl, absl::Cord(std::to_string(retry_after.count())));
  return status;
}

absl::Status InvalidArgument(std::string_view message, std::string_view next_step) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kInvalidArgument, message, next_step);
}

absl::Status Internal(std::string_view message) {
  return Error(absl::StatusCode::kInternal, Reason::kInternal, message,
               "This is a fault in Rumbo. `rumbo logs` has the details.");
}

absl::Status NotImplemented(std::string_view what) {
  return Error(absl::StatusCode::kUnimplemented, Reason::kNotImplemented,
               std::string(what) + " is not implemented yet", "docs/unimplemented.md lists what is missing.");
}

Reason ReasonOf(const absl::Status& status) {
  const auto text = Payload(status, kReasonUrl);
  return text ? static_cast<Reason>(std::atoi(text->c_str())) : Reason::kUnspecified;
}

std::string NextStepOf(const absl::Status& status) { return Payload(status, kNextStepUrl).value_or(""); }

std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status) {
  const auto text = Payload(status, kRetryUrl);
  if (!text) return std::nullopt;
  return std::chrono::milliseconds(std::atoll(text->c_str()));
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status out(status.code(), Absl(std::string(context) + ": " + MessageOf(status)));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) { out.SetPayload(url, value); });
  return out;
}

}  // namespace rumbo
