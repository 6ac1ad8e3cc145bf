#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace rumbo {

// Where a request stands in somebody's trace: the header "traceparent" of W3C Trace Context.
struct TraceParent {
  std::array<uint8_t, 16> trace_id{};
  std::array<uint8_t, 8> span_id{};
  bool sampled = false;
};
std::optional<TraceParent> ParseTraceParent(std::string_view header);

using TraceValue = std::variant<std::string, int64_t, double>;

// One request as it went by. Never holds a prompt, an answer or a token.
struct TraceSpan {
  std::string name;  // "POST /v1/chat/completions"
  std::optional<TraceParent> parent;
  std::chrono::system_clock::time_point begin;
  std::chrono::nanoseconds duration{0};
  bool failed = false;
  std::vector<std::pair<std::string, TraceValue>> attributes;
  // Parts of it, one after the other from its begin: ("queue", 3 ms), ("prefill", ...), ("decode", ...).
  std::vector<std::pair<std::string, std::chrono::nanoseconds>> parts;
};

// Where spans go. "http://HOST:PORT[/PATH]"; without a path /v1/traces. Naming another machine is how one
// allows it.
struct CollectorAddress {
  std::string host;
  std::string port = "4318";
  std::string path = "/v1/traces";
};
absl::StatusOr<CollectorAddress> ParseCollector(std::string_view url);

// The body of one OTLP/HTTP request, as JSON. `random` gives the ids.
std::string TracesJson(const std::vector<TraceSpan>& spans, std::string_view version,
                       const std::function<uint64_t()>& random);

// Sends spans to an OpenTelemetry collector, from a thread of its own ("rumbo-otlp"), a batch at a time. A
// collector that is slow or away costs dropped spans, never a request: at most kMaxWaiting wait.
//
// Threading: Add and dropped from any thread.
class TraceExporter {
 public:
  static constexpr size_t kMaxWaiting = 2048;
  static constexpr std::chrono::milliseconds kBatchWait{1000};
  static constexpr std::chrono::milliseconds kTimeout{2000};  // for one batch

  TraceExporter(CollectorAddress collector, std::string version);
  // Sends what waits: up to two batches of kTimeout, and as long as the system looks up a host's name.
  ~TraceExporter();

  void Add(TraceSpan span);
  uint64_t dropped() const { return dropped_; }
  uint64_t sent() const { return sent_; }

 private:
  void Run();

  const CollectorAddress collector_;
  const std::string version_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TraceSpan> waiting_;
  bool stop_ = false;
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> sent_{0};
  std::thread thread_;
};

}  // namespace rumbo
