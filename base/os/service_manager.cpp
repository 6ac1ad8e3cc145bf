#include "base/os/service_manager.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/status.h"

namespace rumbo {
namespace {

constexpr int kFirstInherited = 3;  // SD_LISTEN_FDS_START
constexpr int kMostInherited = 16;

std::optional<int64_t> Number(const char* text) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  if (error != std::errc() || at != end || value < 0) return std::nullopt;
  return value;
}

absl::StatusOr<InheritedListener> Take(int number) {
  const auto wrong = [number](const char* what) {
    return InvalidArgument(
        "the service manager handed over descriptor " + std::to_string(number) + ", " + what,
        "The socket unit may have ListenStream= alone: a Unix path, or ADDR:PORT over IPv4.");
  };
  int type = 0, listening = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return wrong("which is no stream socket");
  size = sizeof listening;
  if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0)
    return wrong("which does not listen");
  InheritedListener out;
  sockaddr_storage address = {};
  size = sizeof address;
  if (::getsockname(number, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return wrong("without a name");
  if (address.ss_family == AF_UNIX) {
    out.local = true;
    const auto& local = reinterpret_cast<const sockaddr_un&>(address);
    out.name = std::string(local.sun_path, ::strnlen(local.sun_path, sizeof local.sun_path));
  } else if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    char text[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    out.name = std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
  } else {
    return wrong("of another family");
  }
  ::fcntl(number, F_SETFD, FD_CLOEXEC);
  ::fcntl(number, F_SETFL, ::fcntl(number, F_GETFL) | O_NONBLOCK);
  out.fd.reset(number);
  return out;
}

}  // namespace

absl::StatusOr<std::vector<InheritedListener>> TakeInheritedListeners() {
  const auto pid = Number(std::getenv("LISTEN_PID"));
  const auto count = Number(std::getenv("LISTEN_FDS"));
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  std::vector<InheritedListener> out;
  if (!pid || *pid != ::getpid() || !count) return out;
  if (*count > kMostInherited)
    return InvalidArgument("the service manager handed over " + std::to_string(*count) + " sockets",
                           "The socket unit needs two: one for gRPC, one for HTTP.");
  for (int i = 0; i < *count; ++i) {
    RUMBO_ASSIGN_OR_RETURN(InheritedListener listener, Take(kFirstInherited + i));
    out.push_back(std::move(listener));
  }
  return out;
}

ServiceManager::ServiceManager() {
  const char* path = std::getenv("NOTIFY_SOCKET");
  const std::string name = path == nullptr ? "" : path;
  const auto period = Number(std::getenv("WATCHDOG_USEC"));
  const auto pid = Number(std::getenv("WATCHDOG_PID"));
  for (const char* variable : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(variable);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (name.size() < 2 || name.size() >= sizeof address.sun_path || (name[0] != '/' && name[0] != '@')) return;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (!fd.valid() || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return;
  socket_ = std::move(fd);
  if (period && *period > 0 && (!pid || *pid == ::getpid())) watchdog_ = std::chrono::microseconds(*period);
}

void ServiceManager::Reloading() const {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  Send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(now.tv_sec * 1'000'000LL + now.tv_nsec / 1000));
}

void ServiceManager::Send(const std::string& text) const {
  if (socket_.valid()) [[maybe_unused]]
    const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

}  // namespace rumbo
