// Instances: placing, loading, evicting, ending.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status.h"
#include "daemon/core/core_impl.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kMaxPlacements = 3;     // a plan is made again so often when the ledger moved or room had to be made
constexpr int kCrashLoop = 5;         // failures in a row after which an instance rests
constexpr seconds kCrashLoopRest{30};
constexpr seconds kHangCheck{5};
constexpr seconds kHangSilence{20};   // without an event for so long, the engine is asked whether it lives

milliseconds BackOff(int failures) {
  if (failures <= 1) return milliseconds(0);
  return std::min(milliseconds(250 << std::min(failures - 2, 10)), milliseconds(15000));
}

}  // namespace

absl::Status RefusalStatus(const Plan& plan) {
  RUMBO_CHECK(plan.refusal.has_value());
  const Refusal& refusal = *plan.refusal;
  absl::StatusCode code = absl::StatusCode::kFailedPrecondition;
  if (refusal.reason_code == Reason::kDoesNotFit) code = absl::StatusCode::kResourceExhausted;
  return Error(code, refusal.reason_code, refusal.reason, refusal.next_step);
}

Instance* CoreImpl::Find(const std::string& id) {
  const auto it = instances_.find(id);
  return it == instances_.end() ? nullptr : it->second.get();
}

// True where `instance` is what `spec` asks for; what the spec leaves open is no difference.
bool CoreImpl::Serves(const Instance& instance, const LoadSpec& spec) const {
  if (instance.info.model != spec.model || instance.stopping) return false;
  const PlanOverrides& had = instance.spec.overrides;
  const PlanOverrides& want = spec.overrides;
  const Workload& load = instance.plan.chosen ? instance.plan.workload : instance.spec.workload;
  const auto differs = [](const auto& wanted, const auto& present) { return wanted && wanted != present; };
  if (!want.engine.empty() && want.engine != instance.info.engine && want.engine != had.engine) return false;
  if (!want.device.empty() && want.device != had.device && want.device != instance.info.backend &&
      std::find(instance.info.devices.begin(), instance.info.devices.end(), want.device) == instance.info.devices.end()) {
    return false;
  }
  if (!want.kv_type.empty() && want.kv_type != had.kv_type) return false;
  if (!want.variant.empty() && want.variant != instance.info.variant) return false;
  if (differs(want.threads, had.threads) || differs(want.gpu_layers, had.gpu_layers)) return false;
  if (differs(spec.workload.sessions, load.sessions) || differs(spec.workload.context, load.context)) return false;
  if (!instance.plan.chosen) return true;  // still being placed
  const Candidate& chosen = *instance.plan.chosen;
  if (spec.contract.min_context && chosen.settings.context_per_session.value_or(0) < *spec.contract.min_context) return false;
  if (!spec.contract.device_kind.empty() && topology_) {
    for (const std::string& id : chosen.devices) {
      const Device* device = topology_->FindDevice(id);
      if (device != nullptr && spec.contract.device_kind != Word(device->kind)) return false;
    }
  }
  return true;
}

absl::StatusOr<Instance*> CoreImpl::EnsureInstance(const LoadSpec& spec, bool replace_different) {
  Instance* same_model = nullptr;
  Instance* serving = nullptr;
  for (auto& [id, instance] : instances_) {
    if (instance->info.model != spec.model || instance->stopping) continue;
    same_model = instance.get();
    if (!Serves(*instance, spec)) continue;
    if (serving == nullptr || instance->info.state == InstanceState::kReady) serving = instance.get();
  }
  if (serving != nullptr) {
    if (serving->info.state == InstanceState::kFailed) {
      if (serving->blocked_until > Now()) {
        return RetryableError(absl::StatusCode::kUnavailable, Reason::kCrashLoop,
                              spec.model + " failed " + std::to_string(serving->failures) + " times in a row: " +
                                  serving->info.reason,
                              "`rumbo logs` has the details; try again later.",
                              std::chrono::ceil<milliseconds>(serving->blocked_until - Now()));
      }
      Restart(*serving);
    }
    return serving;
  }
  if (spec.overrides.engine != "fake") {
    const auto model = FindModel(spec.model);
    if (!model.ok()) return model.status();
  }
  const std::string id = "i" + std::to_string(next_instance_++);
  auto created = std::make_unique<Instance>();
  Instance& instance = *created;
  instance.info.id = id;
  instance.info.model = spec.model;
  instance.spec = spec;
  const auto model = models_.find(spec.model);
  instance.info.pinned = model != models_.end() && model->second.pinned;
  instance.keep_alive = spec.keep_alive_s ? seconds(*spec.keep_alive_s) : options_.keep_alive;
  instance.last_used = Now();
  instance.load_started = Now();
  if (replace_different && same_model != nullptr) instance.replaces = same_model->info.id;
  instances_[id] = std::move(created);
  SetState(instance, InstanceState::kStarting, "planning");
  WhenTopology([this, id](absl::Status status) {  // never inside this call: the caller is not done with the instance
    Instance* waiting = Find(id);
    if (waiting == nullptr) return;
    if (!status.ok()) {
      FailLoad(*waiting, status);
    } else {
      Place(id);
    }
  });
  return &instance;
}

