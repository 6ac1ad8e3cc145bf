#include <algorithm>
#include <charconv>

#include "base/os/sandbox.h"
#include "base/status.h"

namespace rumbo {
namespace {

struct ListRow {
  const char* word;
  std::vector<std::string> SandboxOptions::*list;
};
constexpr ListRow kLists[] = {{"read", &SandboxOptions::read_only},
                              {"write", &SandboxOptions::read_write},
                              {"device", &SandboxOptions::devices}};

struct FlagRow {
  const char* word;
  bool SandboxOptions::*flag;
};
constexpr FlagRow kFlags[] = {{"unix-sockets", &SandboxOptions::allow_unix_sockets},
                              {"threads", &SandboxOptions::allow_threads},
                              {"deny-exec", &SandboxOptions::deny_exec},
                              {"deny-jit", &SandboxOptions::deny_jit}};

struct LimitRow {
  const char* word;
  uint64_t SandboxOptions::*limit;
};
constexpr LimitRow kLimits[] = {{"file-bytes", &SandboxOptions::max_file_bytes},
                                {"address-bytes", &SandboxOptions::max_address_bytes},
                                {"cpu-seconds", &SandboxOptions::max_cpu_seconds},
                                {"open-files", &SandboxOptions::max_open_files}};

bool ReadLine(std::string_view word, std::string_view value, SandboxOptions& out) {
  for (const ListRow& row : kLists) {
    if (word != row.word) continue;
    (out.*row.list).emplace_back(value);
    return value.starts_with('/');
  }
  for (const FlagRow& row : kFlags) {
    if (word != row.word) continue;
    out.*row.flag = value == "yes";
    return value == "yes" || value == "no";
  }
  for (const LimitRow& row : kLimits) {
    if (word != row.word) continue;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out.*row.limit);
    return error == std::errc() && end == value.data() + value.size();
  }
  return false;
}

}  // namespace

std::string SandboxToText(const SandboxOptions& options) {
  std::string out;
  for (const ListRow& row : kLists) {
    for (const std::string& path : options.*row.list) {
      // A path with a line break could say something else; nothing of ours has one.
      if (path.find('\n') == std::string::npos) out += std::string(row.word) + " " + path + "\n";
    }
  }
  for (const FlagRow& row : kFlags) out += std::string(row.word) + (options.*row.flag ? " yes\n" : " no\n");
  for (const LimitRow& row : kLimits)
    out += std::string(row.word) + " " + std::to_string(options.*row.limit) + "\n";
  return out;
}

absl::StatusOr<SandboxOptions> SandboxFromText(std::string_view text) {
  SandboxOptions out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || !ReadLine(line.substr(0, space), line.substr(space + 1), out)) {
      return InvalidArgument("a sandbox cannot say \"" + std::string(line.substr(0, 200)) + "\"");
    }
  }
  return out;
}

}  // namespace rumbo
