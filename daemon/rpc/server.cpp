#include "daemon/rpc/server.h"

#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

#include "base/os/files.h"
#include "base/os/local_socket.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "daemon/rpc/peers.h"
#include "daemon/rpc/services.h"

namespace rumbo {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;  // a conversation with images
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr int kMaxStreams = 16384;  // per connection

// Binds and listens on `path` with mode 0600 from the first moment on.
absl::StatusOr<UniqueFd> ListenLocal(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return InvalidArgument(
        "the socket path is longer than " + std::to_string(sizeof address.sun_path - 1) + " bytes",
        "Choose a shorter --socket.");
  }
  if (ProbeLocalSocket(path, false).ok()) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kAddressInUse, "another daemon answers on " + path,
                 "Use that one, stop it, or choose another --socket.");
  }
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kAddressInUse,
                   path + " is there and is no socket", "Remove it or choose another --socket.");
    }
    ::unlink(path.c_str());
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  const mode_t old = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  const int error = errno;
  ::umask(old);
  if (bound != 0) return ErrnoStatus(error, "listen on " + path);
  if (::listen(fd.get(), 512) != 0) return ErrnoStatus(errno, "listen on " + path);
  return fd;
}

class RpcServerOverGrpc final : public RpcServer {
 public:
  RpcServerOverGrpc(RpcOptions options, Core* core, RpcHooks hooks)
      : options_(options), context_{core, &peers_, options, std::move(hooks)} {}

  ~RpcServerOverGrpc() override { Stop(std::chrono::milliseconds(0)); }

  absl::Status Begin() {
    if (options_.listener >= 0) {
      listener_.reset(options_.listener);
    } else {
      RUMBO_ASSIGN_OR_RETURN(listener_, ListenLocal(options_.socket));
    }
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    services_.push_back(NewInferenceService(context_));
    services_.push_back(NewModelService(context_));
    services_.push_back(NewPlanService(context_));
    services_.push_back(NewDeviceService(context_));
    services_.push_back(NewInstanceService(context_));
    services_.push_back(NewAdminService(context_));
    grpc::ServerBuilder builder;
    for (auto& service : services_) builder.RegisterService(service.get());
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument("grpc.http2.bdp_probe", 0);
    server_ = builder.BuildAndStart();
    if (!server_) return Internal("gRPC did not start");
    for (const char* service : {"InferenceService", "ModelService", "PlanService", "DeviceService",
                                "InstanceService", "AdminService"}) {
      server_->GetHealthCheckService()->SetServingStatus(std::string("rumbo.v1.") + service, true);
    }
    wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    accepting_ = std::thread([this] { Accept(); });
    pthread_setname_np(accepting_.native_handle(), "rumbo-accept");
    return absl::OkStatus();
  }

  std::shared_ptr<grpc::Channel> InProcessChannel() override {
    return server_->InProcessChannel(grpc::ChannelArguments());
  }

  void Stop(std::chrono::milliseconds grace) override {
    if (!server_ || stopped_) return;
    stopped_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
    accepting_.join();
    if (options_.listener < 0) ::unlink(options_.socket.c_str());
    listener_.reset();
    server_->GetHealthCheckService()->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_->Wait();
  }

 private:
  void Accept() {
    for (;;) {
      pollfd fds[2] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      if (::poll(fds, 2, -1) < 0 && errno != EINTR) return;
      if (fds[1].revents != 0) return;
      UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!connection.valid()) {
        // Out of descriptors: the client waits in the backlog; do not spin meanwhile.
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
          spdlog::warn("cannot accept a connection: {}", std::strerror(errno));
          ::poll(&fds[1], 1, 100);
        }
        continue;
      }
      ucred peer = {};
      socklen_t size = sizeof peer;
      if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) continue;
      if (!options_.any_user && peer.uid != ::geteuid() && peer.uid != 0) {
        spdlog::warn("refused a connection of uid {} (pid {})", peer.uid, peer.pid);
        continue;
      }
      peers_.Add(connection.get(), peer.uid, peer.pid);
      grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
    }
  }

  const RpcOptions options_;
  PeerTable peers_;
  const ServiceContext context_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  UniqueFd listener_;
  UniqueFd wake_;
  std::unique_ptr<grpc::Server> server_;
  std::thread accepting_;
  bool stopped_ = false;
};

}  // namespace

ClientIdentity PeerTable::Find(const std::string& peer, const std::string& app) const {
  ClientIdentity identity;
  identity.uid = ::geteuid();
  identity.app = app.substr(0, 100);
  if (peer.rfind("fd:", 0) != 0) return identity;
  std::lock_guard lock(mutex_);
  const auto it = peers_.find(std::atoi(peer.c_str() + 3));
  if (it == peers_.end()) return identity;
  identity.uid = it->second.uid;
  identity.pid = it->second.pid;
  return identity;
}

std::string OwnerOf(const grpc::CallbackServerContext& call, const ClientIdentity& identity) {
  const auto it = call.client_metadata().find("rumbo-owner");
  if (call.peer() != "inproc" || it == call.client_metadata().end()) return std::to_string(identity.uid);
  return std::string(it->second.data(), it->second.size());
}

ClientIdentity IdentityOf(const grpc::CallbackServerContext& call, const PeerTable& peers,
                          const std::string& app) {
  ClientIdentity identity = peers.Find(call.peer(), app);
  const auto it = call.client_metadata().find("rumbo-uid");
  if (call.peer() != "inproc" || it == call.client_metadata().end()) return identity;
  identity.uid = UINT32_MAX;
  std::from_chars(it->second.data(), it->second.data() + it->second.size(), identity.uid);
  identity.pid = 0;
  if (identity.uid == UINT32_MAX) identity.app = OwnerOf(call, identity) + "/" + identity.app;
  return identity;
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(RpcOptions options, Core* core, RpcHooks hooks) {
  auto server = std::make_unique<RpcServerOverGrpc>(std::move(options), core, std::move(hooks));
  RUMBO_RETURN_IF_ERROR(server->Begin());
  return std::unique_ptr<RpcServer>(std::move(server));
}

}  // namespace rumbo
