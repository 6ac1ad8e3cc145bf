#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rumbo {

// One process of one boot, for ever: its number alone may belong to another by now.
struct ProcessMark {
  int64_t pid = 0;
  uint64_t start = 0;  // ticks after boot, from /proc/PID/stat

  // nullopt where no such process runs (a zombie does not).
  static std::optional<ProcessMark> Of(int64_t pid);
  // "PID-START".
  std::string Text() const { return std::to_string(pid) + "-" + std::to_string(start); }
  static std::optional<ProcessMark> FromText(const std::string& text);
  bool operator==(const ProcessMark&) const = default;
};

// The user of that very process; nullopt where it is gone.
std::optional<uint32_t> UidOf(const ProcessMark& mark);

// Device and inode of the program that it runs, "DEV:INODE"; "" where that cannot be told.
std::string ExecutableOf(int64_t pid);

// CPU time that it used so far, in clock ticks, and the bytes it read, as one number that grows while it does
// anything; nullopt where that cannot be told.
std::optional<uint64_t> WorkOf(int64_t pid);

}  // namespace rumbo
