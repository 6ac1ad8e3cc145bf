#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/unique_fd.h"

namespace rumbo {

// A process that outlives its starter: own session, no parent to wait for it.
class DetachedProcess {
 public:
  DetachedProcess(int pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  int pid() const { return pid_; }
  // True once it has ended. Waits at most `wait`, and returns early when it ends.
  bool HasEnded(std::chrono::milliseconds wait) const;

 private:
  int pid_;
  UniqueFd pidfd_;
};

// Runs `program` (a path) with `args` in a session of its own, working folder "/", stdin from /dev/null,
// stdout and stderr appended to `log_path` (made with mode 0600), default signals, and no other descriptor
// of the caller. Safe in a process with threads. Errors: what exec or open said.
absl::StatusOr<DetachedProcess> SpawnDetached(const std::string& program,
                                              const std::vector<std::string>& args,
                                              const std::string& log_path);

}  // namespace rumbo
