#include "devices/sys/root.h"

#include <dirent.h>
#include <grp.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "absl/status/status.h"
#include "base/os/files.h"

namespace rumbo {
namespace {

constexpr std::string_view kBlank{" \t\r\n\0", 5};

std::string GroupName(gid_t gid) {
  char buffer[4096];
  struct group entry;
  struct group* found = nullptr;
  if (getgrgid_r(gid, &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr) return found->gr_name;
  return std::to_string(gid);
}

template <typename T>
std::optional<T> Number(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

Root::Root(std::string prefix) : prefix_(std::move(prefix)) {
  while (!prefix_.empty() && prefix_.back() == '/') prefix_.pop_back();
}

std::string Root::Full(std::string_view path) const {
  std::string full = prefix_;
  if (path.empty() || path.front() != '/') full += '/';
  return full.append(path);
}

FileText Root::Read(std::string_view path, size_t max_bytes) const {
  const auto data = ReadFile(Full(path), max_bytes);
  if (data.ok()) return {ReadState::kOk, std::string(Trim(*data))};
  switch (data.status().code()) {
    case absl::StatusCode::kNotFound:
      return {ReadState::kMissing, ""};
    case absl::StatusCode::kPermissionDenied:
      return {ReadState::kDenied, ""};
    default:
      return {ReadState::kUnreadable, ""};
  }
}

std::vector<std::string> Root::List(std::string_view path) const {
  std::vector<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(Full(path).c_str()), closedir);
  if (!dir) return names;
  while (const dirent* entry = readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    names.emplace_back(name);
    if (names.size() == kMaxEntries) break;
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Root::Exists(std::string_view path) const {
  struct stat info;
  return stat(Full(path).c_str(), &info) == 0;
}

std::string Root::LinkName(std::string_view path) const {
  char target[PATH_MAX];
  const ssize_t n = readlink(Full(path).c_str(), target, sizeof target);
  if (n <= 0) return "";
  const std::string_view view(target, static_cast<size_t>(n));
  return std::string(view.substr(view.rfind('/') + 1));  // npos + 1 is 0
}

uint64_t Root::Inode(std::string_view path) const {
  struct stat info;
  return lstat(Full(path).c_str(), &info) == 0 ? info.st_ino : 0;
}

NodeAccess Root::Access(std::string_view path) const {
  NodeAccess out;
  const std::string full = Full(path);
  struct stat info;
  if (stat(full.c_str(), &info) != 0) return out;
  out.exists = true;
  out.read_write = access(full.c_str(), R_OK | W_OK) == 0;
  out.uid = info.st_uid;
  out.gid = info.st_gid;
  out.mode = info.st_mode & 07777;
  out.group = GroupName(info.st_gid);
  return out;
}

std::optional<uint64_t> ParseU64(std::string_view text) { return Number<uint64_t>(Trim(text), 10); }

std::optional<int64_t> ParseI64(std::string_view text) {
  text = Trim(text);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  return Number<int64_t>(text, 10);
}

std::optional<uint64_t> ParseHex(std::string_view text) {
  text = Trim(text);
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  return Number<uint64_t>(text, 16);
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.push_back(line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return out;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return out;
    text.remove_prefix(first);
    const size_t end = std::min(text.find_first_of(kBlank), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::optional<int> CountCpuList(std::string_view text) {
  constexpr uint64_t kMax = 65536;
  text = Trim(text);
  if (text.empty()) return std::nullopt;
  uint64_t count = 0;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = Trim(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = part.find('-');
    const auto first = ParseU64(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : ParseU64(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kMax) return std::nullopt;
    count += *last - *first + 1;
    if (count > kMax) return std::nullopt;
  }
  return static_cast<int>(count);
}

}  // namespace rumbo
