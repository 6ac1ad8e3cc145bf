#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/executor.h"
#include "daemon/core/ports.h"

namespace rumbo {

// Leases in a file of the state folder, written on `disk` (may block), the last state only. A file that was
// cut or damaged is as good as none: leases are a convenience of the next start.
std::unique_ptr<LeaseJournal> NewLeaseJournal(std::string state_dir, Executor* disk);

// The workers of this daemon in a file of the state folder, so that the next daemon can end those which
// outlived a killed one. Thread-safe; blocks for a small write.
class WorkerRecord {
 public:
  explicit WorkerRecord(const std::string& state_dir) : path_(state_dir + "/workers") {}

  // Ends what is recorded and still runs: by pid, start time and executable together, so that nobody else's
  // process is hit; then forgets it. Returns how many were ended. Before anything looks at free memory.
  int Reap();

  void Add(int64_t pid);
  void Remove(int64_t pid);

 private:
  struct Worker {
    int64_t pid;
    uint64_t start;
    std::string executable;
  };
  void Write();

  const std::string path_;
  std::mutex mutex_;
  std::vector<Worker> workers_;  // guarded by mutex_
};

}  // namespace rumbo
