#include "daemon/supervisor/helpers.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <mutex>

#include "base/os/files.h"
#include "base/os/subprocess.h"
#include "base/status.h"
#include "base/utf8.h"
#include "devices/api/steering.h"
#include "devices/api/topology_json.h"
#include "devices/live.h"
#include "devices/profiles/profile.h"

namespace rumbo {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr milliseconds kInspectDeadline{5000};
// rumbo-probe gives up on what is late after ten; this is for a machine that is too busy to run it at all.
constexpr milliseconds kProbeDeadline{40000};
constexpr size_t kMaxDescriptor = 16 << 20;
constexpr size_t kMaxTopology = 8 << 20;

absl::StatusCode CodeFor(Reason reason) {
  switch (reason) {
    case Reason::kFileNotFound:
      return absl::StatusCode::kNotFound;
    case Reason::kFileNotReadable:
      return absl::StatusCode::kPermissionDenied;
    case Reason::kUnsupportedArchitecture:
      return absl::StatusCode::kFailedPrecondition;
    case Reason::kInternal:
      return absl::StatusCode::kInternal;
    default:
      return absl::StatusCode::kInvalidArgument;
  }
}

// {"error":{"reason","message","next_step"}} as a status; nullopt for other text.
std::optional<absl::Status> ErrorFromJson(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (error || !value.is_object()) return std::nullopt;
  const json::value* object = value.as_object().if_contains("error");
  if (object == nullptr || !object->is_object()) return std::nullopt;
  const auto field = [&](const char* key) {
    const json::value* v = object->as_object().if_contains(key);
    return v != nullptr && v->is_string() ? SanitizeUtf8(v->as_string().c_str()) : std::string();
  };
  const Reason reason = ReasonFromCode(field("reason")).value_or(Reason::kModelInvalid);
  return Error(CodeFor(reason), reason, field("message"), field("next_step"));
}

class Inspector final : public ModelInspector {
 public:
  Inspector(std::string bin_dir, Executor* executor) : bin_dir_(std::move(bin_dir)), executor_(executor) {}
  void Inspect(std::string path, Callback<ModelDescriptor> done) override {
    executor_->Post([bin_dir = bin_dir_, path = std::move(path), done = std::move(done)] {
      done(InspectFile(bin_dir, path));
    });
  }

 private:
  const std::string bin_dir_;
  Executor* const executor_;
};

// "RssAnon:   1234 kB" of /proc/PID/status: what a process holds besides files.
std::optional<Bytes> AnonymousBytes(int64_t pid) {
  const auto status = ReadFile("/proc/" + std::to_string(pid) + "/status", 64 << 10);
  if (!status.ok()) return std::nullopt;
  const size_t at = status->find("RssAnon:");
  if (at == std::string::npos) return std::nullopt;
  return SaturatingMul(std::strtoull(status->c_str() + at + 8, nullptr, 10), kKiB);
}

class ProbedTopology final : public TopologySource {
 public:
  ProbedTopology(std::string bin_dir, std::string cache_dir, Executor* executor, std::string root)
      : bin_dir_(std::move(bin_dir)),
        cache_dir_(std::move(cache_dir)),
        executor_(executor),
        root_(std::move(root)) {}

  void Probe(Callback<Topology> done) override {
    executor_->Post([this, done = std::move(done)] { done(RunProbe()); });
  }

  bool RefreshMemory(Topology& topology) override {
    if (topology.source != "probe") return false;
    {
      std::lock_guard lock(mutex_);
      std::string made_for = std::to_string(probes_);  // a topology may come to us later than its probe
      for (const Device& d : topology.devices) made_for += " " + d.id + "=" + d.driver;
      if (!live_ || made_for_ != made_for) {
        live_ = std::make_unique<LiveReader>(topology, root_);
        made_for_ = std::move(made_for);
        signature_ = probed_signature_;  // a change while the probe ran is one, too
      }
    }
    const LiveReading reading = live_->Read();
    ApplyLive(reading, topology);
    loads_.clear();
    for (const DeviceReading& d : reading.devices) {
      if (!d.lost) loads_.push_back({d.id, d.busy, d.power_watts, d.temperature_c, d.suspended});
    }
    const bool changed = signature_ != reading.signature;
    signature_ = reading.signature;
    return changed;
  }

  std::vector<DeviceLoad> Loads() override { return loads_; }

  std::optional<Bytes> ProcessBytes(int64_t pid, const MemoryPool& pool) override {
    if (pool.kind != PoolKind::kSystem) return std::nullopt;
    return AnonymousBytes(pid);
  }

  absl::StatusOr<Topology> Profile(const std::string& name) override { return LoadProfile(name); }
  std::vector<std::string> ProfileNames() override { return ListProfiles(); }