// Plans, makes room, reserves, launches; called again when room was made.
void CoreImpl::Place(const std::string& instance_id) {
  Instance* found = Find(instance_id);
  if (found == nullptr || found->stopping) return;
  Instance& instance = *found;
  if (Instance* old = Find(instance.replaces); old != nullptr && !old->stopping) {
    instance.waits_for.insert(old->info.id);
    StopInstance(*old, "replaced by a load with other settings",
                 Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped, "the model is being loaded anew"), options_.drain);
  }
  if (!instance.waits_for.empty()) return;  // Remove() comes back here
  if (++instance.placements > kMaxPlacements) {
    return FailLoad(instance, Error(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit,
                                    "memory kept changing while " + instance.info.model + " was placed", "Try again."));
  }
  RefreshMemory();
  std::vector<PlanVariant> variants;
  const auto model = models_.find(instance.spec.model);
  if (model != models_.end()) {
    for (const StoredVariant& v : model->second.variants) variants.push_back({v.id, v.descriptor, v.sha256});
  }
  PlanRequest request = MakePlanRequest(instance.spec.model, std::move(variants), instance.spec.workload,
                                        instance.spec.contract, instance.spec.overrides);
  request.evictable = Evictable(instance_id);
  absl::StatusOr<Plan> plan = rumbo::MakePlan(request, *topology_, *parts_.catalog, *parts_.calibration);
  if (!plan.ok()) return FailLoad(instance, plan.status());
  if (!plan->chosen) {
    instance.plan = std::move(*plan);
    return FailLoad(instance, RefusalStatus(instance.plan));
  }
  instance.plan = std::move(*plan);
  for (const std::string& victim : instance.plan.evictions) {
    Instance* other = Find(victim);
    if (other == nullptr) continue;
    instance.waits_for.insert(victim);
    StopInstance(*other, "evicted to make room for " + instance.info.model, absl::OkStatus(), milliseconds(0));
  }
  if (!instance.waits_for.empty()) {
    SetState(instance, InstanceState::kStarting, "waiting for room");
    return;
  }
  const Candidate& chosen = *instance.plan.chosen;
  absl::Status reserved = ledger_.Reserve(instance_id, ReservationOf(chosen), instance.plan.forced);
  if (!reserved.ok()) return FailLoad(instance, reserved);
  Launch(instance);
}

void CoreImpl::Launch(Instance& instance) {
  const Candidate& chosen = *instance.plan.chosen;
  instance.info.variant = chosen.variant;
  instance.info.engine = chosen.engine;
  instance.info.engine_version = chosen.engine_version;
  instance.info.backend = chosen.backend;
  instance.info.devices = chosen.devices;
  instance.info.memory = chosen.memory;
  instance.info.sessions = chosen.settings.sessions.value_or(1);
  instance.info.context_per_session = chosen.settings.context_per_session.value_or(0);

  LaunchSpec launch;
  launch.instance_id = instance.info.id;
  launch.engine = chosen.engine;
  launch.engine_build = chosen.engine_build;
  launch.backend = chosen.backend;
  launch.settings = chosen.settings;
  for (const std::string& id : chosen.devices) {
    const Device* device = topology_->FindDevice(id);
    if (device == nullptr) continue;
    for (const BackendSupport& backend : device->backends) {
      if (backend.name == chosen.backend && !backend.selector.empty()) launch.device_selectors.push_back(backend.selector);
    }
  }
  const auto model = models_.find(instance.spec.model);
  if (model != models_.end()) {
    for (const StoredVariant& variant : model->second.variants) {
      if (variant.id != chosen.variant) continue;
      launch.files = variant.files;
      launch.model_sha256 = variant.sha256;
    }
  }
  const std::string id = instance.info.id;
  const uint64_t number = ++instance.launch;
  instance.suspect = false;
  instance.kill_reason = absl::OkStatus();
  SetState(instance, InstanceState::kLoading, "loading with " + chosen.engine + " on " + chosen.backend);
  LaunchCallbacks callbacks;
  callbacks.on_started = [this, id, number](int64_t pid) {
    Post([this, id, number, pid] {
      Instance* loading = Find(id);
      if (loading == nullptr || loading->launch != number) return;
      loading->info.pid = pid;
      Notify(*loading);
    });
  };
  callbacks.on_progress = [this, id, number](double fraction, const std::string& step) {
    Post([this, id, number, fraction, step] {
      Instance* loading = Find(id);
      if (loading == nullptr || loading->launch != number) return;
      loading->info.progress = fraction;
      StepProgress progress;
      progress.step = step.empty() ? "load" : step;
      progress.fraction = fraction;
      for (const auto& watcher : loading->progress_watchers) watcher(progress);
      Notify(*loading);
    });
  };
  callbacks.on_ready = [this, id, number](std::shared_ptr<Engine> engine, EngineInfo info) {
    Post([this, id, number, engine = std::move(engine), info = std::move(info)]() mutable {
      OnReady(id, number, std::move(engine), std::move(info));
    });
  };
  callbacks.on_exit = [this, id, number](absl::Status status) {
    Post([this, id, number, status] { OnExit(id, number, status); });
  };
  instance.process = parts_.launcher->Launch(launch, std::move(callbacks));
}

