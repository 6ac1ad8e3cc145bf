#pragma once

#include <grpcpp/impl/service_type.h>

namespace rumbo {

// The descriptor named by RUMBO_ENGINE_FD, or -1 (with a line on stderr) where it is missing, not a number,
// or no socket. Not owned by the caller: gRPC takes it in ServeUntilEof.
int InheritedSocket();

// Serves `service` on the connected socket `fd` and on nothing else, until the peer closes it; then the
// process ends with _exit(0) at once, whatever its threads are doing. Does not return otherwise.
// Call from the main thread, with no other user of `fd`.
[[noreturn]] void ServeUntilEof(grpc::Service* service, int fd);

}  // namespace rumbo
