#pragma once

#include <spdlog/sinks/base_sink.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace rumbo {

// The last lines of the log, in memory, and those who watch them. A sink of spdlog beside the one that
// writes. Thread-safe. `on_line` runs on whatever thread logs: it must return at once and must not log.
class LogRing final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  static constexpr size_t kLines = 2000;

  // Calls `on_line` with the last `last` lines that hold `filter`; with `follow` also with each new one
  // (whatever it holds), until the token is destroyed.
  std::shared_ptr<void> Watch(size_t last, const std::string& filter,
                              std::function<void(const std::string&)> on_line, bool follow);

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

  struct Watchers {
    std::mutex mutex;
    std::map<uint64_t, std::shared_ptr<std::function<void(const std::string&)>>> all;  // guarded by mutex
    uint64_t next = 1;
  };
  std::deque<std::string> lines_;  // guarded by the sink's mutex
  const std::shared_ptr<Watchers> watchers_ = std::make_shared<Watchers>();
};

}  // namespace rumbo
