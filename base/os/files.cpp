#include "base/os/files.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/os/unique_fd.h"
#include "base/status.h"

namespace rumbo {
namespace {

std::string ParentOf(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::Status ErrnoStatus(int error, std::string_view what) {
  char buffer[128];
  const std::string text = std::string(what) + ": " + strerror_r(error, buffer, sizeof buffer);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Error(absl::StatusCode::kNotFound, Reason::kFileNotFound, text, "Check the path.");
    case EACCES:
    case EPERM:
      return Error(absl::StatusCode::kPermissionDenied, Reason::kFileNotReadable, text,
                   "Check the owner and mode of the file.");
    case EISDIR:
      return Error(absl::StatusCode::kInvalidArgument, Reason::kNotAFile, text, "Name a file, not a folder.");
    case ENOSPC:
    case EDQUOT:
      return Error(absl::StatusCode::kResourceExhausted, Reason::kDiskFull, text,
                   "Free some space, then try again.");
    case EADDRINUSE:
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kAddressInUse, text,
                   "Stop the other process or choose another address.");
    default:
      return Error(absl::StatusCode::kInternal, Reason::kInternal, text);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  if (path.find('\0') != std::string::npos) return InvalidArgument("a path contains a NUL byte");
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (S_ISDIR(info.st_mode)) return ErrnoStatus(EISDIR, "read " + path);
  if (!S_ISREG(info.st_mode)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kNotAFile, path + " is not a regular file");
  }
  std::string data;
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) return data;
    if (data.size() + n > max_bytes) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kRequestTooLarge,
                   path + " is larger than " + std::to_string(max_bytes) + " bytes");
    }
    data.append(buffer, n);
  }
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view data, int mode) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd.valid()) return ErrnoStatus(errno, "create " + temporary);
  const auto fail = [&](const char* what) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return ErrnoStatus(error, std::string(what) + " " + temporary);
  };
  for (size_t done = 0; done < data.size();) {
    const ssize_t n = ::write(fd.get(), data.data() + done, data.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail("write");
    done += n;
  }
  if (::fsync(fd.get()) != 0) return fail("sync");
  fd.reset();
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail("rename");
  UniqueFd dir(::open(ParentOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.valid()) ::fsync(dir.get());
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path, int mode) {
  if (path.empty() || path == "/" || path == ".") return absl::OkStatus();
  if (::mkdir(path.c_str(), mode) == 0) return absl::OkStatus();
  if (errno == ENOENT) {
    RUMBO_RETURN_IF_ERROR(MakeDirectories(ParentOf(path), mode));
    if (::mkdir(path.c_str(), mode) == 0) return absl::OkStatus();
  }
  if (errno == EEXIST) {
    struct stat info;
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
    errno = ENOTDIR;
  }
  return ErrnoStatus(errno, "make folder " + path);
}

std::string ExecutableDir() {
  char buffer[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", buffer, sizeof buffer - 1);
  if (n <= 0) return ".";
  return ParentOf(std::string(buffer, n));
}

}  // namespace rumbo
