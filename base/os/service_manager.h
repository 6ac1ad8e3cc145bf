#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/unique_fd.h"

// What a daemon and the service manager that started it say to each other: systemd's protocols for inherited
// sockets (sd_listen_fds(3)) and for notifications (sd_notify(3)), which are a few lines each and need no
// library. Everything here is a no-op where no service manager is.
namespace rumbo {

// A listening socket that the service manager opened for us.
struct InheritedListener {
  UniqueFd fd;         // close-on-exec, non-blocking
  bool local = false;  // a Unix socket; else TCP
  std::string name;    // path of a Unix socket; "ADDR:PORT" of TCP over IPv4
};

// Takes the sockets of $LISTEN_FDS where $LISTEN_PID is this process, and removes the variables, so that no
// child takes them again. Call once, before the first thread.
// Errors: kInvalidArgument where something else than listening stream sockets was handed over.
absl::StatusOr<std::vector<InheritedListener>> TakeInheritedListeners();

// Notifications to $NOTIFY_SOCKET. Thread-safe after its construction, which removes the variables.
class ServiceManager {
 public:
  ServiceManager();

  // True where somebody listens.
  bool present() const { return socket_.valid(); }
  // How often Alive() is expected ($WATCHDOG_USEC of this process); nullopt where not at all.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

  void Ready(const std::string& status) const { Send("READY=1\nSTATUS=" + status); }
  void Reloading() const;
  void Stopping(const std::string& status) const { Send("STOPPING=1\nSTATUS=" + status); }
  void Alive() const { Send("WATCHDOG=1"); }

 private:
  void Send(const std::string& text) const;

  UniqueFd socket_;
  std::optional<std::chrono::microseconds> watchdog_;
};

}  // namespace rumbo
