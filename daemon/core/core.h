#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "daemon/core/ports.h"
#include "daemon/core/types.h"

namespace rumbo {

struct EngineCatalog;  // engines/api/catalog.h
struct Calibration;    // daemon/core/calibration.h

// Options of the core, one field per row of daemon/options.h that concerns it.
struct CoreOptions {
  uint32_t queue_limit = 4096;           // waiting requests in all
  std::chrono::seconds keep_alive{300};  // idle time after which an instance may be unloaded; negative: never
  std::chrono::milliseconds drain{5000};
  std::chrono::milliseconds load_silence{60000};  // a load without a sign of life for so long has hung
  std::string cache_dir;                          // parent of instances' cache folders; "" none
  uint64_t disk_cache_bytes = 0;                  // quota of the prompts on disk, per model; 0 none
  Bytes memory_limit = 0;     // of system memory, what may be promised in all; 0: what the machine has
  double battery_floor = 20;  // on battery with less (percent), batch work waits; 0: never
  double heat_ceiling =
      0.95;  // with a sensor above this share of its critical value, batch work waits; 0: never
};

// The daemon without its doors: models, plans, instances, requests. Everything asynchronous.
//
// Threading: every method may be called from any thread; each posts to the executor given at construction,
// where all state lives. Callbacks run on that executor: return quickly, never block. Sinks: see AnswerSink.
// Errors: absl::Status with Reason as documented in rumbo.v1.
class Core {
 public:
  struct Parts {
    Executor* executor;  // all outlive the Core
    Launcher* launcher;
    ModelStore* store;
    ModelInspector* inspector;
    TopologySource* topology;
    WallClock* wall;
    const EngineCatalog* catalog;
    const Calibration* calibration;  // as it was at the start; copied
    std::vector<InstalledEngine> engines;
    MeasurementLog* measurements = nullptr;  // null: what is learned is forgotten at the end
    PromiseBoard* promises = nullptr;        // these three may be missing
    PowerSource* power = nullptr;
    LeaseJournal* leases = nullptr;
  };

  static std::unique_ptr<Core> Create(CoreOptions options, Parts parts);
  virtual ~Core() = default;

  // Reads the store and probes the machine in the background. Requests before that wait for it.
  virtual void Start() = 0;

  // ---- Requests ----

  // Runs one request: resolves the model, loads it if needed, queues, dispatches. The call may be destroyed
  // any time, which cancels; the sink gets its OnEnd in every case, once.
  virtual std::unique_ptr<GenerateCall> Generate(InferenceRequest request,
                                                 std::shared_ptr<AnswerSink> sink) = 0;

  // The ready engine for a model, for the short calls (embed, rerank, tokenize, template), loaded if needed,
  // with what it is. The engine stays valid while the pointer is held.
  struct ReadyEngine {
    std::shared_ptr<Engine> engine;
    Placement placement;
    EngineInfo info;
  };
  virtual void WithEngine(LoadSpec spec, ClientIdentity client, TimePoint deadline,
                          Callback<ReadyEngine> done) = 0;

  // ---- Models ----
  virtual void ListModels(Callback<std::vector<StoredModel>> done) = 0;
  virtual void GetModel(std::string name, Callback<StoredModel> done) = 0;
  virtual void ImportModel(ImportSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
                           std::function<void(const StepProgress&)> progress, Callback<StoredModel> done) = 0;
  virtual void DeleteModel(std::string name, Callback<Bytes> done) = 0;
  virtual void PinModel(std::string name, bool pinned, Callback<bool> done) = 0;
  // Loads; `progress` comes on the executor. Destroying nothing: a load that nobody waits for any more goes
  // on.
  virtual void LoadModel(LoadSpec spec, std::function<void(const StepProgress&)> progress,
                         Callback<LoadResult> done) = 0;
  // Model name or instance id -> ids of the instances that were stopped. `drain` nullopt: the default.
  virtual void UnloadModel(std::string name, std::optional<std::chrono::milliseconds> drain,
                           Callback<std::vector<std::string>> done) = 0;

  // ---- Plans ----
  virtual void MakePlan(PlanQuery query, Callback<Plan> done) = 0;
  // Several models on this machine, or on one of a profile, so that all run side by side. The same profile
  // and system in every query. One plan per query, in their order.
  virtual void MakePlans(std::vector<PlanQuery> queries, Callback<std::vector<Plan>> done) = 0;
  // Measures a model with what there is on this machine and learns from it; see
  // rumbo.v1.PlanService.TuneModel. Ends soon after `*cancelled` turned true, with what it has.
  virtual void TuneModel(TuneSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
                         std::function<void(const TuneEvent&)> progress, Callback<TuneResult> done) = 0;
  virtual void Explain(std::string id, Callback<Explanation> done) = 0;
  virtual void Advise(AdviceQuery query, Callback<std::vector<AdviceRow>> done) = 0;

  // ---- Machine and instances ----
  virtual void GetTopology(std::string hardware, bool refresh, Callback<Topology> done) = 0;
  // What this machine's devices do now. Empty before the first GetTopology.
  virtual void GetLoads(Callback<std::vector<DeviceLoad>> done) = 0;
  virtual void ListInstances(Callback<std::vector<InstanceInfo>> done) = 0;
  // Calls `on_change` on the executor with every instance at once (initial) and then each change, until the
  // returned token is destroyed (from any thread; no call comes after its destructor returned on the
  // executor).
  virtual std::shared_ptr<void> WatchInstances(
      std::function<void(const InstanceInfo&, bool initial)> on_change) = 0;
  // What the running engines say of themselves, by instance id. Engines that do not answer before `deadline`
  // are left out. Loads nothing and keeps nothing loaded.
  virtual void GetEngineStats(TimePoint deadline, Callback<std::map<std::string, EngineStats>> done) = 0;
  virtual void GetStatus(Callback<CoreStatus> done) = 0;
  // The latest requests that ended with a higher sequence than `after`, oldest first; a few hundred are kept.
  virtual void ListRequests(uint64_t after, Callback<std::vector<RequestRecord>> done) = 0;
  // The hardware profiles that plans and GetTopology take, by name.
  virtual void ListProfiles(Callback<std::vector<ProfileInfo>> done) = 0;

  // Keeps a model loaded until the returned token is destroyed (any thread). Loads it where it is not. Both
  // callbacks come on the executor. `on_end` comes once, and nothing after it: where the model cannot be
  // loaded in the first place, or the daemon drains.
  virtual std::shared_ptr<void> Lease(LeaseSpec spec, std::function<void(const LeaseEvent&)> on_event,
                                      std::function<void(absl::Status)> on_end) = 0;

  // Options that can change while we run: all but cache_dir and memory_limit. Running instances stay as they
  // are.
  virtual void SetOptions(CoreOptions options) = 0;

  // Takes no new work; `done` once nothing runs or `limit` has passed.
  virtual void Drain(std::chrono::milliseconds limit, std::function<void()> done) = 0;
};

// "req-" and 16 hex digits, unique in this process and hard to guess.
std::string NewRequestId();

}  // namespace rumbo
