#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "daemon/store/fetcher.h"
#include "daemon/store/library.h"
#include "daemon/store/names.h"
#include "daemon/store/pull_record.h"

namespace rumbo {

// The pulls under way: one per model name, each on a thread of its own; one download per content, whoever
// needs it.
class Pulls {
 public:
  Pulls(Core* core, ModelKeeper* store, const Fetcher* fetcher);
  // Stops all and waits for their threads.
  ~Pulls();

  std::shared_ptr<void> Join(PullSpec spec, PullWatcher watcher);
  bool Stop(const std::string& name);
  // Files of partial/ that somebody writes, and records of running pulls.
  std::vector<std::string> BusyKeys();

 private:
  struct Watching;
  struct Transfer;
  struct Job;
  struct Found;  // what a reference turned out to be

  void Run(const std::string& key, const std::shared_ptr<Job>& job);
  absl::StatusOr<StoredModel> Pull(Job& job);
  absl::StatusOr<Found> Find(Job& job, const ModelReference& reference);
  absl::StatusOr<size_t> Choose(Job& job, Found& found, PullPlan& plan);
  bool Estimate(Job& job, const Found& found, const RemoteVariant& variant, PullCandidate& candidate);
  absl::StatusOr<StoredModel> FetchAll(Job& job, const Found& found, const RemoteVariant& variant,
                                       const PullPlan& plan);
  absl::StatusOr<FetchedBlob> FetchFile(Job& job, const RemoteFile& file, const std::string& key,
                                        const Found& found, uint64_t before, uint64_t total);
  absl::StatusOr<StoredModel> Already(Job& job, const std::string& name, const RemoteVariant& variant,
                                      bool* repair);
  absl::StatusOr<StoredModel> Record(const PullRecord& record, Job& job);
  void DropUnfinished(Job& job);
  void Tell(Job& job, const PullProgress& progress);
  void Leave(uint64_t watcher, const std::shared_ptr<Job>& job);
  void Reap();

  Core* const core_;
  ModelKeeper* const store_;
  const Fetcher* const fetcher_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> closing_{false};
  uint64_t next_watcher_ = 1;
  std::map<std::string, std::shared_ptr<Job>> jobs_;            // by model name
  std::vector<std::shared_ptr<Job>> ended_;                     // threads to join
  std::map<std::string, std::shared_ptr<Transfer>> transfers_;  // by key
};

}  // namespace rumbo
