#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "daemon/core/types.h"

namespace rumbo {

// Who is behind each accepted connection. gRPC names a connection made from a descriptor "fd:N" in a call's
// peer(). Thread-safe.
class PeerTable {
 public:
  void Add(int fd, uint32_t uid, int64_t pid) {
    std::lock_guard lock(mutex_);
    peers_[fd] = {uid, pid};
  }

  // uid and pid of the connection that `peer` names; our own user where it is not known.
  ClientIdentity Find(const std::string& peer, const std::string& app) const;

 private:
  struct Peer {
    uint32_t uid;
    int64_t pid;
  };
  mutable std::mutex mutex_;
  std::map<int, Peer> peers_;  // guarded by mutex_; a number is reused with its descriptor
};

}  // namespace rumbo
