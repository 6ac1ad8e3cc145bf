#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "daemon/core/ports.h"
#include "daemon/store/index.h"
#include "daemon/store/reference.h"

namespace rumbo {

// A .gguf file, or a folder of safetensors.
using InspectFn = std::function<absl::StatusOr<ModelDescriptor>(const std::string& path)>;

// Something the store keeps that nothing refers to.
struct Garbage {
  struct Item {
    std::string what;  // "blob sha256-...", "download ...", "set ..."
    Bytes bytes = 0;
  };
  std::vector<Item> items;
  Bytes bytes = 0;
};

struct VerifyResult {
  std::string model;
  std::string state;  // "ok", "damaged", "missing", "incomplete"
  std::string text;
};

struct StoreOptions {
  std::string dir;
  Bytes quota = 0;  // of all blobs and downloads together; 0 no limit
};

// Models on disk: content-addressed files under `dir`/blobs (sha256-<hex>, mode 0400) and an index in
// `dir`/models.sqlite (WAL). Sets of several files (split GGUF, safetensors) have a folder under `dir`/sets
// with a hard link per file, under the names that engines need. Downloads gather in `dir`/partial. A file is
// in the store only once its hash is known, it is synced, renamed and indexed; what an interrupted import
// left is removed at the next start.
//
// Import takes, besides files and folders:
//   `dir`/partial/ID.pull   a download: indexed as incomplete, or, where it says so, taken over as complete
//   "link:" and a path      adopted: stays where it is, read only, never deleted
//
// Threading: everything runs on `executor`, which may block on the disk and which nothing else needs quickly.
// Errors: kResourceExhausted (kDiskFull) leaves the store as it was.
class ModelKeeper : public ModelStore {
 public:
  // Hashes what is stored under `names` (all where empty) and compares. A model found damaged is listed so.
  virtual void Verify(std::vector<std::string> names, std::shared_ptr<std::atomic<bool>> cancelled,
                      std::function<void(const StepProgress&)> progress,
                      Callback<std::vector<VerifyResult>> done) = 0;
  // Finds, and unless `dry_run` removes, what no model refers to. `busy` keys of partial/ stay.
  virtual void Collect(bool dry_run, std::vector<std::string> busy, Callback<Garbage> done) = 0;
  // Writes the model's files to the existing folder `to`, sharing blocks where possible; refuses to
  // overwrite.
  virtual void Export(std::string name, std::string to, std::shared_ptr<std::atomic<bool>> cancelled,
                      std::function<void(const StepProgress&)> progress,
                      Callback<std::vector<std::string>> done) = 0;
  // The index rows of a model; empty where there is none.
  virtual void Rows(std::string name, Callback<std::vector<IndexRow>> done) = 0;
  // kDiskFull where `bytes` more would not fit the disk or the quota.
  virtual void CheckRoom(Bytes bytes, Callback<bool> done) = 0;

  // kFailedPrecondition (kHashMismatch) where one of `paths` is a stored file that is not what it was. Any
  // thread; looks at size and time, and hashes where those differ.
  virtual absl::Status CheckUnchanged(const std::vector<std::string>& paths) = 0;

  std::string blobs_dir() const { return dir_ + "/blobs"; }
  std::string partial_dir() const { return dir_ + "/partial"; }

 protected:
  explicit ModelKeeper(std::string dir) : dir_(std::move(dir)) {}
  const std::string dir_;
};

std::unique_ptr<ModelKeeper> NewModelStore(StoreOptions options, InspectFn inspect, Executor* executor,
                                           WallClock* wall);

}  // namespace rumbo
