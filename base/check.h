#pragma once

// For our own bugs, never for input or hardware: prints where and why, then aborts.
#define RUMBO_CHECK(condition)                                              \
  do {                                                                      \
    if (!(condition)) ::rumbo::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (0)

namespace rumbo {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}
