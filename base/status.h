#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/reason.h"

// Errors are absl::Status with a code that tells the caller what to do, a Reason, and a next step
// for the person who reads it. Debian's absl has its own string_view with no conversion from
// std::string_view; these functions are the one place that adapts.
namespace rumbo {

// Builds an error. `message` says what happened, `next_step` what to do about it ("" when there is
// nothing to do). Both must be free of secrets and of other users' paths: they travel to clients.
absl::Status Error(absl::StatusCode code, Reason reason, std::string_view message,
                   std::string_view next_step = "");

// The same, with the time after which a retry makes sense.
absl::Status RetryableError(absl::StatusCode code, Reason reason, std::string_view message,
                            std::string_view next_step, std::chrono::milliseconds retry_after);

absl::Status InvalidArgument(std::string_view message, std::string_view next_step = "");
absl::Status Internal(std::string_view message);
absl::Status NotImplemented(std::string_view what);

Reason ReasonOf(const absl::Status& status);         // kUnspecified when the status has none
std::string NextStepOf(const absl::Status& status);  // "" when the status has none
std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status);

// The message as std::string; "" for OK.
std::string MessageOf(const absl::Status& status);

// The same status with `context` and ": " before its message; code, reason and next step stay.
absl::Status Annotate(const absl::Status& status, std::string_view context);

}  // namespace rumbo

// Returns early with the status of `expr` unless it is OK.
#define RUMBO_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                  \
    if (absl::Status rumbo_status_ = (expr); !rumbo_status_.ok()) return rumbo_status_; \
  } while (0)

#define RUMBO_CONCAT_INNER(a, b) a##b
#define RUMBO_CONCAT(a, b) RUMBO_CONCAT_INNER(a, b)

// ASSIGN(auto x, MakeX()): x is the value, or the enclosing function returns the error.
#define RUMBO_ASSIGN_OR_RETURN(lhs, expr) \
  RUMBO_ASSIGN_OR_RETURN_IMPL(RUMBO_CONCAT(rumbo_statusor_, __LINE__), lhs, expr)
#define RUMBO_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.ok()) return tmp.status();               \
  lhs = std::move(tmp).value()
