#include "base/os/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

constexpr std::string_view kUnfinished = ".part-";

absl::Status WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write");
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateFolder>> PrivateFolder::Open(const std::string& path) {
  RUMBO_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, "the cache folder");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "the cache folder");
  if (info.st_uid != ::geteuid() || (info.st_mode & 0077) != 0) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kFileNotReadable,
                 "the cache folder is open to others or belongs to another user",
                 "Make it yours alone (chmod 700), or delete it.");
  }
  std::unique_ptr<PrivateFolder> folder(new PrivateFolder(std::move(fd)));
  // What a crash left half written.
  for (const File& file : folder->List()) {
    if (file.name.starts_with(kUnfinished)) folder->Remove(file.name);
  }
  return folder;
}

std::vector<PrivateFolder::File> PrivateFolder::List() const {
  std::vector<File> files;
  const int copy = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = copy < 0 ? nullptr : ::fdopendir(copy);
  if (dir == nullptr) {
    if (copy >= 0) ::close(copy);
    return files;
  }
  while (const dirent* entry = ::readdir(dir)) {
    struct stat info {};
    if (::fstatat(fd_.get(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
      continue;
    files.push_back({entry->d_name, static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec});
  }
  ::closedir(dir);
  return files;
}

absl::Status PrivateFolder::Write(const std::string& name, std::span<const std::string_view> parts) const {
  static std::atomic<uint64_t> next{0};
  const std::string unfinished =
      std::string(kUnfinished) + std::to_string(::getpid()) + "-" + std::to_string(next++);
  absl::Status status;
  {
    const UniqueFd file(
        ::openat(fd_.get(), unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.get() < 0) return ErrnoStatus(errno, "the cache file");
    for (const std::string_view part : parts) {
      if (status.ok()) status = WriteAll(file.get(), part);
    }
  }
  if (status.ok() && ::renameat(fd_.get(), unfinished.c_str(), fd_.get(), name.c_str()) != 0)
    status = ErrnoStatus(errno, "the cache file");
  if (!status.ok()) Remove(unfinished);
  return status;
}

absl::Status PrivateFolder::Read(const std::string& name, uint64_t offset, void* out, uint64_t size) const {
  const UniqueFd file(::openat(fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return ErrnoStatus(errno, "the cache file");
  auto* to = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t n = ::pread(file.get(), to, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "the cache file");
    if (n == 0) return Error(absl::StatusCode::kDataLoss, Reason::kInternal, "the cache file ends too early");
    to += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

void PrivateFolder::Remove(const std::string& name) const { ::unlinkat(fd_.get(), name.c_str(), 0); }

}  // namespace rumbo
