#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>

#include "base/os/unique_fd.h"

namespace rumbo {

// What the kernel says about the other end of a loopback TCP connection.
struct PeerSocket {
  uint32_t uid = 0;
  // False once no process holds it any more: closed, not merely shut down for writing.
  bool held = false;
};

// Asks the kernel (NETLINK_SOCK_DIAG) about TCP sockets of this network namespace. One thread. A few
// microseconds per question; never blocks.
class PeerLookup {
 public:
  PeerLookup();
  // The socket whose own address is `peer` and whose remote address is `ours`. nullopt where there is none or
  // the kernel does not say.
  std::optional<PeerSocket> Find(const sockaddr_in& peer, const sockaddr_in& ours);

 private:
  UniqueFd fd_;
  uint32_t sequence_ = 0;
};

}  // namespace rumbo
