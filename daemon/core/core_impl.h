#pragma once

#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "daemon/core/active_request.h"
#include "daemon/core/admission.h"
#include "daemon/core/core.h"
#include "daemon/core/ledger.h"
#include "daemon/core/planner.h"
#include "daemon/core/repeats.h"
#include "daemon/core/request_log.h"

namespace rumbo {

// All that a look for room depends on.
struct RoomView {
  std::map<std::string, Bytes> pool_free, limit_free, all_pool_free, all_limit_free;
  std::vector<EvictionCandidate> evictable, busy;
  bool operator==(const RoomView&) const = default;
};

// Runs of about as many sessions and as long prompts: how many were measured, and when last.
struct RunKind {
  uint32_t seen = 0;
  TimePoint last{};
};

// One place in memory for one model: from the wish to load it to the end of its process. A crashed instance
// keeps its id and starts again when somebody needs it. The core's executor only.
struct Instance {
  InstanceInfo info;
  uint64_t number = 0;  // in the order of creation
  LoadSpec spec;
  Plan plan;
  Measured measured;
  EngineInfo engine_info;

  uint64_t launch = 0;  // numbers launches: callbacks of an earlier one are stale
  bool proven = false;  // was ready once
  TimePoint ready_since{};
  std::unique_ptr<LaunchedEngine> process;
  std::shared_ptr<Engine> engine;  // null unless ready
  bool suspect = false;            // an attempt died; its process must be about to end: nothing is dispatched
  bool stopping = false;           // asked to end
  absl::Status kill_reason;        // set where we ended it for a fault

  AdmissionQueue queue;
  std::map<std::string, std::shared_ptr<ActiveRequest>> waiting;
  std::map<std::string, std::shared_ptr<ActiveRequest>> running;
  int borrowed = 0;  // users through WithEngine
  std::vector<std::function<void(absl::Status)>> ready_waiters;
  std::vector<std::function<void(const StepProgress&)>> progress_watchers;

  std::set<std::string> replaces;   // instances of the same model that this one takes the place of
  std::set<std::string> waits_for;  // instances that are ending for this one's room, which is its alone
  Reservation claim;                // that room; while waits_for has any
  int placements = 0;               // evictions that came to nothing since it was last ready
  bool wants_room = false;          // fits, but not before others are done: waits, see core_room.cpp
  TimePoint room_since{};
  std::vector<std::string> blockers;  // while wants_room: whose end would make it fit
  std::optional<RoomView> seen;       // what it did not fit into when last looked: no need to look twice
  bool yielding = false;  // somebody has waited long for its room: takes no new requests until it is idle

  int failures = 0;           // of its process, in a row, without a token between
  TimePoint blocked_until{};  // crash loop
  uint64_t failed_since = 0;  // numbers the failures, for the timer that forgets them
  TimePoint last_used{};
  TimePoint load_started{};
  TimePoint launched{};
  std::chrono::seconds keep_alive{0};
  TimePoint keep_alive_due = TimePoint::max();  // the earliest look at whether it was idle long enough
  bool hang_watch_armed = false;
  bool asked_for_life = false;  // GetStats is under way
  EngineStats last_stats;
  TimePoint last_progress{};             // when last_stats changed
  std::optional<TimePoint> yield_asked;  // since when its lease holders know that somebody wants the room

  double running_seconds = 0;  // see CoreImpl::RunningSeconds
  TimePoint running_since{};
  std::map<std::pair<uint32_t, uint32_t>, RunKind> run_kinds;
  bool tuning = false;  // a tuning run measures it itself

  bool idle() const { return running.empty() && queue.empty() && borrowed == 0 && ready_waiters.empty(); }
  // Nothing would be cut off by ending it.
  bool at_rest() const {
    return running.empty() && borrowed == 0 && ready_waiters.empty() && (queue.empty() || yielding);
  }
};

// A lease that somebody holds.
struct HeldLease {
  uint64_t number = 0;
  LeaseSpec spec;
  std::function<void(const LeaseEvent&)> on_event;  // null: of an earlier daemon, whose holder may come back
  std::function<void(absl::Status)> on_end;
  std::string instance;    // "" while it has none
  bool granted = false;    // once
  bool has_model = false;  // it is ready now
  bool comes_back = true;  // false: the user unloaded it
  bool contract_kept = true;
  TimePoint expires = TimePoint::max();
};

// The Core. Split by reason to change: core_impl.cpp (models, plans, the machine), core_requests.cpp
// (requests, admission, dispatch), core_instances.cpp (loading, failing, ending instances), core_room.cpp
// (placing: who gets which room, and who goes for it), core_learning.cpp (what loads and runs took),
// core_tuning.cpp (trials of a model).
class CoreImpl final : public Core {
 public:
  CoreImpl(CoreOptions options, Parts parts);
  ~CoreImpl() override;

