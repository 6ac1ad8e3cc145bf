#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/unique_fd.h"

namespace rumbo {

// Which bytes of a file are there: disjoint, sorted, merged.
class RangeSet {
 public:
  void Add(uint64_t begin, uint64_t end);
  // Where the run of bytes that starts at `from` ends; `from` itself where none does.
  uint64_t ContiguousFrom(uint64_t from) const;
  // What is missing of [0, size).
  std::vector<std::pair<uint64_t, uint64_t>> Gaps(uint64_t size) const;
  uint64_t total() const { return total_; }
  const std::map<uint64_t, uint64_t>& ranges() const { return ranges_; }
  void Clear() { ranges_.clear(), total_ = 0; }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin -> end
  uint64_t total_ = 0;
};

// What a download is of; another identity means: start anew.
struct DownloadIdentity {
  uint64_t size = 0;
  std::string sha256;  // "" unknown
  std::string etag;    // "" none
};

// The durable record of a download beside its file: bytes it names have been synced before their line was.
// Lines carry a checksum; what a crash cut off is ignored, and so is everything after it.
class Journal {
 public:
  // Reads `path`; nullopt where it is missing, damaged at its head, or of another format.
  struct Content {
    DownloadIdentity identity;
    RangeSet durable;
  };
  static std::optional<Content> Read(const std::string& path);

  // Begins `path` anew with `identity` and the ranges that are durable already, replacing it atomically.
  static absl::StatusOr<Journal> Begin(const std::string& path, const DownloadIdentity& identity,
                                       const RangeSet& durable);

  // Appends what is durable now and syncs. Only what the last call did not say is written.
  absl::Status Append(const RangeSet& durable);

 private:
  explicit Journal(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::map<uint64_t, uint64_t> written_;
};

}  // namespace rumbo
