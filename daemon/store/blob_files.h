#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/bytes.h"

struct evp_md_ctx_st;

namespace rumbo {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  void Update(const void* data, size_t size);
  // 64 lower-case hex digits; once.
  std::string Finish();

 private:
  evp_md_ctx_st* const context_;
};

using ByteProgress = std::function<void(uint64_t done)>;

// sha256 of `fd` from its start to its end. kCancelled where `*cancelled` turns true.
absl::StatusOr<std::string> HashFile(int fd, const std::atomic<bool>& cancelled,
                                     const ByteProgress& progress);

// Copies `from` (of `size` bytes) to `to`, sharing blocks where the file system can, and gives the sha256 of
// what was read. Reading and hashing go on while another thread writes; what is written goes to the disk
// meanwhile, so that the sync at the end is short. kModelInvalid where the file changed its size.
absl::StatusOr<std::string> CopyAndHash(int from, int to, int64_t size, const std::atomic<bool>& cancelled,
                                        const ByteProgress& progress);

// Syncs, makes read-only, renames to `path`, syncs the folder.
absl::Status Settle(int fd, const std::string& from, const std::string& path);

// Free bytes of the file system that holds `dir`.
Bytes FreeBytes(const std::string& dir);

}  // namespace rumbo
