#pragma once

#include <memory>
#include <string>

namespace rumbo {

// A control group of version 2 for one worker with all that it starts, made directly (no systemd) below our
// own group. What is in it cannot leave it, whatever sessions and process groups it opens; KillAll ends it
// all.
//
// Where no such group can be made (no version 2, or not writable), there is none: namespaces, process groups
// and the parent-death signal do what they can. Threading: one thread at a time.
class WorkerGroup {
 public:
  // Null where it cannot be made. `root`: where version 2 is mounted; "" finds it.
  static std::unique_ptr<WorkerGroup> Create(const std::string& name, const std::string& root = "");
  // Kills what is left and removes the group.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  bool Add(int64_t pid);
  void KillAll();
  bool empty() const;
  // How often the kernel ended something in it for want of memory.
  uint64_t OutOfMemoryKills() const;
  const std::string& path() const { return path_; }

 private:
  explicit WorkerGroup(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// Removes groups that killed daemons left, with what is in them. Returns how many had something in them.
int ReapWorkerGroups(const std::string& root = "");

}  // namespace rumbo
