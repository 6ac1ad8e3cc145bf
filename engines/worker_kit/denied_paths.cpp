#include "engines/worker_kit/denied_paths.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace {

std::atomic<bool> reporting{false};
constexpr size_t kMost = 64;
std::atomic<uint64_t> named[kMost];  // hashes of what was named, filled from the front

uint64_t HashOf(const char* text) {
  uint64_t h = 1469598103934665603u;
  for (; *text != '\0'; ++text) h = (h ^ static_cast<unsigned char>(*text)) * 1099511628211u;
  return h == 0 ? 1 : h;
}

// True the first time.
bool Remember(uint64_t hash) {
  for (auto& slot : named) {
    uint64_t seen = slot.load(std::memory_order_relaxed);
    if (seen == 0 && slot.compare_exchange_strong(seen, hash)) return true;
    if (seen == hash) return false;
  }
  return false;
}

// No allocation and no stdio: callers may be anywhere.
void Note(const char* path) {
  const int error = errno;
  if (error == EACCES && reporting.load(std::memory_order_relaxed) && path != nullptr && path[0] == '/' &&
      strchr(path, '\n') == nullptr && Remember(HashOf(path))) {
    constexpr char kHead[] = "rumbo-sandbox denied ";
    iovec parts[] = {{const_cast<char*>(kHead), sizeof kHead - 1},
                     {const_cast<char*>(path), strnlen(path, 1024)},
                     {const_cast<char*>("\n"), 1}};
    [[maybe_unused]] const ssize_t n = writev(STDERR_FILENO, parts, 3);
  }
  errno = error;
}

}  // namespace

namespace rumbo {
void ReportDeniedPaths() { reporting = true; }
}  // namespace rumbo

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

int OpenAt(int dir, const char* path, int flags, mode_t mode) {
  const int fd = static_cast<int>(syscall(SYS_openat, dir, path, flags, mode));
  if (fd < 0) Note(path);
  return fd;
}

template <typename F>
F Next(F, const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

bool HasMode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

extern "C" {

#define RUMBO_MODE(flags)        \
  mode_t mode = 0;               \
  if (HasMode(flags)) {          \
    va_list list;                \
    va_start(list, flags);       \
    mode = va_arg(list, mode_t); \
    va_end(list);                \
  }

__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  RUMBO_MODE(flags)
  return OpenAt(AT_FDCWD, path, flags, mode);
}
__attribute__((visibility("default"))) int open64(const char* path, int flags, ...) {
  RUMBO_MODE(flags)
  return OpenAt(AT_FDCWD, path, flags, mode);
}
__attribute__((visibility("default"))) int openat(int dir, const char* path, int flags, ...) {
  RUMBO_MODE(flags)
  return OpenAt(dir, path, flags, mode);
}
__attribute__((visibility("default"))) int openat64(int dir, const char* path, int flags, ...) {
  RUMBO_MODE(flags)
  return OpenAt(dir, path, flags, mode);
}
__attribute__((visibility("default"))) FILE* fopen(const char* path, const char* how) {
  static const auto next = Next(&fopen, "fopen");
  FILE* file = next(path, how);
  if (file == nullptr) Note(path);
  return file;
}
__attribute__((visibility("default"))) FILE* fopen64(const char* path, const char* how) {
  static const auto next = Next(&fopen64, "fopen64");
  FILE* file = next(path, how);
  if (file == nullptr) Note(path);
  return file;
}
__attribute__((visibility("default"))) DIR* opendir(const char* path) {
  static const auto next = Next(&opendir, "opendir");
  DIR* dir = next(path);
  if (dir == nullptr) Note(path);
  return dir;
}

}  // extern "C"

#endif
