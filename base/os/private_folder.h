#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/unique_fd.h"

namespace rumbo {

// A folder of one user with files of mode 0600, for caches: nothing in it is ever followed out of it. Names
// are plain, without a slash. Thread-safe.
class PrivateFolder {
 public:
  struct File {
    std::string name;
    uint64_t bytes = 0;
    int64_t changed_s = 0;  // seconds since 1970
  };

  // Makes the folder where it is missing. kPermissionDenied where it is another user's, open to others, or a
  // link.
  static absl::StatusOr<std::unique_ptr<PrivateFolder>> Open(const std::string& path);

  // The regular files in it, links left out.
  std::vector<File> List() const;

  // Replaces the file by the parts, one after the other; a reader sees the old one, the new one, or none.
  // kResourceExhausted with kDiskFull where the disk is full; nothing is left behind then. Not synced: what a
  // power loss leaves must be checked when read.
  absl::Status Write(const std::string& name, std::span<const std::string_view> parts) const;

  // `size` bytes from `offset` into `out`. kNotFound; kDataLoss where the file is shorter.
  absl::Status Read(const std::string& name, uint64_t offset, void* out, uint64_t size) const;

  void Remove(const std::string& name) const;

 private:
  explicit PrivateFolder(UniqueFd fd) : fd_(std::move(fd)) {}

  const UniqueFd fd_;
};

}  // namespace rumbo
