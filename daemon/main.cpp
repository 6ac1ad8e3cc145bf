// rumbod: the one place that names concrete parts and puts them together.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <spdlog/fmt/ranges.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <functional>
#include <mutex>
#include <optional>

#include "base/os/files.h"
#include "base/os/local_socket.h"
#include "base/os/paths.h"
#include "base/os/service_manager.h"
#include "base/os/subprocess.h"
#include "base/status.h"
#include "daemon/core/calibration.h"
#include "daemon/core/core.h"
#include "daemon/http/api/json_over_grpc.h"
#include "daemon/http/json_out.h"
#include "daemon/http/server.h"
#include "daemon/options.h"
#include "daemon/rpc/log_ring.h"
#include "daemon/rpc/server.h"
#include "daemon/store/calibration_store.h"
#include "daemon/store/checked_launcher.h"
#include "daemon/store/library.h"
#include "daemon/store/measurement_log.h"
#include "daemon/store/store.h"
#include "daemon/supervisor/cgroup.h"
#include "daemon/supervisor/helpers.h"
#include "daemon/supervisor/journal.h"
#include "daemon/supervisor/power.h"
#include "daemon/supervisor/promises.h"
#include "daemon/supervisor/supervisor.h"
#include "engines/api/catalog.h"
#include "engines/api/catalog_page.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SystemWallClock final : public WallClock {
 public:
  int64_t UnixSeconds() const override { return std::time(nullptr); }
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "rumbod: %s\n", MessageOf(status).c_str());
  if (const std::string next = NextStepOf(status); !next.empty()) std::fprintf(stderr, "%s\n", next.c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

// {"time":"...","level":"info","message":"..."}
class JsonLines final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto ms = std::chrono::duration_cast<milliseconds>(message.time.time_since_epoch()).count();
    const std::time_t second = ms / 1000;
    tm parts;
    char time[32];
    std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", ::gmtime_r(&second, &parts));
    const auto level = spdlog::level::to_string_view(message.level);
    std::string line = fmt::format("{{\"time\":\"{}.{:03}Z\",\"level\":\"{}\",\"message\":", time, ms % 1000,
                                   std::string_view(level.data(), level.size()));
    json_out::AppendString(line, {message.payload.data(), message.payload.size()});
    line += "}\n";
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonLines>(); }
};

// The log's last lines stay in memory, for `rumbo logs`.
std::shared_ptr<LogRing> StartLog(const std::string& level, const std::string& format) {
  // One thread writes at a time; a pipe that nobody reads must not stop the daemon.
  auto ring = std::make_shared<LogRing>();
  const spdlog::sinks_init_list sinks = {std::make_shared<spdlog::sinks::stderr_sink_mt>(), ring};
  auto logger = std::make_shared<spdlog::logger>("rumbod", sinks);
  spdlog::set_default_logger(logger);
  format == "json" ? spdlog::set_formatter(std::make_unique<JsonLines>())
                   : spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
  return ring;
}

// A folder in which others can put or swap files is no place for a socket, tokens or models. One with the
// sticky bit, as /tmp, keeps each user's files from the others.
absl::Status CheckFolder(const std::string& dir) {
  struct stat info;
  if (::stat(dir.c_str(), &info) != 0) return ErrnoStatus(errno, "look at " + dir);
  const bool ours = info.st_uid == ::geteuid() || info.st_uid == 0;
  if (ours && ((info.st_mode & 022) == 0 || (info.st_mode & S_ISVTX) != 0)) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kPermissionDenied,
               "the folder " + dir + (ours ? " can be written by others" : " belongs to somebody else"),
               ours ? "Give it mode 0700." : "Remove it, or choose another folder.");
}

// Only one daemon may use a state folder; the lock goes with the process.
absl::StatusOr<UniqueFd> LockStateDir(const std::string& dir) {
  RUMBO_RETURN_IF_ERROR(MakeDirectories(dir, 0700));
  RUMBO_RETURN_IF_ERROR(CheckFolder(dir));
  const std::string path = dir + "/lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kAddressInUse,
                 "another daemon uses the state folder " + dir,
                 "Use that one, stop it, or choose another --state-dir.");
  }
  return fd;
}

std::string ParentOf(const std::string& path) { return path.substr(0, std::max<size_t>(path.rfind('/'), 1)); }

// As many descriptors as we may have: each stream of HTTP is one.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 65536);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct AddressAndPort {
  std::string address;
  uint16_t port = 0;
};

