#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/plan.h"
#include "devices/api/topology.h"
#include "engines/api/engine.h"
#include "engines/api/model_descriptor.h"

// Values that cross the border of daemon/core. The front doors (daemon/rpc, daemon/http) turn them into their
// wire formats; nothing here knows a wire format.
namespace rumbo {

using TimePoint = std::chrono::steady_clock::time_point;

template <typename T>
using Callback = std::function<void(absl::StatusOr<T>)>;

// Who asks. Filled by the front door from the connection, never from what the client says about itself,
// except `app`.
struct ClientIdentity {
  uint32_t uid = 0;
  int64_t pid = 0;  // 0 unknown (HTTP)
  std::string app;  // what the client calls itself; for fair shares and metrics only
  std::string key() const { return std::to_string(uid) + "/" + app; }
};

struct InferenceRequest {
  std::string id;  // "req-..."; NewRequestId()
  std::string model;
  GenerateRequest generate;
  Workload workload;
  Contract contract;
  PlanOverrides overrides;
  ClientIdentity client;
  TimePoint deadline = TimePoint::max();
  std::optional<int64_t> keep_alive_s;  // negative: always
  std::string idempotency_key;  // of the owner in `generate`: repeats within ten minutes join the first
};

struct Placement {
  std::string request_id;
  std::string instance_id;
  std::string model;
  std::string variant;
  std::string engine;
  std::string backend;
  std::vector<std::string> devices;
  std::string reason;  // one sentence
};

// Receives one answer: OnPlaced, then GenerateSink's events; OnEnd exactly once and last, also where nothing
// else came. Threads as in GenerateSink; OnPlaced comes on the core's executor, before any other event.
class AnswerSink : public GenerateSink {
 public:
  virtual void OnPlaced(const Placement& placement) = 0;
};

// ---- Models ----

struct StoredVariant {
  std::string id = "default";
  std::string sha256;              // lower-case hex
  std::vector<std::string> files;  // absolute paths of the stored content, in order
  std::string state = "complete";  // "complete", "incomplete", "damaged"
  ModelDescriptor descriptor;
  int64_t added_unix_s = 0;
};

struct StoredModel {
  std::string name;
  std::vector<StoredVariant> variants;
  bool pinned = false;
};

struct StepProgress {
  std::string step;  // the words of rumbo.v1.Progress
  std::optional<uint64_t> done_bytes;
  std::optional<uint64_t> total_bytes;
  std::optional<double> fraction;
};

struct ImportSpec {
  std::string path;  // absolute
  std::string name;
  std::string expected_sha256;
  bool replace = false;
  std::string variant;  // beside the model's other variants; "": the only one, "default"
};

// ---- Instances ----

enum class InstanceState { kStarting, kLoading, kReady, kDraining, kStopped, kFailed };
const char* Word(InstanceState state);

struct Measured {
  std::vector<MemoryItem> memory;
  std::optional<double> load_s;
  std::optional<double> ttft_ms;  // moving averages
  std::optional<double> decode_tok_s;
  std::optional<double> aggregate_tok_s;
  uint64_t requests = 0;
};

struct InstanceInfo {
  std::string id;
  std::string model;
  std::string variant;
  std::string engine;
  std::string engine_version;
  std::string backend;
  std::vector<std::string> devices;
  InstanceState state = InstanceState::kStarting;
  std::string reason;
  std::optional<int64_t> pid;
  std::vector<MemoryItem> memory;
  uint32_t sessions = 0;
  uint32_t context_per_session = 0;
  uint32_t running = 0;
  uint32_t queue = 0;
  uint32_t restarts = 0;
  bool pinned = false;
  uint64_t requests = 0;
  uint64_t generated_tokens = 0;
  int64_t since_unix_s = 0;
  std::optional<double> progress;
  std::vector<std::string> capabilities;  // empty until ready
};

// What an instance is wanted for: a model may be loaded to make answers, or for vectors.
enum class InstanceUse { kAny, kAnswers, kVectors };

struct LoadSpec {
  std::string model;
  Workload workload;
  Contract contract;
  PlanOverrides overrides;
  std::optional<int64_t> keep_alive_s;
  InstanceUse use = InstanceUse::kAny;
  std::string idempotency_key;  // with the client's uid: repeats within ten minutes are one load
  uint32_t uid = 0;
  bool operator==(const LoadSpec&) const = default;
};

// A client's claim that keeps a model loaded.
struct LeaseSpec {
  std::string model;
  Priority priority = Priority::kNormal;
  Workload workload;
  Contract contract;
  ClientIdentity client;
};

struct LeaseEvent {
  enum class Kind {
    kGranted,         // its model is ready
    kYieldRequested,  // somebody more important wants the room: let go, or lose the model in a few seconds
    kRevoked,         // the model is gone; it comes back where the lease is still held
    kRestored,        // the model is there again, or nobody wants its room any more
    kContractBroken,  // the model runs, but not as agreed
    kContractKept,    // ... and now it does again
  };
  Kind kind = Kind::kGranted;
  std::string instance_id;
  std::string reason;
};
const char* Word(LeaseEvent::Kind kind);

// How the machine is fed and how hot it is; unknown stays empty.
struct PowerState {
  bool on_battery = false;
  std::optional<double> battery_percent;
  std::optional<double> hottest_share;  // 1: a sensor is at its critical temperature
  std::string hottest;                  // which, for people: "k10temp Tctl 94 of 95 C"
};

struct LoadResult {
  std::string instance_id;
  Plan plan;
  Measured measured;
};

struct Explanation {
  std::string instance_id;
  std::string model;
  Plan plan;
  Measured measured;
};

// ---- Plans ----

struct PlanQuery {
  std::string model;  // name, or absolute path of a model file
  Workload workload;
  Contract contract;
  PlanOverrides overrides;
  std::string hardware;  // profile; "" this machine
  std::string system;
};

struct AdviceRow {
  std::string hardware;
  std::string title;
  std::string model;
  Plan plan;
  std::optional<Price> price;
  std::optional<double> price_per_gb;
  std::optional<double> price_per_tok_s;
};

struct AdviceQuery {
  std::vector<std::string> models;
  Workload workload;
  Contract contract;
  std::string currency;
  std::optional<double> budget;
  std::string system;
};

// ---- Tuning ----

struct TuneSpec {
  std::string model;
  std::vector<uint32_t> sessions = {1, 4, 16};
  std::chrono::seconds limit{300};
  PlanOverrides overrides;
};

// One placement, measured while `sessions` requests began together.
struct TuneTrial {
  std::string variant;
  std::string engine;
  std::string engine_version;
  std::string engine_build;
  std::string backend;
  std::vector<std::string> devices;
  uint32_t sessions = 1;
  std::string knobs;
  std::optional<double> decode_tok_s;
  std::optional<double> aggregate_tok_s;
  std::optional<double> ttft_ms;
  std::optional<double> predicted_decode_tok_s;
  std::optional<double> predicted_ttft_ms;
  std::string failed;  // why it could not be measured, or is not kept
};

struct TuneProgress {
  std::string step;
  uint32_t done = 0;
  uint32_t total = 0;
  double elapsed_s = 0;
  double limit_s = 0;
};

// What comes before the result: one of the two.
struct TuneEvent {
  std::optional<TuneProgress> progress;
  std::optional<TuneTrial> trial;
};

struct TuneWinner {
  std::string objective;
  TuneTrial trial;
};

struct TuneResult {
  std::vector<TuneWinner> winners;
  uint32_t trials = 0;
  double elapsed_s = 0;
  bool cut_short = false;
};

// ---- Requests that ended ----

// What is kept of a request: who, where and how fast, never what.
struct RequestRecord {
  uint64_t sequence = 0;  // counts up from 1
  int64_t ended_unix_s = 0;
  std::string id;
  std::string model;
  std::string instance_id;
  std::string app;
  uint32_t uid = 0;
  std::string priority;  // "interactive", "normal", "batch"
  std::string outcome;   // why the answer ended ("stop", "length", ...), or a Reason's code
  bool ok = false;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  double queue_ms = 0;
  double ttft_ms = 0;
  double total_ms = 0;
  double decode_tok_s = 0;
};

// What a device does at this moment; absent where unknown.
struct DeviceLoad {
  std::string device;
  std::optional<double> busy;  // 0 to 1
  std::optional<double> power_watts;
  std::optional<double> temperature_c;
  bool suspended = false;
};

// A hardware profile, as a choice.
struct ProfileInfo {
  std::string name;   // "card-2"
  std::string title;  // what a person calls it
  std::string system;
};

// ---- The daemon ----

struct CoreStatus {
  bool draining = false;
  uint32_t instances = 0;
  uint32_t running_requests = 0;
  uint32_t queued_requests = 0;
  uint64_t finished_requests = 0;
  uint64_t generated_tokens = 0;
  uint64_t prompt_tokens = 0;
  std::vector<InstalledEngine> engines;
};

}  // namespace rumbo
