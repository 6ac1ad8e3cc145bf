// Preloaded into the daemon by faults.py: moves its wall clock by the seconds that stand in a file, and nothing else.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* offset(void) {
  static const volatile int64_t* mapped;
  if (mapped == NULL) {
    static const int64_t none = 0;
    const char* path = getenv("CLOCK_SHIM_FILE");
    const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void* map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    mapped = map == MAP_FAILED ? &none : map;
    if (fd >= 0) close(fd);
  }
  return mapped;
}

int clock_gettime(clockid_t clock, struct timespec* out) {
  const long rc = syscall(SYS_clock_gettime, clock, out);
  if (rc == 0 && clock == CLOCK_REALTIME) out->tv_sec += *offset();
  return (int)rc;
}

int gettimeofday(struct timeval* out, void* zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}
