#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/os/unique_fd.h"

namespace rumbo {

struct AuditEntry {
  std::string_view principal;
  uint32_t uid = 0;
  std::string_view method;
  std::string_view route;
  std::string_view argument;
  int status = 0;
};

// Who changed what, allowed or not: one JSON line each, appended to a file of mode 0600. Never what models
// were asked. Threading: one thread.
class AuditLog {
 public:
  explicit AuditLog(std::string path) : path_(std::move(path)) {}
  // "" opens nothing; entries then go to the daemon's log.
  absl::Status Open();
  void Write(const AuditEntry& entry);

 private:
  const std::string path_;
  UniqueFd fd_;
};

}  // namespace rumbo