void CoreImpl::OnReady(const std::string& id, uint64_t launch, std::shared_ptr<Engine> engine, EngineInfo info) {
  Instance* found = Find(id);
  if (found == nullptr || found->launch != launch || found->stopping) return;
  Instance& instance = *found;
  instance.engine = std::move(engine);
  instance.placements = 0;
  instance.engine_info = std::move(info);
  instance.info.engine_version = instance.engine_info.version;
  instance.info.capabilities = instance.engine_info.capabilities;
  instance.info.progress.reset();
  instance.measured.load_s = std::chrono::duration<double>(Now() - instance.load_started).count();
  instance.measured.memory = MapPools(instance, instance.engine_info.memory);
  Reservation really;
  for (const MemoryItem& item : instance.measured.memory) {
    really.pools[item.pool] = SaturatingAdd(really.pools[item.pool], item.bytes);
  }
  ledger_.Confirm(id, really);
  SetState(instance, InstanceState::kReady, "ready");
  auto waiters = std::move(instance.ready_waiters);
  instance.ready_waiters.clear();
  instance.progress_watchers.clear();
  for (auto& waiter : waiters) waiter(absl::OkStatus());
  Dispatch(instance);
  if (instance.idle()) ArmKeepAlive(instance);
}

void CoreImpl::OnExit(const std::string& id, uint64_t launch, absl::Status status) {
  Instance* found = Find(id);
  if (found == nullptr || found->launch != launch) return;
  Instance& instance = *found;
  instance.process.reset();
  instance.engine.reset();
  instance.info.pid.reset();
  instance.info.progress.reset();
  ledger_.Release(id);
  if (instance.stopping) {
    SetState(instance, InstanceState::kStopped, instance.info.reason);
    FailWaiting(instance, instance.stop_status.ok()
                              ? Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped, "the model was unloaded",
                                      "Send the request again to load it anew.")
                              : instance.stop_status);
    Remove(id);
    return;
  }
  if (status.ok()) status = instance.kill_reason;
  if (status.ok()) status = Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed, "the engine ended by itself");
  const bool was_ready = instance.info.state == InstanceState::kReady;
  ++instance.failures;
  instance.suspect = false;
  SetState(instance, InstanceState::kFailed, MessageOf(status));
  if (!was_ready) return FailLoad(instance, status);
  // Its running requests end through their own streams; what waits, or is replayed, wants a fresh process.
  if (!instance.queue.empty() || instance.info.pinned || !instance.ready_waiters.empty()) Restart(instance);
}

