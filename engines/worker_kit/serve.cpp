#include "engines/worker_kit/serve.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace rumbo {

int InheritedSocket() {
  const char* text = std::getenv("RUMBO_ENGINE_FD");
  if (text == nullptr) {
    std::fprintf(stderr, "RUMBO_ENGINE_FD is not set: this program is started by rumbod.\n");
    return -1;
  }
  int fd = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, fd);
  if (error != std::errc() || stop != end || fd < 0) {
    std::fprintf(stderr, "RUMBO_ENGINE_FD is not a descriptor number.\n");
    return -1;
  }
  int type = 0;
  socklen_t length = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) {
    std::fprintf(stderr, "RUMBO_ENGINE_FD names no stream socket.\n");
    return -1;
  }
  return fd;
}

void ServeUntilEof(grpc::Service* service, int fd) {
  // gRPC owns `fd` and may close it first; the duplicate sees the same end of stream.
  const int watched = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  RUMBO_CHECK(watched >= 0);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);

  grpc::ServerBuilder builder;
  builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(64 << 20);
  builder.SetMaxSendMessageSize(64 << 20);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  RUMBO_CHECK(server != nullptr);
  grpc::AddInsecureChannelFromFd(server.get(), fd);

  pollfd poll_fd{.fd = watched, .events = POLLRDHUP, .revents = 0};
  while (poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
  }
  std::fflush(stderr);
  _exit(0);
}

}  // namespace rumbo
