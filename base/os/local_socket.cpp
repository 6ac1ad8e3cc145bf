#include "base/os/local_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/os/unique_fd.h"
#include "base/status.h"

namespace rumbo {
namespace {

absl::Status Unreachable(const std::string& message) {
  return Error(absl::StatusCode::kUnavailable, Reason::kDaemonUnreachable, message,
               "Start the daemon with `rumbod`; `rumbo run MODEL` starts it by itself.");
}

absl::Status Denied(const std::string& message) {
  return Error(absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied, message,
               "Use a socket of your own: set RUMBO_SOCKET.");
}

}  // namespace

absl::Status ProbeLocalSocket(const std::string& path, bool must_be_ours) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return InvalidArgument("the socket path is empty or longer than " +
                               std::to_string(sizeof address.sun_path - 1) + " bytes: " + path,
                           "Choose a shorter one with RUMBO_SOCKET.");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == EACCES) return Denied("no access to the socket " + path);
    return Unreachable("no daemon runs: there is no socket " + path);
  }
  if (!S_ISSOCK(info.st_mode)) return Unreachable(path + " is not a socket");
  if (must_be_ours && info.st_uid != ::getuid() && info.st_uid != 0) {
    return Denied("the socket " + path + " belongs to another user (uid " + std::to_string(info.st_uid) +
                  ")");
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Internal(std::string("socket: ") + std::strerror(errno));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return absl::OkStatus();
  if (errno == EAGAIN || errno == EINPROGRESS) return absl::OkStatus();  // Its backlog is full: it lives.
  if (errno == EACCES || errno == EPERM) return Denied("no access to the socket " + path);
  if (errno == ECONNREFUSED) return Unreachable("no daemon runs: nobody listens on " + path);
  return Unreachable("connect to " + path + ": " + std::strerror(errno));
}

}  // namespace rumbo
