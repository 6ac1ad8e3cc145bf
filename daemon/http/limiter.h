#pragma once

#include <chrono>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"

namespace rumbo {

// Bounds what one caller may ask: requests at once, and requests per second with a burst of one second's
// worth (at least one). 0 is no bound. Reserved before anything else happens, so that a hundred at once are
// counted as such. Threading: one thread. Memory: one entry per caller that is active or has been in the last
// minute.
class RequestLimiter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  RequestLimiter(uint32_t at_once, double per_second) : at_once_(at_once), per_second_(per_second) {}

  // kResourceExhausted with kRateLimited and the time after which a retry makes sense. OK must be followed by
  // one End() with the same caller.
  absl::Status Begin(const std::string& caller, TimePoint now);
  void End(const std::string& caller);

 private:
  struct Caller {
    uint32_t running = 0;
    double budget = 0;
    TimePoint filled;
  };
  void Forget(TimePoint now);

  const uint32_t at_once_;
  const double per_second_;
  std::unordered_map<std::string, Caller> callers_;
  TimePoint forgotten_{};
};

}  // namespace rumbo