  void Start() override;
  std::unique_ptr<GenerateCall> Generate(InferenceRequest request, std::shared_ptr<AnswerSink> sink) override;
  void WithEngine(LoadSpec spec, ClientIdentity client, TimePoint deadline,
                  Callback<ReadyEngine> done) override;
  void ListModels(Callback<std::vector<StoredModel>> done) override;
  void GetModel(std::string name, Callback<StoredModel> done) override;
  void ImportModel(ImportSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
                   std::function<void(const StepProgress&)> progress, Callback<StoredModel> done) override;
  void DeleteModel(std::string name, Callback<Bytes> done) override;
  void PinModel(std::string name, bool pinned, Callback<bool> done) override;
  void LoadModel(LoadSpec spec, std::function<void(const StepProgress&)> progress,
                 Callback<LoadResult> done) override;
  void UnloadModel(std::string name, std::optional<std::chrono::milliseconds> drain,
                   Callback<std::vector<std::string>> done) override;
  void MakePlan(PlanQuery query, Callback<Plan> done) override;
  void MakePlans(std::vector<PlanQuery> queries, Callback<std::vector<Plan>> done) override;
  void TuneModel(TuneSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
                 std::function<void(const TuneEvent&)> progress, Callback<TuneResult> done) override;
  void Explain(std::string id, Callback<Explanation> done) override;
  void Advise(AdviceQuery query, Callback<std::vector<AdviceRow>> done) override;
  void GetTopology(std::string hardware, bool refresh, Callback<Topology> done) override;
  void GetLoads(Callback<std::vector<DeviceLoad>> done) override;
  void ListInstances(Callback<std::vector<InstanceInfo>> done) override;
  std::shared_ptr<void> WatchInstances(std::function<void(const InstanceInfo&, bool)> on_change) override;
  void GetEngineStats(TimePoint deadline, Callback<std::map<std::string, EngineStats>> done) override;
  void GetStatus(Callback<CoreStatus> done) override;
  void ListRequests(uint64_t after, Callback<std::vector<RequestRecord>> done) override;
  void ListProfiles(Callback<std::vector<ProfileInfo>> done) override;
  void Drain(std::chrono::milliseconds limit, std::function<void()> done) override;
  std::shared_ptr<void> Lease(LeaseSpec spec, std::function<void(const LeaseEvent&)> on_event,
                              std::function<void(absl::Status)> on_end) override;
  void SetOptions(CoreOptions options) override;

 private:
  class RequestCall;
  class Tuning;  // core_tuning.cpp

  // The way in for other threads: runs tasks on the executor unless the core is gone by then. Copies outlive
  // the core.
  struct Door {
    Executor* executor;
    std::weak_ptr<int> alive;
    void Post(std::function<void()> task) const;
  };
  Door door() const { return {parts_.executor, alive_}; }

  // The same for the core itself.
  void Post(std::function<void()> task) { door().Post(std::move(task)); }
  void PostAfter(std::chrono::milliseconds delay, std::function<void()> task);
  TimePoint Now() const { return parts_.executor->clock().Now(); }

  // core_impl.cpp
  void Close();
  void OnModels(absl::StatusOr<std::vector<StoredModel>> models);
  void StopEverything();
  void WhenModels(std::function<void()> task);
  void WhenTopology(std::function<void(absl::Status)> task);
  void StartProbe();
  void WatchMachine();
  void RefreshMemory();
  void EndInstancesOfLostDevices();
  absl::StatusOr<const StoredModel*> FindModel(const std::string& name) const;
  PlanRequest MakePlanRequest(const std::string& model, std::vector<PlanVariant> variants,
                              const Workload& workload, const Contract& contract,
                              const PlanOverrides& overrides) const;
  void LoadOnce(LoadSpec spec, std::function<void(const StepProgress&)> progress, Callback<LoadResult> done);
  std::unique_ptr<GenerateCall> GenerateOnce(InferenceRequest request, std::shared_ptr<AnswerSink> sink);
  void PlanWith(PlanQuery query, std::vector<PlanVariant> variants, Callback<Plan> done);

