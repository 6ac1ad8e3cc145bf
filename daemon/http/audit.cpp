#include "daemon/http/audit.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <cerrno>

#include "base/os/files.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/http/json_out.h"
#include "daemon/http/ollama_out.h"

namespace rumbo {

absl::Status AuditLog::Open() {
  if (path_.empty()) return absl::OkStatus();
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd_.valid()) return ErrnoStatus(errno, "opening the audit log");
  return absl::OkStatus();
}

void AuditLog::Write(const AuditEntry& entry) {
  std::string line;
  JsonWriter(line)
      .Open('{')
      .Key("time")
      .String(Rfc3339Now())
      .Key("who")
      .String(entry.principal)
      .Key("uid")
      .Uint(entry.uid)
      .Key("method")
      .String(entry.method)
      .Key("route")
      .String(entry.route)
      .Key("argument")
      .String(EscapeForLog(entry.argument, 200))
      .Key("status")
      .Int(entry.status)
      .Close('}');
  spdlog::info("audit {}", line);
  if (!fd_.valid()) return;
  line += '\n';
  // One write, so that lines of several writers never mix; a full disk is said in the log.
  if (::write(fd_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    spdlog::error("the audit log cannot be written: {}", MessageOf(ErrnoStatus(errno, "write")));
  }
}

}  // namespace rumbo
