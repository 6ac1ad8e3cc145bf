#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace rumbo {
void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "CHECK failed at %s:%d: %s\n", file, line, condition);
  std::abort();
}
}  // namespace rumbo