  // core_requests.cpp
  void Submit(std::shared_ptr<ActiveRequest> request);
  void Enqueue(Instance& instance, std::shared_ptr<ActiveRequest> request);
  void ArmDeadline(const std::shared_ptr<ActiveRequest>& request);
  std::shared_ptr<ActiveRequest> TakeWaiting(Instance& instance, const std::string& request_id);
  void Rehouse(Instance& instance);
  void Dispatch(Instance& instance);
  void Replay(Instance& instance, std::shared_ptr<ActiveRequest> request);
  void Log(const std::string& instance_id, const ActiveRequest& request, const absl::Status& status);
  void Account(Instance* instance, const std::string& instance_id, const ActiveRequest& request,
               const absl::Status& status);
  void OnAttemptEnd(const std::string& instance_id, std::shared_ptr<ActiveRequest> request,
                    const absl::Status& status, bool replayable);
  void CancelWaiting(const std::string& request_id);
  void FailWaiting(Instance& instance, const absl::Status& status);
  Placement PlacementOf(const Instance& instance, const std::string& request_id) const;
  void CheckDrained();

  // core_instances.cpp
  absl::StatusOr<Instance*> EnsureInstance(const LoadSpec& spec, bool replace_different);
  bool Serves(const Instance& instance, const LoadSpec& spec) const;
  bool KeptByPin(const Instance& instance) const;
  void Launch(Instance& instance);
  LaunchSpec LaunchSpecOf(const Instance& instance) const;
  void AddCompanions(LaunchSpec& launch) const;
  void OnReady(const std::string& id, uint64_t launch, std::shared_ptr<Engine> engine, EngineInfo info);
  void OnExit(const std::string& id, uint64_t launch, absl::Status status);
  void FailLoad(Instance& instance, const absl::Status& status);
  void KeepFailed(Instance& instance, std::chrono::milliseconds at_least = std::chrono::milliseconds(0));
  void Restart(Instance& instance);
  absl::Status CrashLoop(const Instance& instance) const;
  // `queued_hear` OK: what waits is served elsewhere.
  void StopInstance(Instance& instance, std::string why, absl::Status queued_hear,
                    std::chrono::milliseconds grace);
  void KillProcess(Instance& instance);
  void EndForFault(Instance& instance, absl::Status why);
  void Remove(const std::string& id);
  void SetState(Instance& instance, InstanceState state, std::string reason);
  void Notify(const Instance& instance);
  void Rested(Instance& instance);
  void ArmKeepAlive(Instance& instance);
  void ArmHangWatch(Instance& instance);
  void AskForLife(Instance& instance);
  void OnStats(Instance& instance, const absl::StatusOr<EngineStats>& stats);

  // core_learning.cpp
  Measurement MeasurementOf(const Instance& instance) const;
  void Learn(Measurement m);
  void LearnLoad(const Instance& instance);
  void LearnRun(Instance& instance, const ActiveRequest& request);
  double RunningSeconds(Instance& instance);
  Predicted PredictedOf(const Instance& instance, uint32_t sessions, uint32_t prompt_tokens,
                        uint32_t answer_tokens) const;

  // core_room.cpp
  void Place(const std::string& instance_id);
  std::vector<PlanVariant> VariantsOf(const std::string& model) const;
  absl::Status CheckLoadable(const std::string& model) const;
  void WaitForRoom(Instance& instance, PlanRequest request);
  RoomView View(const Instance& instance, const PlanRequest& request) const;
  void WaitOn(Instance& instance);
  void ArmRoomTimer();
  void LeaveRoomQueue(Instance& instance);
  bool BehindAnother(const Instance& instance) const;
  void RoomMayBeFree();
  void RetryRoomSoon();
  void RetryRoom();
  void AskToYield();
  void NoteRelease(const std::string& id);
  void DropSettled();
  void SubtractClaims(const Instance& besides, LedgerSnapshot& snapshot) const;
  std::vector<EvictionCandidate> Evictable(const Instance* besides, bool busy_too) const;
  Reservation ReservationOf(const Candidate& candidate) const;
  std::vector<MemoryItem> MapPools(const Instance& instance, std::vector<MemoryItem> items) const;
  Instance* Find(const std::string& id);
  int WantedLevel(const Instance& instance) const;
  void RelievePressure();
  void PublishPromises();
  Bytes Untaken(const Instance& instance, const std::string& pool) const;
  bool Quarantined(const std::string& device) const;
  absl::StatusOr<Plan> PlanHere(const PlanRequest& request) const;
  void NoteDeviceFault(const Instance& instance, const absl::Status& status);

