#include <atomic>
#include <cstdio>
#include <random>

#include "daemon/core/core.h"

namespace rumbo {

std::string NewRequestId() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  static std::atomic<uint32_t> count{0};
  char text[40];
  std::snprintf(text, sizeof text, "req-%08x%08x", count.fetch_add(1), static_cast<uint32_t>(random()));
  return text;
}

}  // namespace rumbo
