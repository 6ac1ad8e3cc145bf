#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/manifest.h"

namespace rumbo {

// An unfinished or just finished download: `dir`/partial/ID.pull, so that it is known and goes on after a
// restart. Its files are beside it under their keys.
struct PullRecord {
  struct File {
    std::string name;  // in the set; "" a lone file
    std::string key;   // file in partial/
    std::string sha256;
    std::string git_sha1;
    std::string url;
    std::optional<uint64_t> bytes;
  };
  std::string model;
  std::string reference;  // as FormatReference writes it, revision resolved
  std::string licence;
  std::string variant = "default";
  std::string format;
  bool replace = false;
  bool complete = false;  // every file is there with its hash
  std::vector<File> files;
  std::string descriptor;  // JSON, where the head was looked at; "" unknown

  uint64_t total() const;  // 0 unknown
};

std::string PullRecordToJson(const PullRecord& record);
// Checks names, keys and hashes as if a stranger had written it.
absl::StatusOr<PullRecord> PullRecordFromJson(const std::string& text);

// 16 hex digits: one download per model name.
std::string PullIdFor(const std::string& model);
// Where a file's bytes gather: by content where that is known, else by address.
std::string KeyFor(const RemoteFile& file);

}  // namespace rumbo
