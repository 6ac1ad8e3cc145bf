#include "daemon/http/limiter.h"

#include <algorithm>

#include "base/status.h"

namespace rumbo {

using std::chrono::milliseconds;

absl::Status RequestLimiter::Begin(const std::string& caller, TimePoint now) {
  if (at_once_ == 0 && per_second_ <= 0) return absl::OkStatus();
  Forget(now);
  const double burst = std::max(1.0, per_second_);
  const auto [it, fresh] = callers_.try_emplace(caller);
  Caller& c = it->second;
  if (fresh) {
    c.budget = burst;
    c.filled = now;
  }
  if (at_once_ > 0 && c.running >= at_once_) {
    return RetryableError(absl::StatusCode::kResourceExhausted, Reason::kRateLimited,
                          "this caller already has " + std::to_string(c.running) + " requests running",
                          "Wait for one to end.", milliseconds(1000));
  }
  if (per_second_ > 0) {
    c.budget =
        std::min(burst, c.budget + per_second_ * std::chrono::duration<double>(now - c.filled).count());
    c.filled = now;
    if (c.budget < 1) {
      const auto wait = milliseconds(static_cast<int64_t>((1 - c.budget) / per_second_ * 1000) + 1);
      return RetryableError(absl::StatusCode::kResourceExhausted, Reason::kRateLimited,
                            "this caller sends more requests per second than it may", "Wait a little.", wait);
    }
    c.budget -= 1;
  }
  ++c.running;
  return absl::OkStatus();
}

void RequestLimiter::End(const std::string& caller) {
  const auto it = callers_.find(caller);
  if (it != callers_.end() && it->second.running > 0) --it->second.running;
}

void RequestLimiter::Forget(TimePoint now) {
  constexpr std::chrono::minutes kMinute{1};
  if (now - forgotten_ < kMinute) return;
  forgotten_ = now;
  std::erase_if(callers_, [&](const auto& entry) {
    return entry.second.running == 0 && now - entry.second.filled > kMinute;
  });
}

}  // namespace rumbo
