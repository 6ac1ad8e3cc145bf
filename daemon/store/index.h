#pragma once

#include <sqlite3.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/types.h"

namespace rumbo {

// A file of a stored variant.
struct StoredFile {
  std::string name;    // what the engine needs it to be called; "" a lone file, named by its hash
  std::string sha256;  // "" only where adopted and never hashed
  uint64_t bytes = 0;
  std::string adopted;   // absolute path outside the store; "" a blob of ours
  int64_t mtime_ns = 0;  // of the file when it came; 0 unknown
  friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

struct IndexRow {
  std::string model;
  bool pinned = false;
  std::string variant = "default";
  std::string sha256;  // of the first file
  std::vector<StoredFile> files;
  uint64_t bytes = 0;
  std::string descriptor;  // JSON
  int64_t added_unix_s = 0;
  std::string source;  // the reference it came by; "" imported
  std::string pull;    // name of the .pull file of an unfinished download; "" complete
};

// The index: SQLite in WAL mode, one row per variant. One thread at a time.
// Errors: kDiskFull where it cannot grow; kInternal with SQLite's words.
class ModelIndex {
 public:
  ModelIndex() = default;
  ~ModelIndex() { sqlite3_close(db_); }
  ModelIndex(const ModelIndex&) = delete;

  bool open() const { return db_ != nullptr; }
  // kFailedPrecondition where the file is none of ours or cannot be opened.
  absl::Status Open(const std::string& path);
  // In the order of names.
  absl::StatusOr<std::vector<IndexRow>> Rows();
  absl::StatusOr<std::vector<IndexRow>> RowsOf(const std::string& model);
  // Replaces everything under row.model, or, `beside` its other variants, the one of that name; its pin
  // stays.
  absl::Status Put(const IndexRow& row, bool beside = false);
  absl::Status Remove(const std::string& model);
  absl::Status SetPinned(const std::string& model, bool pinned);

 private:
  sqlite3* db_ = nullptr;
};

}  // namespace rumbo
