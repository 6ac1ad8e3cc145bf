#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "devices/api/topology.h"

namespace rumbo {

// What workers said about their sandboxes, for the doctor. Thread-safe.
class SandboxJournal {
 public:
  // A worker was started; `isolated`: in namespaces of its own (SpawnSpec::isolate).
  void Started(const std::string& engine, const std::string& backend, bool isolated);
  // A line of a worker's stderr. The path where it says that one was denied; "" for every other line.
  std::string Line(const std::string& engine, const std::string& backend, const std::string& line);
  // The worker ended before it was ready.
  void FailedToStart(const std::string& engine, const std::string& backend);

  // The level in force of each engine and backend that ran, what is missing, and paths that were denied.
  std::vector<Finding> Findings() const;

 private:
  struct Seen {
    std::string level;
    std::set<std::string> missing;
    std::set<std::string> denied;  // at most kMostPaths
    bool isolated = true;
    bool failed = false;  // the last one to end did so before it was ready
  };
  static constexpr size_t kMostPaths = 64;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Seen> seen_;  // guarded by mutex_
};

}  // namespace rumbo