// Starts a failed instance again, later where it failed before.
void CoreImpl::Restart(Instance& instance) {
  RUMBO_CHECK(instance.info.state == InstanceState::kFailed);
  if (instance.failures >= kCrashLoop) {
    instance.blocked_until = Now() + kCrashLoopRest;
    instance.failures = 0;
    const absl::Status loop = RetryableError(
        absl::StatusCode::kUnavailable, Reason::kCrashLoop,
        instance.info.model + " failed " + std::to_string(kCrashLoop) + " times in a row: " + instance.info.reason,
        "`rumbo logs` has the details; try again later.", kCrashLoopRest);
    FailWaiting(instance, loop);
    auto waiters = std::move(instance.ready_waiters);
    instance.ready_waiters.clear();
    for (auto& waiter : waiters) waiter(loop);
    return;
  }
  ++instance.info.restarts;
  instance.placements = 0;
  instance.load_started = Now();
  SetState(instance, InstanceState::kStarting, "starting again after: " + instance.info.reason);
  PostAfter(BackOff(instance.failures), [this, id = instance.info.id, launch = instance.launch] {
    Instance* again = Find(id);
    if (again != nullptr && again->launch == launch && again->info.state == InstanceState::kStarting) Place(id);
  });
}

// A load that failed: everyone who waits for it hears why, and the instance goes, unless something keeps it.
void CoreImpl::FailLoad(Instance& instance, const absl::Status& status) {
  const std::string id = instance.info.id;
  ledger_.Release(id);
  SetState(instance, InstanceState::kFailed, MessageOf(status));
  const absl::Status heard = Annotate(status, instance.info.model);
  auto waiters = std::move(instance.ready_waiters);
  instance.ready_waiters.clear();
  instance.progress_watchers.clear();
  // A request may be counted on a restart that fails: those in flight hear through their own streams.
  FailWaiting(instance, heard);
  for (auto& waiter : waiters) waiter(heard);
  if (instance.running.empty()) {
    Post([this, id] {
      Instance* failed = Find(id);
      if (failed != nullptr && failed->info.state == InstanceState::kFailed && failed->idle()) Remove(id);
    });
  }
}

void CoreImpl::StopInstance(Instance& instance, std::string why, absl::Status queued_hear, milliseconds grace) {
  if (instance.stopping) return;
  instance.stopping = true;
  instance.stop_status = std::move(queued_hear);
  const std::string id = instance.info.id;
  SetState(instance, InstanceState::kDraining, std::move(why));
  auto waiters = std::move(instance.ready_waiters);
  instance.ready_waiters.clear();
  for (auto& waiter : waiters) {
    waiter(Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped, instance.info.model + ": " + instance.info.reason));
  }
  if (!instance.process) {
    FailWaiting(instance, Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped, instance.info.model + ": " + instance.info.reason));
    Post([this, id] { Remove(id); });
    return;
  }
  if (instance.running.empty() || grace.count() <= 0) {
    // An idle worker ends by itself within milliseconds; five seconds are for one that hangs.
    instance.process->Stop(instance.running.empty() ? milliseconds(5000) : milliseconds(0));
    return;
  }
  PostAfter(grace, [this, id, launch = instance.launch] {
    Instance* draining = Find(id);
    if (draining != nullptr && draining->launch == launch && draining->process) draining->process->Stop(milliseconds(0));
  });
}

void CoreImpl::EndForFault(Instance& instance, absl::Status why) {
  if (!instance.process || instance.stopping) return;
  spdlog::warn("{}: ended: {}", instance.info.id, MessageOf(why));
  instance.kill_reason = std::move(why);
  instance.process->Stop(milliseconds(0));
}

void CoreImpl::Remove(const std::string& id) {
  const auto it = instances_.find(id);
  if (it == instances_.end()) return;
  ledger_.Release(id);
  it->second->info.state = InstanceState::kStopped;
  Notify(*it->second);
  instances_.erase(it);
  std::vector<std::string> unblocked;
  for (auto& [other_id, other] : instances_) {
    if (other->waits_for.erase(id) > 0 && other->waits_for.empty()) unblocked.push_back(other_id);
  }
  for (const std::string& other : unblocked) {
    Post([this, other] { Place(other); });
  }
}

void CoreImpl::SetState(Instance& instance, InstanceState state, std::string reason) {
  if (instance.info.state != state || instance.info.since_unix_s == 0) instance.info.since_unix_s = parts_.wall->UnixSeconds();
  instance.info.state = state;
  instance.info.reason = std::move(reason);
  spdlog::info("{} ({}): {}: {}", instance.info.id, instance.info.model, Word(state), instance.info.reason);
  Notify(instance);
}

void CoreImpl::Notify(const Instance& instance) {
  const auto watchers = watchers_;  // a watcher may go while it is called
  for (const auto& [number, watcher] : watchers) {
    if (watchers_.count(number) > 0) watcher(instance.info, false);
  }
}