absl::StatusOr<AddressAndPort> ParseAddress(const std::string& option, const std::string& text) {
  AddressAndPort out;
  const size_t colon = text.rfind(':');
  const int port = colon == std::string::npos ? -1 : std::atoi(text.c_str() + colon + 1);
  if (port < 0 || port > 65535 || text.find_first_not_of("0123456789", colon + 1) != std::string::npos ||
      colon + 1 == text.size()) {
    return InvalidArgument("--" + option + " is \"" + text + "\"",
                           "It is ADDR:PORT, as 127.0.0.1:11711, or off.");
  }
  out.address = text.substr(0, colon);
  out.port = static_cast<uint16_t>(port);
  return out;
}

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) out.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

absl::StatusOr<HttpOptions> HttpOptionsOf(const DaemonOptions& options) {
  HttpOptions http;
  RUMBO_ASSIGN_OR_RETURN(const AddressAndPort local, ParseAddress("http", options.http));
  http.address = local.address;
  http.port = local.port;
  if (options.http_remote != "off") {
    RUMBO_ASSIGN_OR_RETURN(const AddressAndPort remote, ParseAddress("http-remote", options.http_remote));
    http.remote_address = remote.address;
    http.remote_port = remote.port;
  }
  http.tls_certificate = options.http_tls_certificate;
  http.tls_key = options.http_tls_key;
  if (options.traces != "off") http.trace_collector = options.traces;
  http.version = RUMBO_VERSION;
  if (options.http_second != "off")
    http.second_port = static_cast<uint16_t>(std::atoi(options.http_second.c_str()));
  http.allowed_hosts = SplitList(options.http_hosts);
  http.allowed_origins = SplitList(options.http_origins);
  http.max_requests_at_once = static_cast<uint32_t>(options.http_at_once);
  http.max_requests_per_second = static_cast<double>(options.http_rate);
  http.token_file = options.state_dir + "/tokens";
  http.audit_file = options.state_dir + "/audit.log";
  return http;
}

FetchSettings FetchSettingsOf(const DaemonOptions& options) {
  FetchSettings fetch;
  std::vector<std::string> hubs = SplitList(options.hub);
  if (!hubs.empty()) {
    fetch.hub = hubs.front();
    fetch.hub_mirrors.assign(hubs.begin() + 1, hubs.end());
  }
  fetch.registry = options.registry;
  fetch.named_hosts = SplitList(options.fetch_hosts);
  fetch.token_file = options.hub_token_file;
  fetch.proxy = options.fetch_proxy;
  fetch.rate = static_cast<uint64_t>(options.fetch_rate_kib) * kKiB;
  fetch.connections = static_cast<int>(options.fetch_connections);
  fetch.offline = options.offline;
  return fetch;
}

// Which doors the service manager opened for us: of each kind one at most; where they stand wins over the
// options.
absl::Status Adopt(std::vector<InheritedListener>& inherited, DaemonOptions& options, int* local, int* tcp) {
  for (InheritedListener& listener : inherited) {
    int* const slot = listener.local ? local : tcp;
    if (*slot >= 0) {
      return InvalidArgument(
          "the service manager handed over two sockets of one kind: " + listener.name,
          "The socket unit needs one for gRPC (a Unix path) and one for HTTP (ADDR:PORT).");
    }
    *slot = listener.fd.release();
    (listener.local ? options.socket : options.http) = listener.name;
  }
  return absl::OkStatus();
}

// Somebody listens on that loopback port already.
bool PortTaken(const AddressAndPort& http) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(http.port);
  if (http.port == 0 || ::inet_pton(AF_INET, http.address.c_str(), &address.sin_addr) != 1) return false;
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == EADDRINUSE;
}

// What can be refused before anything is made on disk.
absl::Status RefusedAtOnce(const DaemonOptions& options, bool socket_given, bool port_given) {
  if (!socket_given && ProbeLocalSocket(options.socket, false).ok()) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kAddressInUse,
                 "another daemon answers on " + options.socket,
                 "Use that one, stop it, or choose another --socket.");
  }
  if (options.http == "off") return absl::OkStatus();
  RUMBO_ASSIGN_OR_RETURN(const AddressAndPort http, ParseAddress("http", options.http));
  if (!port_given && PortTaken(http)) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kAddressInUse,
                 "another program listens on " + options.http + " (address in use)",
                 "Stop it, or choose another --http.");
  }
  return absl::OkStatus();
}

