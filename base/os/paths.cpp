#include "base/os/paths.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsAbsolute(const std::string& path) { return !path.empty() && path[0] == '/'; }

// Own folder in /tmp, for what has no better place.
std::string FallbackDir() { return "/tmp/rumbo-" + std::to_string(::getuid()); }

// "" where the user has no home.
std::string Home() {
  if (const std::string home = Env("HOME"); IsAbsolute(home)) return home;
  std::vector<char> buffer(16384);
  passwd entry;
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return "";
  return IsAbsolute(found->pw_dir) ? found->pw_dir : "";
}

std::string UserDir(const char* own, const char* xdg, const char* under_home, const char* leaf) {
  if (const std::string path = Env(own); !path.empty()) return AbsolutePath(path);
  if (const std::string path = Env(xdg); IsAbsolute(path)) return path + "/rumbo" + leaf;
  if (const std::string home = Home(); !home.empty()) return home + under_home + "/rumbo" + leaf;
  return FallbackDir() + under_home + leaf;
}

}  // namespace

std::string DefaultSocketPath() {
  if (const std::string path = Env("RUMBO_SOCKET"); !path.empty()) return AbsolutePath(path);
  if (const std::string dir = Env("XDG_RUNTIME_DIR"); IsAbsolute(dir)) {
    struct stat info;
    const bool ours = ::stat(dir.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::getuid();
    if (ours) return dir + "/rumbo/rumbo.sock";
  }
  return FallbackDir() + "/rumbo.sock";
}

std::string ClientSocketPath() {
  const std::string own = DefaultSocketPath();
  struct stat info;
  if (!Env("RUMBO_SOCKET").empty() || ::stat(own.c_str(), &info) == 0) return own;
  const char* system = "/run/rumbo/rumbo.sock";
  return ::stat(system, &info) == 0 && S_ISSOCK(info.st_mode) && ::access(system, W_OK) == 0 ? system : own;
}

std::string DefaultStateDir() { return UserDir("RUMBO_STATE_DIR", "XDG_DATA_HOME", "/.local/share", ""); }
std::string DefaultCacheDir() { return UserDir("RUMBO_CACHE_DIR", "XDG_CACHE_HOME", "/.cache", ""); }
std::string DefaultConfigFile() {
  return UserDir("RUMBO_CONFIG", "XDG_CONFIG_HOME", "/.config", "/config.yaml");
}

std::string AbsolutePath(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

absl::Status MakePrivateDir(const std::string& path) {
  RUMBO_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (S_ISLNK(info.st_mode) && info.st_uid == ::getuid() && ::stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, "stat " + path);
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::getuid() || (info.st_mode & 0022) != 0) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied,
                 path + " is not a folder that only you can write to",
                 "Remove it, or choose another place with RUMBO_SOCKET.");
  }
  return absl::OkStatus();
}

}  // namespace rumbo