void CoreImpl::ArmKeepAlive(Instance& instance) {
  if (instance.keep_alive_armed || instance.keep_alive.count() < 0 || instance.info.pinned) return;
  instance.keep_alive_armed = true;
  const TimePoint end = instance.last_used + instance.keep_alive;
  PostAfter(std::max(std::chrono::ceil<milliseconds>(end - Now()), milliseconds(0)), [this, id = instance.info.id] {
    Instance* kept = Find(id);
    if (kept == nullptr) return;
    kept->keep_alive_armed = false;
    if (!kept->idle() || kept->stopping || kept->info.pinned || kept->keep_alive.count() < 0) return;
    if (kept->last_used + kept->keep_alive > Now()) return ArmKeepAlive(*kept);
    if (kept->info.state == InstanceState::kFailed) return Remove(id);
    if (kept->info.state != InstanceState::kReady) return;
    StopInstance(*kept, "idle for " + std::to_string(kept->keep_alive.count()) + " s", absl::OkStatus(), milliseconds(0));
  });
}

// Asks an engine whose requests are silent whether it lives; one that does not answer is ended.
void CoreImpl::ArmHangWatch(Instance& instance) {
  if (instance.hang_watch_armed) return;
  instance.hang_watch_armed = true;
  PostAfter(kHangCheck, [this, id = instance.info.id, launch = instance.launch] {
    Instance* watched = Find(id);
    if (watched == nullptr) return;
    watched->hang_watch_armed = false;
    if (watched->running.empty() || !watched->engine) return;
    ArmHangWatch(*watched);
    const int64_t silent_since = std::chrono::steady_clock::duration(kHangSilence).count();
    const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    const bool silent = std::any_of(watched->running.begin(), watched->running.end(), [&](const auto& entry) {
      return now - entry.second->last_event() > silent_since;
    });
    if (!silent) return;
    watched->engine->GetStats(std::chrono::steady_clock::now() + kHangCheck, [this, id, launch](absl::StatusOr<EngineStats> stats) {
      if (stats.ok()) return;
      Post([this, id, launch] {
        Instance* hung = Find(id);
        if (hung == nullptr || hung->launch != launch) return;
        EndForFault(*hung, Error(absl::StatusCode::kUnavailable, Reason::kEngineHung, "the engine stopped answering"));
      });
    });
  });
}

// Idle instances, least worth keeping first: chance of reuse times the cost to reload, per byte.
std::vector<EvictionCandidate> CoreImpl::Evictable(const std::string& besides) const {
  std::vector<std::pair<double, EvictionCandidate>> ranked;
  for (const auto& [id, instance] : instances_) {
    if (id == besides || instance->info.pinned || instance->stopping || !instance->idle()) continue;
    if (instance->info.state != InstanceState::kReady) continue;
    const Reservation* reserved = ledger_.Find(id);
    if (reserved == nullptr) continue;
    Bytes bytes = 1;
    for (const auto& [pool, amount] : reserved->pools) bytes = SaturatingAdd(bytes, amount);
    const double idle_s = std::chrono::duration<double>(Now() - instance->last_used).count();
    const double value = std::exp(-idle_s / 600.0) * instance->measured.load_s.value_or(1.0) / static_cast<double>(bytes);
    ranked.push_back({value, {id, reserved->pools, reserved->limits}});
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.instance_id < b.second.instance_id;
  });
  std::vector<EvictionCandidate> out;
  for (auto& [value, candidate] : ranked) out.push_back(std::move(candidate));
  return out;
}

Reservation CoreImpl::ReservationOf(const Candidate& candidate) const {
  Reservation reservation;
  for (const MemoryItem& item : candidate.memory) {
    reservation.pools[item.pool] = SaturatingAdd(reservation.pools[item.pool], item.bytes);
  }
  reservation.limits = candidate.limit_bytes;
  return reservation;
}

// A worker names pools by its own words: "host" or a device selector.
std::vector<MemoryItem> CoreImpl::MapPools(const Instance& instance, std::vector<MemoryItem> items) const {
  std::string host = "pool-system";
  for (const MemoryPool& pool : topology_->pools) {
    if (pool.kind == PoolKind::kSystem) host = pool.id;
  }
  for (MemoryItem& item : items) {
    std::string pool = host;
    for (const std::string& id : instance.info.devices) {
      const Device* device = topology_->FindDevice(id);
      if (device == nullptr) continue;
      for (const BackendSupport& backend : device->backends) {
        if (backend.name == instance.info.backend && backend.selector == item.pool && !backend.pools.empty()) pool = backend.pools.front();
      }
    }
    item.pool = pool;
    if (item.source.empty()) item.source = "measured here";
  }
  return items;
}

}  // namespace rumbo
