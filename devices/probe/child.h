#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/os/unique_fd.h"

namespace rumbo {

// A short-lived child that may crash or hang: started with its own process group, killed with it.
//
// Threading: one thread per object. Start() where possible long before Finish(), so that children run side
// by side.
class ProbeChild {
 public:
  struct Outcome {
    bool ok = false;  // exited with 0 in time
    bool timed_out = false;
    std::string output;  // stdout, at most 4 MiB
    std::string error;   // "" when ok: "killed by signal 11", "did not answer within 5000 ms" ...
  };

  // `argv[0]` is looked up in PATH where it has no slash. stdin is /dev/null.
  explicit ProbeChild(std::vector<std::string> argv);
  ~ProbeChild();
  ProbeChild(const ProbeChild&) = delete;
  ProbeChild& operator=(const ProbeChild&) = delete;

  // Waits until the child ends or `deadline` passes, then makes sure that it and what it started are gone.
  Outcome Finish(std::chrono::steady_clock::time_point deadline);

 private:
  void Kill();
  int pid_ = -1;
  int spawn_error_ = 0;
  UniqueFd out_;
  UniqueFd err_;
};

}  // namespace rumbo