CoreOptions CoreOptionsOf(const DaemonOptions& options) {
  CoreOptions out;
  out.queue_limit = static_cast<uint32_t>(options.queue_limit);
  out.keep_alive = seconds(options.keep_alive_s);
  out.drain = seconds(options.drain_s);
  out.cache_dir = options.cache_dir;
  out.disk_cache_bytes = static_cast<uint64_t>(options.prompt_cache_mib) << 20;
  out.memory_limit = static_cast<Bytes>(options.memory_limit_mib) * kMiB;
  out.battery_floor = static_cast<double>(options.battery_floor);
  out.heat_ceiling = static_cast<double>(options.heat_ceiling) / 100;
  return out;
}

// Reads the configuration again, as it was read at the start. What cannot be read changes nothing.
// Thread-safe.
class Reloader {
 public:
  Reloader(std::vector<std::string> args, DaemonOptions started, Core* core)
      : args_(std::move(args)), started_(std::move(started)), core_(core) {}

  absl::StatusOr<RpcHooks::Reloaded> Reload() {
    const absl::StatusOr<DaemonOptions> options = ReadOptions(args_);
    if (!options.ok()) {
      spdlog::warn("the configuration stays as it was: {}", MessageOf(options.status()));
      return options.status();
    }
    static const std::vector<std::string> kLive = {"keep-alive",    "queue-limit",  "drain",
                                                   "battery-floor", "heat-ceiling", "log-level"};
    RpcHooks::Reloaded out;
    std::lock_guard lock(mutex_);
    for (const std::string& name : ChangedOptions(started_, *options)) {
      if (std::find(kLive.begin(), kLive.end(), name) == kLive.end()) out.needs_restart.push_back(name);
    }
    for (const std::string& name : ChangedOptions(live_.value_or(started_), *options)) {
      if (std::find(kLive.begin(), kLive.end(), name) != kLive.end()) out.changed.push_back(name);
    }
    live_ = *options;
    if (out.changed.empty()) return out;
    spdlog::set_level(spdlog::level::from_str(options->log_level));
    core_->SetOptions(CoreOptionsOf(*options));
    drain_s_ = options->drain_s;
    spdlog::info("configuration read again; changed: {}", fmt::join(out.changed, ", "));
    return out;
  }
  int64_t drain_s() const { return drain_s_.load() < 0 ? started_.drain_s : drain_s_.load(); }

 private:
  const std::vector<std::string> args_;
  const DaemonOptions started_;
  Core* const core_;
  std::mutex mutex_;
  std::optional<DaemonOptions> live_;  // guarded by mutex_: since the last reload
  std::atomic<int64_t> drain_s_{-1};
};

// Waits for a signal that ends the daemon. Meanwhile the service manager hears that we live, as long as the
// core answers: it gets a task each time, and the next sign is sent only once that has run.
int WaitForTheEnd(const sigset_t& signals, const ServiceManager& manager, Executor* core,
                  const std::function<void()>& on_hangup) {
  auto answered = std::make_shared<std::atomic<bool>>(true);
  const auto period = manager.watchdog().value_or(std::chrono::microseconds(0)) / 3;
  const timespec wait = {static_cast<time_t>(period.count() / 1'000'000),
                         static_cast<long>(period.count() % 1'000'000 * 1000)};
  for (;;) {
    const int signal =
        period.count() > 0 ? ::sigtimedwait(&signals, nullptr, &wait) : ::sigwaitinfo(&signals, nullptr);
    if (signal == SIGHUP) on_hangup();
    if (signal > 0 && signal != SIGHUP && signal != SIGUSR1) return signal;
    if (signal > 0 || period.count() == 0 || !answered->exchange(false)) continue;
    manager.Alive();
    core->Post([answered] { *answered = true; });
  }
}

