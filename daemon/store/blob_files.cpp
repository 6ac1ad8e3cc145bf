#include "daemon/store/blob_files.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <openssl/evp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "base/status.h"

namespace rumbo {
namespace {

constexpr size_t kBlock = 1 << 20;
constexpr size_t kBlocks = 8;             // between the reader and the writer
constexpr uint64_t kWriteBack = 8 << 20;  // bytes after which the kernel is told to begin

absl::Status Cancelled() { return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled"); }

// Writes blocks in order on a thread of its own.
class BlockWriter {
 public:
  explicit BlockWriter(int fd) : fd_(fd), thread_([this] { Run(); }) {}
  ~BlockWriter() { Close().IgnoreError(); }

  // An empty block to fill; waits for one.
  std::vector<char> Take() {
    std::unique_lock lock(mutex_);
    if (made_ < kBlocks) {
      ++made_;
      return std::vector<char>(kBlock);
    }
    changed_.wait(lock, [&] { return !free_.empty(); });
    std::vector<char> block = std::move(free_.front());
    free_.pop_front();
    return block;
  }

  absl::Status Write(std::vector<char> block, size_t size) {
    std::lock_guard lock(mutex_);
    full_.push_back({std::move(block), size});
    changed_.notify_all();
    return status_;
  }

  absl::Status Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    return status_;
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    uint64_t at = 0, told = 0;
    for (;;) {
      changed_.wait(lock, [&] { return closed_ || !full_.empty(); });
      if (full_.empty()) return;
      auto [block, size] = std::move(full_.front());
      full_.pop_front();
      if (status_.ok()) {
        lock.unlock();
        absl::Status written = absl::OkStatus();
        for (size_t done = 0; done < size && written.ok();) {
          const ssize_t n = ::write(fd_, block.data() + done, size - done);
          if (n < 0 && errno == EINTR) continue;
          if (n < 0) written = ErrnoStatus(errno, "write to the store");
          if (n > 0) done += static_cast<size_t>(n);
        }
        at += size;
        if (written.ok() && at - told >= kWriteBack) {
          ::sync_file_range(fd_, static_cast<off64_t>(told), static_cast<off64_t>(at - told),
                            SYNC_FILE_RANGE_WRITE);
          told = at;
        }
        lock.lock();
        status_ = written;
      }
      free_.push_back(std::move(block));
      changed_.notify_all();
    }
  }

  const int fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::vector<char>, size_t>> full_;
  std::deque<std::vector<char>> free_;
  size_t made_ = 0;
  bool closed_ = false;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_, EVP_sha256(), nullptr); }
Sha256::~Sha256() { EVP_MD_CTX_free(context_); }
void Sha256::Update(const void* data, size_t size) { EVP_DigestUpdate(context_, data, size); }
std::string Sha256::Finish() {
  unsigned char digest[32];
  unsigned size = 0;
  EVP_DigestFinal_ex(context_, digest, &size);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < size; ++i) {
    out += kDigits[digest[i] >> 4];
    out += kDigits[digest[i] & 15];
  }
  return out;
}

absl::StatusOr<std::string> HashFile(int fd, const std::atomic<bool>& cancelled,
                                     const ByteProgress& progress) {
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  Sha256 hash;
  std::vector<char> block(kBlock);
  for (uint64_t at = 0;;) {
    if (cancelled) return Cancelled();
    const ssize_t n = ::pread(fd, block.data(), block.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read the model file");
    if (n == 0) return hash.Finish();
    hash.Update(block.data(), static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
    if (progress) progress(at);
  }
}

absl::StatusOr<std::string> CopyAndHash(int from, int to, int64_t size, const std::atomic<bool>& cancelled,
                                        const ByteProgress& progress) {
  if (::ioctl(to, FICLONE, from) == 0) return HashFile(from, cancelled, progress);
  ::posix_fadvise(from, 0, 0, POSIX_FADV_SEQUENTIAL);
  Sha256 hash;
  BlockWriter writer(to);
  int64_t done = 0;
  for (;;) {
    if (cancelled) return Cancelled();
    std::vector<char> block = writer.Take();
    ssize_t n;
    do {
      n = ::read(from, block.data(), block.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) return ErrnoStatus(errno, "read the model file");
    if (n == 0) break;
    hash.Update(block.data(), static_cast<size_t>(n));
    RUMBO_RETURN_IF_ERROR(writer.Write(std::move(block), static_cast<size_t>(n)));
    done += n;
    if (progress) progress(static_cast<uint64_t>(done));
  }
  RUMBO_RETURN_IF_ERROR(writer.Close());
  if (done != size) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid,
                 "the file changed while it was read", "Import it again.");
  }
  return hash.Finish();
}

absl::Status Settle(int fd, const std::string& from, const std::string& path) {
  // A sync that failed is not tried again: the file goes.
  if (::fchmod(fd, 0400) != 0 || ::fsync(fd) != 0) return ErrnoStatus(errno, "sync the stored file");
  if (::rename(from.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename the stored file");
  UniqueFd dir(::open(path.substr(0, path.rfind('/')).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.valid() && ::fsync(dir.get()) != 0) return ErrnoStatus(errno, "sync the store's folder");
  return absl::OkStatus();
}

Bytes FreeBytes(const std::string& dir) {
  struct statvfs disk;
  if (::statvfs(dir.c_str(), &disk) != 0) return UINT64_MAX;
  return SaturatingMul(disk.f_bavail, disk.f_frsize);
}

}  // namespace rumbo
