#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The file tree that probes read: /sys, /proc and /dev below a prefix, so that a captured or synthetic
// tree is read by the same code as the machine itself. Read-only; nothing here opens a device node.
//
// Threading: immutable after construction; call from any thread.
namespace rumbo {

enum class ReadState {
  kOk,
  kMissing,
  kDenied,      // there, but not for us
  kUnreadable,  // a folder, a link loop, an I/O error, or longer than the limit
};

struct FileText {
  ReadState state = ReadState::kMissing;
  std::string text;  // NUL padding and white space at both ends removed; "" unless kOk
  bool ok() const { return state == ReadState::kOk; }
};

// A device node as the permission bits describe it.
struct NodeAccess {
  bool exists = false;
  bool read_write = false;  // this process may open it for reading and writing (checked, not opened)
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t mode = 0;  // permission bits
  std::string group;  // name of gid, or its number
};

class Root {
 public:
  static constexpr size_t kMaxFile = 64 * 1024;
  static constexpr size_t kMaxEntries = 4096;

  explicit Root(std::string prefix = "/");

  // Whether this is the running machine: only then do vendor libraries, ioctls and tools say anything
  // about it.
  bool live() const { return prefix_.empty(); }
  const std::string& prefix() const { return prefix_; }

  FileText Read(std::string_view path, size_t max_bytes = kMaxFile) const;

  // Names in a folder, sorted; empty where it is missing or unreadable; at most kMaxEntries.
  std::vector<std::string> List(std::string_view path) const;

  bool Exists(std::string_view path) const;

  // Last component of what a symbolic link names; "" where it is none.
  std::string LinkName(std::string_view path) const;

  // Inode of the entry itself (a link is not followed); 0 where it is missing.
  uint64_t Inode(std::string_view path) const;

  NodeAccess Access(std::string_view path) const;

 private:
  std::string Full(std::string_view path) const;
  std::string prefix_;  // without a trailing slash; "" for the machine itself
};

// A whole decimal number without sign; nullopt for anything else, also where it does not fit.
std::optional<uint64_t> ParseU64(std::string_view text);
// The same with an optional sign.
std::optional<int64_t> ParseI64(std::string_view text);
// "0x1002", "1002"; nullopt for anything else.
std::optional<uint64_t> ParseHex(std::string_view text);

std::string_view Trim(std::string_view text);
std::vector<std::string_view> Lines(std::string_view text);
// Parts between runs of blanks and tabs.
std::vector<std::string_view> Words(std::string_view text);
std::string Lower(std::string_view text);

// "0-3,8,10-11" as the number of CPUs it names; nullopt where malformed or above 65536.
std::optional<int> CountCpuList(std::string_view text);

}  // namespace rumbo