  // core_leases.cpp
  void AddLease(const std::shared_ptr<HeldLease>& lease);
  void AttachLease(HeldLease& lease);
  void DropLease(uint64_t number);
  int LeaseLevel(const Instance& instance) const;
  bool Kept(const Instance& instance) const { return KeptByPin(instance) || LeaseLevel(instance) > 0; }
  void LeasesLost(Instance& instance, const std::string& reason, bool comes_back);
  void LeasesReady(Instance& instance);
  void AskLeasesToYield(Instance& instance, const std::string& for_whom);
  void NoMoreYield(Instance& instance);
  void RestoreLeases();
  bool FitsAgain(const HeldLease& lease);
  void CheckContracts();
  void CheckPower();
  bool HoldsBatch() const { return !batch_held_because_.empty(); }
  void SaveLeases();
  void ReloadLeases();
  void Tell(HeldLease& lease, LeaseEvent::Kind kind, const std::string& reason);

  CoreOptions options_;
  const Parts parts_;
  std::shared_ptr<int> alive_ =
      std::make_shared<int>(0);  // its weak pointers tell posted tasks whether this lives

  // All below: the executor.
  bool models_loaded_ = false;
  absl::Status models_status_;
  std::vector<std::function<void()>> models_waiters_;
  std::vector<std::shared_ptr<ActiveRequest>> early_requests_;  // came before the models were known
  std::map<std::string, StoredModel> models_;

  bool probing_ = false;
  std::optional<Topology> topology_;
  std::vector<std::function<void(absl::Status)>> topology_waiters_;
  Ledger ledger_;
  Calibration calibration_;

  uint64_t next_instance_ = 1;
  std::map<std::string, std::unique_ptr<Instance>> instances_;
  std::unordered_map<std::string, std::string> request_instance_;  // waiting and running requests
  std::deque<std::pair<std::string, std::string>> history_;        // ended requests -> instance, bounded

  std::map<std::string, std::vector<std::function<void()>>> removal_waiters_;  // by instance
  // Memory of processes that ended a moment ago and that may not be reported free yet.
  struct Settling {
    TimePoint since;
    Reservation held;
    std::map<std::string, Bytes> free_then;  // reported free by pool, from which it is believed to be back
  };
  std::vector<Settling> settling_;
  bool room_retry_posted_ = false;
  bool room_timer_armed_ = false;

  std::map<uint64_t, std::function<void(const InstanceInfo&, bool)>> watchers_;
  uint64_t next_watcher_ = 1;

  bool tuning_ = false;  // a tuning run is under way
  std::map<uint64_t, std::shared_ptr<HeldLease>> leases_;
  uint64_t next_lease_ = 1;
  bool restore_armed_ = false;
  bool leases_loaded_ = false;
  std::string batch_held_because_;  // "" where batch work may run
  std::map<std::string, std::vector<TimePoint>> device_faults_;
  std::set<std::string> pressed_;  // instances in whose memory other programs are

  // Loads with an idempotency key, by uid and key.
  struct KeyedLoad {
    LoadSpec spec;
    TimePoint begun{};
    std::optional<LoadResult> result;
    std::vector<Callback<LoadResult>> waiters;
  };
  std::map<std::pair<uint32_t, std::string>, KeyedLoad> keyed_loads_;
  const std::shared_ptr<RepeatTable> repeats_;

  bool draining_ = false;
  std::vector<std::function<void()>> drain_waiters_;
  uint32_t queued_ = 0;
  uint64_t finished_requests_ = 0;
  RequestLog request_log_{500};
  uint64_t generated_tokens_ = 0;
  uint64_t prompt_tokens_ = 0;
};

// A plan without a choice, as the error that a load reports.
absl::Status RefusalStatus(const Plan& plan);

}  // namespace rumbo
