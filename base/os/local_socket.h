#pragma once

#include <string>

#include "absl/status/status.h"

namespace rumbo {

// OK where a process accepts connections on the Unix socket `path` at this moment; it sees one connection
// that ends at once. Never blocks. Otherwise what is really the matter, which gRPC would not tell:
//   kUnavailable (kDaemonUnreachable)      no such file; not a socket; a left-over that nobody listens on
//   kPermissionDenied (kPermissionDenied)  the caller may not reach it, or, with `must_be_ours`, it belongs
//                                          to a user who is neither the caller nor root
//   kInvalidArgument                       the path is too long for a socket
absl::Status ProbeLocalSocket(const std::string& path, bool must_be_ours);

}  // namespace rumbo