 private:
  absl::StatusOr<Topology> RunProbe() {
    SpawnSpec spec;
    spec.argv = {bin_dir_ + "/rumbo-probe", "--json"};
    if (!root_.live()) spec.argv.insert(spec.argv.end(), {"--root", root_.prefix()});
    if (!cache_dir_.empty()) spec.argv.insert(spec.argv.end(), {"--cache-dir", cache_dir_, "--measure-cpu"});
    spec.env = CleanEnvironment();
    // Not to steer a driver (the probe's children are without them) but to be reported and honoured.
    for (const char* name : kSteeringVariables) {
      if (const char* value = std::getenv(name)) spec.env.push_back(std::string(name) + "=" + value);
    }
    // Drivers see device nodes and groups of the real user only outside a user namespace.
    spec.isolate = false;
    std::string signature = MachineSignature(root_);
    const auto result = RunHelper(spec, kProbeDeadline, kMaxTopology);
    const auto failed = [](const std::string& what) {
      return Error(absl::StatusCode::kUnavailable, Reason::kProbeFailed, "the hardware probe " + what,
                   "Run `rumbo-probe --json` to see.");
    };
    if (!result.ok()) return failed("did not start: " + MessageOf(result.status()));
    if (result->timed_out) return failed("hung and was stopped");
    if (!result->exit.exited || result->exit.code != 0) {
      return failed("ended with " + result->exit.Describe() + ": " + EscapeForLog(result->err));
    }
    auto topology = TopologyFromJson(result->out);
    if (!topology.ok()) return failed("answered nonsense: " + MessageOf(topology.status()));
    std::lock_guard lock(mutex_);
    ++probes_;
    probed_signature_ = std::move(signature);
    return topology;
  }

  const std::string bin_dir_;
  const std::string cache_dir_;
  Executor* const executor_;
  const Root root_;
  std::mutex mutex_;
  int probes_ = 0;                // guarded by mutex_
  std::string probed_signature_;  // of the machine before that probe; guarded by mutex_
  // The core's executor.
  std::vector<DeviceLoad> loads_;
  std::unique_ptr<LiveReader> live_;
  std::string made_for_;  // which topology `live_` watches
  std::string signature_;
};

}  // namespace

absl::StatusOr<ModelDescriptor> InspectFile(const std::string& bin_dir, const std::string& path) {
  if (path.find('\0') != std::string::npos) return InvalidArgument("the path contains a NUL byte");
  SpawnSpec spec;
  spec.argv = {bin_dir + "/rumbo-inspect", path, "--json"};
  spec.env = CleanEnvironment();
  const auto result = RunHelper(spec, kInspectDeadline, kMaxDescriptor);
  if (!result.ok()) return Annotate(result.status(), "rumbo-inspect");
  if (result->exit.exited && result->exit.code == 0 && !result->timed_out)
    return DescriptorFromJson(result->out);
  if (const auto error = ErrorFromJson(result->out)) return *error;
  return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid,
               "the file made its reader " +
                   (result->timed_out ? std::string("hang") : "end with " + result->exit.Describe()),
               "The file is damaged or hostile; get it again from its source.");
}

Finding SandboxHere(const std::string& bin_dir) {
  SpawnSpec spec;
  spec.argv = {bin_dir + "/rumbo-inspect", "--sandbox"};
  spec.env = CleanEnvironment();
  const auto result = RunHelper(spec, std::chrono::seconds(2), 4096);
  const bool ended = result.ok() && !result->timed_out && result->exit.exited;
  std::string text = ended ? EscapeForLog(result->out, 600) : "rumbo-inspect does not answer";
  if (!ended || result->exit.code == 1) {
    return {Severity::kBroken, "sandbox.unavailable", "", "no sandbox can be entered here: " + text,
            "Run `rumbo-inspect --sandbox` to see."};
  }
  // 3: entered, with parts missing.
  const bool whole = result->exit.code == 0;
  return {whole ? Severity::kInfo : Severity::kWarning, whole ? "sandbox.level" : "sandbox.missing", "",
          "readers of model files and engines run with " + text, whole ? "" : "Use a newer kernel."};
}

std::unique_ptr<ModelInspector> NewModelInspector(std::string bin_dir, Executor* executor) {
  return std::make_unique<Inspector>(std::move(bin_dir), executor);
}

std::unique_ptr<TopologySource> NewTopologySource(std::string bin_dir, std::string cache_dir,
                                                  Executor* executor, std::string root) {
  return std::make_unique<ProbedTopology>(std::move(bin_dir), std::move(cache_dir), executor,
                                          std::move(root));
}

}  // namespace rumbo
