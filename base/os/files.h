#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rumbo {

// The whole file, or an error where it is missing (kNotFound), unreadable (kPermissionDenied), not a
// regular file, or longer than `max_bytes`. sysfs and procfs files count as regular. Never follows more
// than the kernel's own limit of links; never blocks on FIFOs or devices.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

// Replaces `path` by `data`: written beside it with `mode`, fsynced, renamed, directory fsynced. The old
// content survives every failure. kResourceExhausted with kDiskFull where the disk is full.
absl::Status WriteFileAtomically(const std::string& path, std::string_view data, int mode = 0600);

// Creates `path` and its parents with `mode`; fine where it is there already.
absl::Status MakeDirectories(const std::string& path, int mode = 0700);

// An errno as a status with the field's code (ENOENT kNotFound, EACCES kPermissionDenied, ENOSPC
// kResourceExhausted ...) and "what: strerror".
absl::Status ErrnoStatus(int error, std::string_view what);

// The folder of the running executable, without a trailing slash: where sibling programs are.
std::string ExecutableDir();

}  // namespace rumbo
