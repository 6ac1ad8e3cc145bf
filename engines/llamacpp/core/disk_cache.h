#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/private_folder.h"
#include "engines/llamacpp/core/model_port.h"

namespace rumbo {

// The state of a sequence outside the KV cache.
struct CachedSequence {
  std::string key;
  std::vector<TokenId> tokens;
  SequenceState state;
  int32_t oldest = 0;  // smallest position in every layer
};

// States of sequences in files, up to a number of bytes, that outlive the process: one file each, of mode
// 0600, in a folder of one model. A file is used only where its fingerprint (model, engine version, cache
// types) is ours and its checksums hold; a broken one is deleted, a foreign one counts against the quota and
// goes first. A full disk or a failing one makes the cache smaller and is counted, nothing else.
//
// Threading: one thread calls; files are written by another, which this owns. Load reads in the caller's.
class DiskCache {
 public:
  struct Options {
    std::string folder;
    uint64_t max_bytes = 0;
    std::string fingerprint;
  };
  struct Stats {
    uint64_t bytes = 0;  // of all files
    uint64_t files = 0;  // that are ours
    uint64_t written = 0;
    uint64_t loaded = 0;
    uint64_t failed = 0;   // writes that did not succeed
    uint64_t deleted = 0;  // broken files
  };
  // What is known of a file without reading its state.
  struct Item {
    uint64_t id = 0;
    std::string name;
    std::string key;
    std::vector<TokenId> tokens;
    int32_t oldest = 0;
    uint64_t bytes = 0;
    uint64_t last_used = 0;  // ticks; 0: before this process
    int64_t changed_s = 0;
  };

  // Reads what is there. kPermissionDenied where the folder is not ours alone.
  static absl::StatusOr<std::unique_ptr<DiskCache>> Open(Options options);
  // Waits until what was put is written.
  ~DiskCache();

  // Writes the sequence soon, unless a file holds all its tokens; files whose tokens it begins with are
  // replaced. Dropped where it alone exceeds the quota or too much waits to be written.
  void Put(CachedSequence sequence);

  // A file holds these tokens, or will soon.
  bool Holds(const std::string& key, const std::vector<TokenId>& tokens) const;

  // The item with the longest beginning of a prompt by `usable(item)` (tokens, 0 for none), if longer than
  // `more_than`. O(items).
  std::optional<uint64_t> Find(const std::string& key, uint32_t more_than,
                               const std::function<uint32_t(const Item&)>& usable) const;
  // Reads and checks it. nullopt where the file is gone or broken; it is then forgotten.
  std::optional<CachedSequence> Load(uint64_t id);

  // Waits until all that was put is written or dropped.
  void Flush();
  Stats stats() const;

 private:
  explicit DiskCache(Options options, std::unique_ptr<PrivateFolder> folder);

  void Scan();
  bool ReadHead(const PrivateFolder::File& file);
  void WriterLoop();
  void WriteOne(const CachedSequence& sequence);
  bool MakeRoom(uint64_t bytes);
  void Forget(std::list<Item>::iterator item, bool remove);

  const Options options_;
  const std::unique_ptr<PrivateFolder> folder_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::list<Item> items_;
  std::list<PrivateFolder::File> foreign_;  // oldest first
  std::deque<CachedSequence> waiting_;
  uint64_t waiting_bytes_ = 0;
  bool stop_ = false;
  uint64_t next_id_ = 1;
  uint64_t tick_ = 0;
  Stats stats_;
  std::thread writer_;  // last: starts when all else is there
};

}  // namespace rumbo