int Run(DaemonOptions options, const std::vector<std::string>& args) {
  const DaemonOptions parsed = options;
  // Both take variables out of the environment, so they come before the first thread and the first child.
  const ServiceManager manager;
  auto inherited = TakeInheritedListeners();
  if (!inherited.ok()) return Fail(inherited.status());
  int local_listener = -1, tcp_listener = -1;
  if (const auto adopted = Adopt(*inherited, options, &local_listener, &tcp_listener); !adopted.ok())
    return Fail(adopted);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals, s);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before the first thread: main alone takes them
  ::signal(SIGPIPE, SIG_IGN);
  ::umask(0077);
  RaiseDescriptorLimit();
  const std::shared_ptr<LogRing> ring = StartLog(options.log_level, options.log_format);

  if (const absl::Status refused = RefusedAtOnce(options, local_listener >= 0, tcp_listener >= 0);
      !refused.ok())
    return Fail(refused);
  absl::StatusOr<UniqueFd> lock = LockStateDir(options.state_dir);
  if (!lock.ok()) return Fail(lock.status());
  for (const std::string& dir : {options.cache_dir, ParentOf(options.socket)}) {
    if (const absl::Status made = MakeDirectories(dir, 0700); !made.ok()) return Fail(made);
    if (const absl::Status safe = CheckFolder(dir); !safe.ok()) return Fail(safe);
  }

  const std::string bin = ExecutableDir();
  SystemWallClock wall;
  std::mutex sandbox_mutex;
  std::optional<Finding> sandbox_here;  // guarded by sandbox_mutex
  // The core's executor outlives all that posts to it: the other threads, the launcher, the doors.
  auto executor = NewThreadExecutor("rumbo-core");
  auto disk = NewThreadExecutor("rumbo-store");
  auto aux = NewThreadExecutor("rumbo-aux");
  auto topology = NewTopologySource(bin, options.cache_dir, aux.get(), options.hardware_root);
  auto inspector = NewModelInspector(bin, aux.get());
  auto store = NewModelStore(
      {.dir = options.state_dir, .quota = static_cast<Bytes>(options.store_quota_gib) * kGiB},
      [bin](const std::string& path) { return InspectFile(bin, path); }, disk.get(), &wall);
  auto learn = NewThreadExecutor("rumbo-learn");
  Calibration calibration;
  std::unique_ptr<MeasurementLog> measurements;
  if (auto kept = OpenCalibrationStore(options.state_dir + "/measurements.sqlite"); kept.ok()) {
    if (auto loaded = (*kept)->Load(); loaded.ok()) calibration = *std::move(loaded);
    measurements = NewMeasurementLog(*std::move(kept), learn.get());
  } else {
    spdlog::warn("what is measured will be forgotten at the end: {}", MessageOf(kept.status()));
  }
  std::vector<EngineProgram> programs = FindWorkers(bin);
  for (EngineProgram& program : programs) {
    const CatalogEngine* known = BuiltInCatalog().Find(program.engine.name);
    if (known != nullptr) program.failure_texts = known->failure_texts;
  }
  // Before anything looks at free memory.
  WorkerRecord record(options.state_dir);
  if (const int ended = record.Reap() + ReapWorkerGroups(); ended > 0) {
    spdlog::warn("ended {} workers that outlived the last daemon", ended);
  }
  SandboxJournal journal;
  auto launcher = NewSupervisor({.load_silence = seconds(options.load_silence_s),
                                 .isolate = options.isolate,
                                 .catalog = options.sandbox ? &BuiltInCatalog() : nullptr,
                                 .journal = &journal,
                                 .cache_dir = options.cache_dir,
                                 .record = &record},
                                programs);
  auto look = NewThreadExecutor("rumbo-look");
  auto shelf = NewThreadExecutor("rumbo-library");
  CheckedLauncher checked(launcher.get(), store.get(), look.get());

  Core::Parts parts;
  parts.executor = executor.get();
  parts.launcher = &checked;
  parts.store = store.get();
  parts.inspector = inspector.get();
  parts.topology = topology.get();
  parts.wall = &wall;
  parts.catalog = &BuiltInCatalog();
  parts.calibration = &calibration;
  parts.measurements = measurements.get();
  for (const EngineProgram& program : programs) parts.engines.push_back(program.engine);
  std::unique_ptr<PromiseBoard> promises;
  if (options.promise_dir != "off") {
    auto board = NewPromiseBoard(options.promise_dir);
    if (board.ok()) {
      promises = std::move(*board);
    } else {
      spdlog::warn("other daemons' promises are not known: {}", MessageOf(board.status()));
    }
  }
  const auto power = NewPowerSource();
  const auto lease_journal = NewLeaseJournal(options.state_dir, disk.get());
  parts.promises = promises.get();
  parts.power = power.get();
  parts.leases = lease_journal.get();
  auto core = Core::Create(CoreOptionsOf(options), parts);
  Reloader reloader(args, parsed, core.get());

  auto library = ModelLibrary::Create({.core = core.get(),
                                       .store = store.get(),
                                       .aux = shelf.get(),
                                       .bin_dir = bin,
                                       .fetch = FetchSettingsOf(options),
                                       .cache_roots = SplitList(options.model_caches)});

  std::string http_address;
  RpcHooks hooks;
  hooks.library = library.get();
  hooks.http_address = [&http_address] { return http_address; };
  std::atomic<int64_t> drain_ms{0};  // as a client asked; 0: the default
  hooks.drain = [&drain_ms](milliseconds limit) {
    drain_ms = limit.count();
    ::kill(::getpid(), SIGTERM);
  };
  hooks.reload = [&reloader] { return reloader.Reload(); };
  hooks.logs = ring.get();
  hooks.catalog = &BuiltInCatalog();
  hooks.engines = parts.engines;
  // Known before the first probe has ended, which runs behind it.
  aux->Post([&sandbox_mutex, &sandbox_here, bin] {
    Finding here = SandboxHere(bin);
    const std::lock_guard lock(sandbox_mutex);
    sandbox_here = std::move(here);
  });
  hooks.own_findings = [&] {
    std::vector<Finding> findings;
    bool real_engine = false;
    for (const EngineProgram& program : programs) real_engine = real_engine || program.engine.name != "fake";
    if (!real_engine) {
      findings.push_back({Severity::kBroken, "engine.none", "", "no engine is installed beside rumbod",
                          "Build or install one: `./dev setup && ./dev build`."});
    }
    const std::vector<Finding> sandboxes = journal.Findings();
    findings.insert(findings.end(), sandboxes.begin(), sandboxes.end());
    if (!options.sandbox) {
      findings.push_back({Severity::kWarning, "sandbox.off", "",
                          "engines run without a sandbox: the option is off",
                          "Leave the option sandbox on."});
    } else if (sandboxes.empty()) {
      const std::lock_guard lock(sandbox_mutex);
      if (sandbox_here) findings.push_back(*sandbox_here);
    }
    return findings;
  };

  JsonOverGrpc json;
  std::unique_ptr<HttpServer> http;
  if (options.http != "off") {
    absl::StatusOr<HttpOptions> http_options = HttpOptionsOf(options);
    if (!http_options.ok()) return Fail(http_options.status());
    http_options->listener = tcp_listener;
    auto started = HttpServer::Start(*http_options, core.get(), &json);
    if (!started.ok()) return Fail(started.status());
    http = std::move(*started);
    http_address = http->address();
  }
  RpcOptions rpc_options;
  rpc_options.socket = options.socket;
  rpc_options.listener = local_listener;
  rpc_options.any_user = options.socket_users == "all";
  rpc_options.version = RUMBO_VERSION;
  rpc_options.started_unix_s = wall.UnixSeconds();
  auto rpc = RpcServer::Start(rpc_options, core.get(), hooks);
  if (!rpc.ok()) return Fail(rpc.status());
  json.Connect((*rpc)->InProcessChannel());
  // Only once both doors stand: a daemon that cannot open them touches nothing.
  core->Start();
  spdlog::info("rumbod {} answers on {}{}", RUMBO_VERSION, options.socket,
               http ? " and http://" + http_address : "");

  manager.Ready("answers on " + options.socket);
  const int signal =
      WaitForTheEnd(signals, manager, executor.get(), [&reloader] { (void)reloader.Reload(); });
  manager.Stopping("draining");
  const milliseconds limit = drain_ms > 0 ? milliseconds(drain_ms) : seconds(reloader.drain_s());
  spdlog::info("signal {}: draining for up to {:.1f} s", signal, static_cast<double>(limit.count()) / 1000);
  std::atomic<bool> drained{false};
  core->Drain(limit, [&drained] {
    drained = true;
    drained.notify_one();
  });
  drained.wait(false);
  if (http) http->Stop(milliseconds(100));
  json.Connect(nullptr);
  (*rpc)->Stop(milliseconds(100));
  library.reset();
  core.reset();
  look.reset();
  launcher.reset();
  spdlog::info("bye");
  return 0;
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) {
  const auto options = rumbo::ReadOptions({argv + 1, argv + argc});
  if (!options.ok()) return rumbo::Fail(options.status());
  if (options->help) return std::fputs(rumbo::HelpText().c_str(), stdout), 0;
  if (options->version) return std::puts("rumbod " RUMBO_VERSION), 0;
  if (options->print_docs) return std::fputs(rumbo::OptionsMarkdown().c_str(), stdout), 0;
  if (options->print_manual) return std::fputs(rumbo::OptionsManual(RUMBO_VERSION).c_str(), stdout), 0;
  if (options->print_engines)
    return std::fputs(rumbo::EnginesMarkdown(rumbo::BuiltInCatalog()).c_str(), stdout), 0;
  return rumbo::Run(*options, {argv + 1, argv + argc});
}
