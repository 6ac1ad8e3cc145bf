#include "daemon/supervisor/processes.h"

#include <sys/stat.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/os/files.h"

namespace rumbo {
namespace {

// The fields of /proc/PID/stat after the name, which may hold anything: [0] is the state.
std::vector<std::string> StatOf(int64_t pid) {
  std::vector<std::string> fields;
  const auto text = ReadFile("/proc/" + std::to_string(pid) + "/stat", 8192);
  if (!text.ok()) return fields;
  const size_t end = text->rfind(')');
  if (end == std::string::npos) return fields;
  std::istringstream rest(text->substr(end + 1));
  std::string field;
  while (rest >> field) fields.push_back(field);
  return fields;
}

uint64_t Number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

}  // namespace

std::optional<ProcessMark> ProcessMark::Of(int64_t pid) {
  const std::vector<std::string> stat = StatOf(pid);
  if (stat.size() < 20 || stat[0] == "Z" || stat[0] == "X") return std::nullopt;
  return ProcessMark{pid, Number(stat[19])};
}

std::optional<ProcessMark> ProcessMark::FromText(const std::string& text) {
  ProcessMark mark;
  char* end = nullptr;
  mark.pid = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '-' || mark.pid <= 0) return std::nullopt;
  const char* start = end + 1;
  mark.start = std::strtoull(start, &end, 10);
  if (end == start || *end != '\0') return std::nullopt;
  return mark;
}

std::optional<uint32_t> UidOf(const ProcessMark& mark) {
  struct stat info;
  if (::stat(("/proc/" + std::to_string(mark.pid)).c_str(), &info) != 0) return std::nullopt;
  if (ProcessMark::Of(mark.pid) != mark) return std::nullopt;
  return info.st_uid;
}

std::string ExecutableOf(int64_t pid) {
  struct stat info;
  if (::stat(("/proc/" + std::to_string(pid) + "/exe").c_str(), &info) != 0) return "";
  return std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

std::optional<uint64_t> WorkOf(int64_t pid) {
  const std::vector<std::string> stat = StatOf(pid);
  if (stat.size() < 20) return std::nullopt;
  uint64_t work =
      Number(stat[11]) + Number(stat[12]) + Number(stat[9]);  // user and system time, major faults
  if (const auto io = ReadFile("/proc/" + std::to_string(pid) + "/io", 4096); io.ok()) {
    if (const size_t at = io->find("read_bytes:"); at != std::string::npos)
      work += Number(io->substr(at + 11));
  }
  return work;
}

}  // namespace rumbo
