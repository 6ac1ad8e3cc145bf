#include "daemon/supervisor/promises.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "daemon/supervisor/processes.h"

namespace rumbo {
namespace {

constexpr int kLockTries = 50;      // a millisecond each
constexpr size_t kMaxFile = 16384;  // some hundred pools
constexpr int kMaxFiles = 1000;

class FilePromiseBoard final : public PromiseBoard {
 public:
  FilePromiseBoard(std::string dir, UniqueFd folder, UniqueFd lock, std::string own)
      : dir_(std::move(dir)), folder_(std::move(folder)), lock_(std::move(lock)), own_(std::move(own)) {}
  ~FilePromiseBoard() override { ::unlinkat(folder_.get(), own_.c_str(), 0); }

  void Enter() override {
    if (depth_++ > 0) return;
    for (int i = 0; i < kLockTries; ++i) {
      if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return;
      ::poll(nullptr, 0, 1);
    }
    spdlog::warn("another daemon holds {}/lock; going on without", dir_);
  }
  void Leave() override {
    if (--depth_ == 0) ::flock(lock_.get(), LOCK_UN);
  }

  std::map<std::string, Bytes> Exchange(const std::map<std::string, Bytes>& ours) override {
    Publish(ours);
    std::map<std::string, Bytes> sum;
    UniqueFd again(::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!again.valid()) return sum;
    DIR* list = ::fdopendir(again.release());
    if (list == nullptr) return sum;
    int files = 0;
    while (const dirent* entry = ::readdir(list)) {
      if (own_ == entry->d_name || entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
      if (++files > kMaxFiles) break;
      AddFile(entry->d_name, sum);
    }
    ::closedir(list);
    return sum;
  }

 private:
  void Publish(const std::map<std::string, Bytes>& ours) {
    if (published_ && last_ == ours) return;
    std::string text;
    for (const auto& [pool, bytes] : ours) text += pool + " " + std::to_string(bytes) + "\n";
    // Readers take what is whole lines; it is small enough to be written at once.
    UniqueFd fd(
        ::openat(folder_.get(), own_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd.valid() || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      if (published_) spdlog::warn("{}: {}", dir_, MessageOf(ErrnoStatus(errno, "write the promises")));
      published_ = false;
      return;
    }
    ::fchmod(fd.get(), 0644);
    published_ = true;
    last_ = ours;
  }

  void AddFile(const std::string& name, std::map<std::string, Bytes>& sum) {
    UniqueFd fd(::openat(folder_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info;
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    const std::optional<ProcessMark> mark = ProcessMark::FromText(name);
    const std::optional<uint32_t> uid = mark ? UidOf(*mark) : std::nullopt;
    if (!uid) {
      ::unlinkat(folder_.get(), name.c_str(),
                 0);  // the daemon is gone; the sticky folder lets only its user do that
      return;
    }
    if (*uid != info.st_uid) return;
    char text[kMaxFile];
    const ssize_t n = ::read(fd.get(), text, sizeof text);
    if (n <= 0) return;
    std::istringstream lines(std::string(text, static_cast<size_t>(n)));
    std::string pool;
    uint64_t bytes = 0;
    while (lines >> pool >> bytes) sum[pool] = SaturatingAdd(sum[pool], bytes);
  }

  const std::string dir_;
  const UniqueFd folder_, lock_;
  const std::string own_;
  int depth_ = 0;
  bool published_ = false;
  std::map<std::string, Bytes> last_;
};

}  // namespace

std::string DefaultPromiseDir() {
  struct stat info;
  if (::stat("/dev/shm", &info) == 0 && S_ISDIR(info.st_mode)) return "/dev/shm/rumbo-promises";
  return "/tmp/rumbo-promises";
}

absl::StatusOr<std::unique_ptr<PromiseBoard>> NewPromiseBoard(const std::string& dir) {
  if (::mkdir(dir.c_str(), 0700) == 0) ::chmod(dir.c_str(), 01777);
  UniqueFd folder(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!folder.valid()) return ErrnoStatus(errno, "open " + dir);
  UniqueFd lock(::openat(folder.get(), "lock", O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0444));
  if (!lock.valid()) return ErrnoStatus(errno, "open " + dir + "/lock");
  const std::optional<ProcessMark> self = ProcessMark::Of(::getpid());
  if (!self) return Internal("/proc does not show this process");
  return std::make_unique<FilePromiseBoard>(dir, std::move(folder), std::move(lock), self->Text());
}

}  // namespace rumbo
