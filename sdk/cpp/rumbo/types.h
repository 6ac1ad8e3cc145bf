#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace google::protobuf {
class Message;
}

// What the daemon tells about machines, models, plans and instances. Plain values, owned by their holder;
// what is unknown is absent, never 0. Units end the names; memory is in bytes, speed in tokens per second.
namespace rumbo::inline sdk {

// The message that an answer came in, with every field it had. Cheap to copy.
class Wire {
 public:
  Wire() = default;
  explicit Wire(std::shared_ptr<const google::protobuf::Message> message) : message_(std::move(message)) {}
  // All of it as JSON, keys as in the protocol; "null" for a default-made one. `indent` 0: one line.
  std::string ToJson(int indent = 2) const;

 private:
  std::shared_ptr<const google::protobuf::Message> message_;
};

struct Finding {
  std::string severity;  // "info", "warning", "broken"
  std::string code;      // stable, e.g. "gpu.no_render_group"
  std::string device;
  std::string text;
  std::string remedy;
};

struct MemoryLimit {
  std::string id;
  std::string kind;  // "gtt", "ttm", "kfd", "cgroup", "reserve", "other"
  std::optional<uint64_t> max_bytes;
  std::optional<uint64_t> used_bytes;
  std::string source;
};

struct MemoryPool {
  std::string id;
  std::string kind;  // "system", "vram", "carveout"
  std::optional<uint64_t> total_bytes;
  std::optional<uint64_t> free_bytes;
  std::optional<uint64_t> reserved_bytes;
  std::vector<MemoryLimit> limits;
  std::string source;
};

struct Backend {
  std::string name;
  bool usable = false;
  std::string reason;
  std::string remedy;
  std::string version;
  std::vector<std::string> pools;  // that it may use, best first
  bool may_span_pools = false;     // all of them together, not only the largest
};

struct Device {
  std::string id;
  std::string kind;  // "cpu", "gpu", "npu"
  std::string name;
  std::string vendor;
  std::string memory_kind;  // "host", "discrete", "unified", "unknown"
  std::vector<std::string> pools;
  std::vector<Backend> backends;
  bool present = false;
  bool accessible = false;
  bool usable = false;
  std::string reason;
  std::string remedy;
  std::vector<std::string> evidence;
  bool software = false;
  std::optional<double> bandwidth_bytes_s;
  std::string bandwidth_source;
  std::optional<uint32_t> compute_units;
  std::optional<uint32_t> cores_physical;
  std::optional<uint32_t> cores_logical;
  std::optional<uint32_t> threads_allowed;
  std::string threads_allowed_source;
  std::string gfx_target;
  std::string driver;
};

struct Topology {
  std::vector<Device> devices;
  std::vector<MemoryPool> pools;
  std::vector<Finding> findings;
  std::string source;  // "probe" or "profile:NAME"
  std::string system;
  std::string name;
  Wire wire;
};

struct Variant {
  std::string id;
  std::string format;
  std::string architecture;
  std::string quantization;
  uint64_t size_bytes = 0;
  std::string sha256;
  uint64_t parameters = 0;
  uint32_t context_trained = 0;
  bool has_chat_template = false;
  std::string state;  // "complete", "incomplete", "damaged"
  std::vector<std::string> capabilities;
  int64_t added_unix_s = 0;
  std::optional<uint64_t> done_bytes;  // of an incomplete one: bytes that are here
  std::string source;                  // the reference it came by; "" imported
};

struct Model {
  std::string name;
  std::vector<Variant> variants;
  bool pinned = false;
  Wire wire;
};

struct ModelList {
  std::vector<Model> models;
  Wire wire;
};

struct ModelDetails {
  Model model;
  std::string descriptor_json;
  std::map<std::string, std::string> metadata;
  Wire wire;
};

struct CheckResult {
  std::string severity;  // "ok", "info", "warning", "broken"
  std::string code;
  std::string text;
  std::string remedy;
  std::string file_name;  // a file that mends it; "" none
  std::string file_content;
  std::string source;  // of a rule, with its date
};

struct CheckReport {
  std::vector<CheckResult> results;
  Wire wire;
};

// How far a transfer or load has come.
struct Progress {
  std::string step;
  std::optional<uint64_t> done_bytes;
  std::optional<uint64_t> total_bytes;
  std::optional<double> fraction;
  std::optional<double> bytes_per_s;
  std::optional<double> eta_s;
};

// What the app expects. Absent: the daemon's defaults.
struct Workload {
  std::optional<uint32_t> sessions;
  std::optional<uint32_t> context;  // tokens, all sessions together
  std::optional<uint32_t> prompt_tokens;
  std::optional<uint32_t> answer_tokens;
  std::optional<uint32_t> shared_prefix_tokens;
  std::string objective;  // "latency", "throughput", "energy", "memory"; "": latency
  std::optional<double> draft_acceptance;
};

// What a placement must keep, or else fail.
struct Contract {
  std::string device_kind;  // "cpu", "gpu", "npu"; "": any
  std::optional<uint32_t> min_context;
  std::optional<double> min_tokens_per_s;
  bool local_only = false;
};

// Choices made instead of the planner. "" and absent: the planner chooses.
struct PlanOverrides {
  std::string engine;
  std::string device;
  std::optional<uint32_t> threads;
  std::string kv_type;
  std::optional<uint32_t> gpu_layers;
  bool force = false;
  std::string variant;
  std::string build;    // of the engine: "native", "prebuilt"
  std::string pooling;  // "mean", "cls", "last": load for embeddings; "": what the model is made for
  std::optional<uint32_t> draft_tokens;
  std::string draft_model;  // a smaller stored model of the same vocabulary that guesses ahead
};

struct PlanRequest {
  std::string model;  // a stored model's name, or the absolute path of a file
  Workload workload;
  Contract contract;
  PlanOverrides overrides;
  std::string hardware;  // a hardware profile; "": this machine
  std::string system;    // "linux", "windows"; "": this machine's
  bool strict = false;   // an Error instead of a plan without `chosen`
  std::vector<std::string> together;
};

struct MemoryItem {
  std::string pool;
  std::string what;
  uint64_t bytes = 0;
  std::string source;
};

struct Predicted {
  std::optional<double> ttft_ms;
  std::optional<double> decode_tok_s;
  std::optional<double> aggregate_tok_s;
  std::optional<double> load_s;
  std::optional<double> energy_j_per_tok;
  std::optional<double> uncertainty;  // relative half-width, about 80 % of cases
  std::string source;
};

struct Settings {
  std::optional<uint32_t> context_total;
  std::optional<uint32_t> context_per_session;
  std::optional<uint32_t> sessions;
  std::optional<uint32_t> threads;
  std::optional<uint32_t> threads_batch;
  std::optional<uint32_t> batch;
  std::optional<uint32_t> ubatch;
  std::optional<uint32_t> gpu_layers;
  std::string kv_type_k;
  std::string kv_type_v;
  std::string flash_attention;
  std::optional<bool> mmap;
  std::optional<bool> kv_unified;
  std::optional<bool> swa_full;
  std::optional<uint32_t> draft_tokens;
  std::optional<uint64_t> host_cache_bytes;
  std::optional<uint32_t> poll;
  std::map<std::string, std::string> extra;
};

struct Candidate {
  std::string variant;
  std::string engine;
  std::string engine_version;
  std::string backend;
  std::vector<std::string> devices;
  Settings settings;
  std::vector<MemoryItem> memory;
  Predicted predicted;
  std::vector<std::string> reasons;
  std::string maturity;
  std::string engine_build;
};

struct Rejected {
  std::string variant;
  std::string engine;
  std::string engine_build;
  std::string backend;
  std::vector<std::string> devices;
  std::string reason_code;
  std::string reason;
  Predicted predicted;
  std::vector<MemoryItem> memory;
};

struct Refusal {
  std::string reason_code;
  std::string reason;
  std::string pool;
  std::optional<uint64_t> missing_bytes;
  std::optional<Workload> nearest;
  std::string next_step;
};

// Where and with what a model would run, and why.
struct Plan {
  std::optional<Candidate> chosen;
  std::vector<Rejected> rejected;
  std::string model;
  std::optional<Refusal> refusal;  // where nothing was chosen
  Workload workload;               // with every default filled in
  std::vector<std::string> evictions;
  bool forced = false;
  std::string hardware;
  Wire wire;
};

struct Measured {
  std::vector<MemoryItem> memory;
  std::optional<double> load_s;
  std::optional<double> ttft_ms;
  std::optional<double> decode_tok_s;
  std::optional<double> aggregate_tok_s;
  uint64_t requests = 0;
};

struct Explanation {
  Plan plan;
  std::optional<Measured> measured;
  std::string instance_id;
  std::string model;
  Wire wire;
};

// Plans of several models that run side by side, in the order of the request.
struct JointPlan {
  std::vector<Plan> plans;
  Wire wire;
};

struct TuneRequest {
  std::string model;
  std::vector<uint32_t> sessions;  // empty: 1, 4, 16
  std::optional<uint32_t> limit_s;
  PlanOverrides overrides;  // try only what these leave
};

// One way to run the model, measured while `sessions` requests began together.
struct TuneTrial {
  std::string variant;
  std::string engine;
  std::string engine_build;
  std::string backend;
  std::vector<std::string> devices;
  uint32_t sessions = 0;
  std::string knobs;
  std::optional<double> decode_tok_s;
  std::optional<double> aggregate_tok_s;
  std::optional<double> ttft_ms;
  std::string failed;  // why it could not be measured, or is not kept
  Wire wire;
};

struct TuneProgress {
  std::string step;
  uint32_t done = 0;
  uint32_t total = 0;
  double elapsed_s = 0;
  double limit_s = 0;
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
  Wire wire;
};

struct LoadRequest {
  std::string model;
  Workload workload;
  Contract contract;
  PlanOverrides overrides;
  std::optional<int64_t> keep_alive_s;
  std::string idempotency_key;
};

struct Loaded {
  std::string instance_id;
  std::optional<Plan> plan;
  std::optional<Measured> measured;
  Wire wire;
};

struct ImportRequest {
  std::string path;  // absolute, on the daemon's machine
  std::string name;
  std::string expected_sha256;
  bool replace = false;
  std::string variant;  // beside the model's other variants; "": the only one
};

struct PullRequest {
  std::string reference;
  std::string name;
  bool plan_only = false;
  bool replace = false;
  bool force = false;  // take it even where it does not fit
};

// One variant that a reference offers.
struct PullCandidate {
  std::string id;
  std::string format;
  std::optional<uint64_t> size_bytes;
  std::vector<std::string> files;
  std::string fit;  // "fits", "does not fit", "unknown"
  bool chosen = false;
  std::string reason;
  std::optional<double> decode_tok_s;
  std::optional<double> ttft_ms;
  std::string engine;
};

struct PullPlan {
  std::string reference;
  std::string name;
  std::string licence;
  bool gated = false;
  std::vector<PullCandidate> candidates;
  Wire wire;
};

struct SearchHit {
  std::string reference;
  std::string title;
  std::string licence;
  std::string origin;  // "list", "hub"
  std::vector<std::string> variants;
  std::optional<uint64_t> downloads;
  std::string source;
};

struct SearchHits {
  std::vector<SearchHit> hits;
  Wire wire;
};

struct VerifiedModel {
  std::string name;
  std::string state;  // "ok", "damaged", "missing", "incomplete"
  std::string text;
};

struct VerifiedModels {
  std::vector<VerifiedModel> models;
  Wire wire;
};

struct GarbageItem {
  std::string what;
  uint64_t bytes = 0;
};

struct Garbage {
  std::vector<GarbageItem> items;
  uint64_t bytes = 0;
  Wire wire;
};

// A model in another program's cache.
struct CachedModel {
  std::string name;
  std::string cache;  // "huggingface", "ollama", "lmstudio"
  std::string path;
  uint64_t bytes = 0;
  std::string state;  // "found", "adopted", "known", "refused"
  std::string text;
};

struct CachedModels {
  std::vector<CachedModel> models;
  Wire wire;
};

struct ExportedFiles {
  std::vector<std::string> paths;
  Wire wire;
};

struct Instance {
  std::string id;
  std::string model;
  std::string engine;
  std::string backend;
  std::vector<std::string> devices;
  std::string state;  // "starting", "loading", "ready", "draining", "stopped", "failed"
  std::optional<int64_t> pid;
  std::vector<MemoryItem> memory;
  uint32_t sessions = 0;
  uint32_t queue = 0;
  int64_t since = 0;  // seconds since the epoch
  uint32_t running = 0;
  std::string reason;
  std::string variant;
  uint32_t context_per_session = 0;
  uint32_t restarts = 0;
  bool pinned = false;
  std::optional<double> progress;
  uint64_t requests = 0;  // answered since it was loaded
  uint64_t generated_tokens = 0;
};

struct InstanceList {
  std::vector<Instance> instances;
  Wire wire;
};

struct DaemonStatus {
  std::string version;
  std::vector<std::string> api_versions;
  int64_t pid = 0;
  int64_t started_unix_s = 0;
  std::string http_address;
  bool draining = false;
  uint32_t instances = 0;
  uint32_t running_requests = 0;
  uint32_t queued_requests = 0;
  uint64_t finished_requests = 0;
  std::vector<std::string> engines;
  Wire wire;
};

// What is known about an engine, and what of it is installed.
struct Engine {
  struct System {
    std::string system;
    std::string maturity;
  };
  struct Support {
    std::vector<std::string> systems, targets, vendors, formats;  // empty: all
    std::string maturity;
    std::string note;
    std::string source;
  };
  struct Backend {
    std::string name;
    std::vector<std::string> device_kinds;
    std::vector<Support> support;  // the first whose conditions hold decides
  };
  struct Build {
    std::string version;
    std::string build;
    std::vector<std::string> backends;
  };
  std::string name;
  std::string title;
  std::string kind;  // "worker", "process", "attached", "remote", "test"
  std::string version;
  std::string license;
  std::string homepage;
  std::string origin;
  std::vector<std::string> formats;
  std::vector<std::string> capabilities;
  uint32_t max_sessions = 0;
  std::vector<System> systems;
  std::vector<Backend> backends;
  std::vector<Build> builds;
  std::string next_step;  // where nothing is installed
};

struct EngineList {
  std::vector<Engine> engines;
  Wire wire;
};

struct DoctorReport {
  std::vector<Finding> findings;  // worst first
  Wire wire;
};

struct AdviseRequest {
  std::vector<std::string> models;
  Workload workload;
  Contract contract;
  std::string currency;
  std::optional<double> budget;
  std::string system;
};

struct Advice {
  std::string hardware;
  std::string title;
  std::string model;
  std::optional<Plan> plan;
  std::optional<double> price;
  std::string currency;
  std::string price_date;
  std::optional<double> price_per_gb;
  std::optional<double> price_per_tok_s;
};

struct AdviceTable {
  std::vector<Advice> rows;
  Wire wire;
};

// Options of the daemon, by name.
struct ReloadReport {
  std::vector<std::string> changed;
  std::vector<std::string> needs_restart;
};

struct LogsRequest {
  std::string filter;  // only lines with this text
  uint32_t last = 100;
  bool follow = false;
};

struct LeaseRequest {
  std::string model;
  std::string priority;  // "interactive", "normal", "batch"; "" normal
  Workload workload;
};

struct LeaseEvent {
  std::string
      event;  // "granted", "yield_requested", "revoked", "restored", "contract_broken", "contract_kept"
  std::string instance_id;
  std::string reason;
};

}  // namespace rumbo::inline sdk
