#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "base/reason.h"

namespace rumbo::inline sdk {

// What kind of failure it is, with the numbers of gRPC's status codes.
enum class Code : int {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// Why a call failed, for programs (code, reason) and for people (message, next_step).
struct Error {
  Code code = Code::kUnknown;
  Reason reason = Reason::kUnspecified;
  // The reason as the daemon spelled it, e.g. "MODEL_NOT_FOUND"; also one that this SDK is too old to know.
  std::string reason_code;
  std::string message;
  // What to do about it; "" where there is nothing.
  std::string next_step;
  // Set only where the daemon said that a retry makes sense, and when.
  std::optional<std::chrono::milliseconds> retry_after;
};

// "NOT_FOUND" for kNotFound.
const char* CodeName(Code code);

// Thrown by Result::value() and by nothing else in this SDK.
class Failed : public std::runtime_error {
 public:
  explicit Failed(Error error)
      : std::runtime_error(error.message + (error.next_step.empty() ? "" : " " + error.next_step)),
        error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// A value or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Only where !ok().
  const Error& error() const { return std::get<1>(state_); }

  // The value, or throws Failed.
  T& value() & { return Checked(), std::get<0>(state_); }
  const T& value() const& { return Checked(), std::get<0>(state_); }
  T&& value() && { return Checked(), std::move(std::get<0>(state_)); }
  // The value; only where ok().
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

 private:
  void Checked() const {
    if (!ok()) throw Failed(error());
  }
  std::variant<T, Error> state_;
};

// Success of a call that has nothing to give.
struct Done {};

}  // namespace rumbo::inline sdk
