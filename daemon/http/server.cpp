#include "daemon/http/server.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <thread>

#include "base/os/files.h"
#include "base/status.h"
#include "daemon/http/connection.h"

namespace rumbo {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kTick{500};
constexpr std::chrono::milliseconds kHalfClosedTick{100};

class Server final : public HttpServer {
 public:
  Server(HttpOptions options, Core* core, JsonApi* json)
      : loop_(std::make_shared<IoLoop>()),
        acceptor_(loop_->io),
        second_acceptor_(loop_->io),
        remote_acceptor_(loop_->io),
        tick_(loop_->io) {
    loop_->api.core = core;
    loop_->api.json = json;
    loop_->api.options = options;
    context_.loop = loop_;
    loop_->api.metrics = &loop_->metrics;
    limiter_.emplace(options.max_requests_at_once, options.max_requests_per_second);
    access_.emplace(options.token_file, ::geteuid());
    audit_.emplace(options.audit_file);
    context_.access = &*access_;
    context_.limiter = &*limiter_;
    context_.audit = &*audit_;
    context_.options = std::move(options);
  }

  ~Server() override { Stop(std::chrono::milliseconds(0)); }

  absl::Status Listen() {
    RUMBO_RETURN_IF_ERROR(access_->Load());
    RUMBO_RETURN_IF_ERROR(audit_->Open());
    if (!context_.options.trace_collector.empty()) {
      RUMBO_ASSIGN_OR_RETURN(const CollectorAddress collector,
                             ParseCollector(context_.options.trace_collector));
      traces_.emplace(collector, context_.options.version);
      context_.traces = &*traces_;
      loop_->api.traces = &*traces_;
    }
    error_code error;
    const auto address = asio::ip::make_address(context_.options.address, error);
    if (error) {
      return InvalidArgument("http.address: '" + context_.options.address + "' is not an IP address",
                             "Use 127.0.0.1.");
    }
    if (!address.is_loopback() || !address.is_v4()) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotAllowedByPolicy,
                   "plain HTTP is served on IPv4 loopback addresses only",
                   "Use 127.0.0.1; for other machines there is --http-remote, with TLS and tokens.");
    }
    if (context_.options.listener >= 0) {
      acceptor_.assign(tcp::v4(), context_.options.listener, error);
      if (!error) acceptor_.non_blocking(true, error);  // the descriptor is; Asio must know it too
      if (error) return ErrnoStatus(error.value(), "the inherited HTTP socket");
      port_ = context_.options.port;
    } else {
      RUMBO_ASSIGN_OR_RETURN(port_, Bind(acceptor_, tcp::endpoint(address, context_.options.port)));
    }
    std::vector<uint16_t> ports = {port_};
    if (context_.options.second_port) {
      RUMBO_ASSIGN_OR_RETURN(second_port_,
                             Bind(second_acceptor_, tcp::endpoint(address, *context_.options.second_port)));
      ports.push_back(second_port_);
    }
    local_.guard.emplace(context_.options, ports);
    if (!context_.options.remote_address.empty()) RUMBO_RETURN_IF_ERROR(ListenRemote());
    spare_fd_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return absl::OkStatus();
  }

  absl::Status ListenRemote() {
    const HttpOptions& options = context_.options;
    error_code error;
    const auto address = asio::ip::make_address_v4(options.remote_address, error);
    if (error) {
      return InvalidArgument("http-remote: '" + options.remote_address + "' is not an IPv4 address",
                             "Use the machine's own address, or 0.0.0.0 for all of them.");
    }
    if (options.tls_certificate.empty() || options.tls_key.empty()) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotAllowedByPolicy,
                   "a door for other machines needs TLS",
                   "Give --http-tls-certificate and --http-tls-key; docs/http.md says how to make them.");
    }
    if (!access_->any_token()) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotAllowedByPolicy,
                   "a door for other machines needs at least one API token",
                   "Put one into the file `tokens` in the state folder; docs/http.md says how.");
    }
    RUMBO_ASSIGN_OR_RETURN(remote_.tls, TlsContext::Load(options.tls_certificate, options.tls_key));
    RUMBO_ASSIGN_OR_RETURN(remote_port_, Bind(remote_acceptor_, tcp::endpoint(address, options.remote_port)));
    remote_.guard.emplace(Guard::ForRemote(options, address.to_string(), remote_port_));
    return absl::OkStatus();
  }

  void Run() {
    Accept(acceptor_, local_);
    if (second_acceptor_.is_open()) Accept(second_acceptor_, local_);
    if (remote_acceptor_.is_open()) Accept(remote_acceptor_, remote_);
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "rumbo-http");
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      loop_->io.run();
    });
  }

  void Stop(std::chrono::milliseconds grace) override {
    if (!thread_.joinable()) return;
    asio::post(loop_->io, [this, grace] { BeginStop(grace); });
    thread_.join();
    context_.big_bodies.reset();
    loop_->mailbox.Shut();
    loop_->api.traces = nullptr;
    context_.traces = nullptr;
    traces_.reset();  // sends what waits
  }

  std::string address() const override { return context_.options.address + ":" + std::to_string(port_); }
  uint16_t port() const override { return port_; }
  uint16_t second_port() const override { return second_port_; }
  uint16_t remote_port() const override { return remote_port_; }

 private:
  static absl::StatusOr<uint16_t> Bind(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(4096, error);
    if (!error) acceptor.non_blocking(true, error);
    if (!error) return acceptor.local_endpoint(error).port();
    const std::string where = endpoint.address().to_string() + ":" + std::to_string(endpoint.port());
    if (error == asio::error::address_in_use) {
      return Error(absl::StatusCode::kAlreadyExists, Reason::kAddressInUse,
                   "another program listens on " + where,
                   "Choose another port with --http ADDR:PORT, or --http off.");
    }
    return ErrnoStatus(error.value(), "listening on " + where);
  }

  void Accept(tcp::acceptor& acceptor, const Doorway& door) {
    acceptor.async_wait(tcp::acceptor::wait_read, [this, &acceptor, &door](error_code error) {
      if (error || context_.draining) return;
      TakeConnections(acceptor, door);
      Accept(acceptor, door);
    });
  }

  void TakeConnections(tcp::acceptor& acceptor, const Doorway& door) {
    for (int i = 0; i < 64; ++i) {
      HttpSocket socket(loop_->io);
      error_code error;
      acceptor.accept(socket, error);
      if (error == asio::error::no_descriptors || error.value() == ENFILE) {
        ShedOne(acceptor);
        return;
      }
      if (error) return;
      ++loop_->metrics.accepted;
      if (context_.open.size() >= context_.options.max_connections) {
        ++loop_->metrics.shed;
        continue;  // closed at once
      }
      std::make_shared<Connection>(context_, std::move(socket), door)->Start();
      if (!ticking_) Tick();
    }
  }

  // Out of descriptors: the spare one lets us accept and close, so that the caller is told and the queue
  // moves.
  void ShedOne(tcp::acceptor& acceptor) {
    spare_fd_.reset();
    {
      HttpSocket socket(loop_->io);
      error_code error;
      acceptor.accept(socket, error);
    }
    ++loop_->metrics.shed;
    spare_fd_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  void Tick() {
    ticking_ = false;
    const auto now = std::chrono::steady_clock::now();
    bool any_half_closed = false;
    for (const auto& [connection, owned] : context_.open) {
      connection->OnTick(now);
      any_half_closed |= connection->half_closed();
    }
    if (context_.open.empty()) return;
    ticking_ = true;
    tick_.expires_after(any_half_closed ? kHalfClosedTick : kTick);
    tick_.async_wait([this](error_code error) {
      if (!error) Tick();
    });
  }

  void BeginStop(std::chrono::milliseconds grace) {
    context_.draining = true;
    error_code error;
    acceptor_.close(error);
    second_acceptor_.close(error);
    remote_acceptor_.close(error);
    for (const auto& [connection, owned] : context_.open) connection->CloseWhenIdle();
    stop_at_ = std::chrono::steady_clock::now() + grace;
    tick_.cancel();
    AwaitIdle();
  }

  // Ends the loop by leaving it without work: closed connections have none.
  void AwaitIdle() {
    if (context_.open.empty()) return;
    if (std::chrono::steady_clock::now() >= stop_at_) {
      for (const auto& [connection, owned] : context_.open) connection->Close();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    for (const auto& [connection, owned] : context_.open) connection->OnTick(now);
    tick_.expires_after(std::chrono::milliseconds(10));
    tick_.async_wait([this](error_code) { AwaitIdle(); });
  }

  ConnectionContext context_;
  std::shared_ptr<IoLoop> loop_;
  tcp::acceptor acceptor_;
  tcp::acceptor second_acceptor_;
  tcp::acceptor remote_acceptor_;
  asio::steady_timer tick_;
  Doorway local_;
  Doorway remote_;
  std::optional<Access> access_;
  std::optional<RequestLimiter> limiter_;
  std::optional<AuditLog> audit_;
  std::optional<TraceExporter> traces_;
  UniqueFd spare_fd_;
  std::thread thread_;
  std::chrono::steady_clock::time_point stop_at_;
  uint16_t port_ = 0;
  uint16_t second_port_ = 0;
  uint16_t remote_port_ = 0;
  bool ticking_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options, Core* core,
                                                              JsonApi* json) {
  auto server = std::make_unique<Server>(std::move(options), core, json);
  RUMBO_RETURN_IF_ERROR(server->Listen());
  server->Run();
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace rumbo
