#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/types.h"

namespace rumbo {

// Counts in the buckets of Prometheus's histograms; seconds.
class Histogram {
 public:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  10,    30,   120};
  void Add(double seconds);
  void Append(std::string& out, std::string_view name) const;

 private:
  std::array<uint64_t, kBounds.size()> counts_{};
  uint64_t total_ = 0;
  double sum_ = 0;
};

// What the front has seen. Threading: io thread. Names are documented in docs/metrics.md.
struct HttpMetrics {
  std::map<std::pair<std::string, int>, uint64_t> answers;  // (route, status)
  uint64_t connections = 0;
  uint64_t accepted = 0;
  uint64_t shed = 0;         // closed for want of descriptors or room
  uint64_t disconnects = 0;  // clients that left before their answer ended
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generated_tokens = 0;
  bool tracing = false;
  uint64_t spans_sent = 0;
  uint64_t spans_dropped = 0;
  Histogram request_seconds;
  Histogram queue_seconds;
  Histogram ttft_seconds;
  Histogram token_seconds;  // mean time between tokens of an answer

  void AddAnswer(std::string_view route, int status, double seconds);
  void AddInference(const FinishedEvent& finished);
};

// `engines`: what those that answered in time say of themselves, by instance id.
// The whole page in Prometheus's text format.
std::string MetricsPage(const HttpMetrics& http, const CoreStatus& core,
                        const std::vector<InstanceInfo>& instances,
                        const std::map<std::string, EngineStats>& engines, std::string_view version);

}  // namespace rumbo
