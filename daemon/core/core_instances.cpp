// Instances: placing, loading, evicting, ending.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "daemon/core/core_impl.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kCrashLoop = 5;  // failures in a row after which an instance rests
constexpr seconds kCrashLoopRest{30};
constexpr seconds kPinnedRetry{30};   // a pinned model that could not be loaded is tried again so often
constexpr seconds kForgetFailed{60};  // a failed instance that nobody asks for is forgotten, with its count
constexpr seconds kStable{60};        // a process that ran so long starts with a clean record
constexpr seconds kStopGrace{
    5};  // an idle worker ends by itself within milliseconds; this is for one that hangs
constexpr seconds kHangCheck{5};
constexpr seconds kHangSilence{20};  // without an event for so long, the engine is asked whether it lives
constexpr seconds kNoProgress{
    180};  // an engine that answers, with its counters still for so long, does not work

milliseconds BackOff(int failures) {
  if (failures <= 1) return milliseconds(0);
  return std::min(milliseconds(250 << std::min(failures - 2, 10)), milliseconds(15000));
}

// Asks for nothing in particular: what a pinned model is loaded with.
bool Plain(const LoadSpec& spec) {
  const PlanOverrides& o = spec.overrides;
  const Contract& c = spec.contract;
  return o.engine.empty() && o.device.empty() && o.kv_type.empty() && o.variant.empty() && !o.threads &&
         !o.gpu_layers && !o.force && c.device_kind.empty() && !c.min_context && !c.min_tokens_per_s &&
         !spec.workload.sessions && !spec.workload.context;
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

// Loaded for vectors: by its model's nature, or because somebody asked for it.
static bool MakesVectors(const Instance& instance) {
  return !instance.spec.overrides.pooling.empty() ||
         (instance.plan.chosen && instance.plan.chosen->settings.extra.contains("pooling"));
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
      std::find(instance.info.devices.begin(), instance.info.devices.end(), want.device) ==
          instance.info.devices.end()) {
    return false;
  }
  if (!want.kv_type.empty() && want.kv_type != had.kv_type) return false;
  if (!want.variant.empty() && want.variant != instance.info.variant) return false;
  if (!want.build.empty() && want.build != had.build &&
      (!instance.plan.chosen || want.build != instance.plan.chosen->engine_build)) {
    return false;
  }
  if (want.knobs && want.knobs != had.knobs) return false;
  // Whatever is loaded for vectors pools as each request asks, and makes no answers.
  if (!want.pooling.empty() && !MakesVectors(instance)) return false;
  if (spec.use == InstanceUse::kAnswers && !had.pooling.empty()) return false;
  if (!want.draft_model.empty() && want.draft_model != had.draft_model) return false;
  if (differs(want.threads, had.threads) || differs(want.gpu_layers, had.gpu_layers) ||
      differs(want.draft_tokens, had.draft_tokens)) {
    return false;
  }
  if (differs(spec.workload.sessions, load.sessions) || differs(spec.workload.context, load.context))
    return false;
  if (!instance.plan.chosen) return true;  // still being placed
  const Candidate& chosen = *instance.plan.chosen;
  if (spec.contract.min_context &&
      chosen.settings.context_per_session.value_or(0) < *spec.contract.min_context)
    return false;
  if (!spec.contract.device_kind.empty() && topology_) {
    for (const std::string& id : chosen.devices) {
      const Device* device = topology_->FindDevice(id);
      if (device != nullptr && spec.contract.device_kind != Word(device->kind)) return false;
    }
  }
  return true;
}

// Of two that serve: what makes vectors where those are wanted, then what is ready.
static bool Better(const Instance& a, const Instance& b, const LoadSpec& spec) {
  if (spec.use == InstanceUse::kVectors && MakesVectors(a) != MakesVectors(b)) return MakesVectors(a);
  return a.info.state == InstanceState::kReady;
}

// A pin keeps one instance of its model: the first that is ready, or any while none is.
bool CoreImpl::KeptByPin(const Instance& instance) const {
  if (!instance.info.pinned) return false;
  const auto key = [](const Instance& i) {
    return std::pair(i.info.state != InstanceState::kReady, i.number);
  };
  return std::none_of(instances_.begin(), instances_.end(), [&](const auto& entry) {
    const Instance& other = *entry.second;
    return other.info.model == instance.info.model && !other.stopping &&
           other.info.state == InstanceState::kReady && key(other) < key(instance);
  });
}

absl::StatusOr<Instance*> CoreImpl::EnsureInstance(const LoadSpec& spec, bool replace_different) {
  std::set<std::string> different;
  Instance* serving = nullptr;
  for (auto& [id, instance] : instances_) {
    if (instance->info.model != spec.model || instance->stopping) continue;
    // One whose own wishes could not be met is no home for others.
    const bool refused =
        instance->info.state == InstanceState::kFailed && instance->failures == 0 && !Plain(instance->spec);
    if (refused || !Serves(*instance, spec)) {
      different.insert(id);
      continue;
    }
    if (serving == nullptr || Better(*instance, *serving, spec)) serving = instance.get();
  }
  if (serving != nullptr) {
    if (serving->info.state == InstanceState::kFailed) {
      if (serving->blocked_until > Now()) return CrashLoop(*serving);
      Restart(*serving);
    }
    return serving;
  }
  if (spec.overrides.engine != "fake") {
    const auto model = FindModel(spec.model);
    if (!model.ok()) return model.status();
  }
  auto created = std::make_unique<Instance>();
  Instance& instance = *created;
  instance.number = next_instance_++;
  const std::string id = "i" + std::to_string(instance.number);
  instance.info.id = id;
  instance.info.model = spec.model;
  instance.spec = spec;
  const auto model = models_.find(spec.model);
  instance.info.pinned = model != models_.end() && model->second.pinned;
  instance.keep_alive = spec.keep_alive_s ? seconds(*spec.keep_alive_s) : options_.keep_alive;
  instance.last_used = Now();
  instance.load_started = Now();
  if (replace_different) instance.replaces = std::move(different);
  instances_[id] = std::move(created);
  SetState(instance, InstanceState::kStarting, "planning");
  WhenTopology(
      [this, id](absl::Status status) {  // never inside this call: the caller is not done with the instance
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

LaunchSpec CoreImpl::LaunchSpecOf(const Instance& instance) const {
  const Candidate& chosen = *instance.plan.chosen;
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
      if (backend.name == chosen.backend && !backend.selector.empty())
        launch.device_selectors.push_back(backend.selector);
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
  // Prompts on disk are of one model; whether there is a quota is the plan's choice.
  if (launch.settings.extra.contains("disk_cache_bytes") && !launch.model_sha256.empty())
    launch.cache_dir = options_.cache_dir + "/prompts/" + launch.model_sha256;
  AddCompanions(launch);
  return launch;
}

// Files of other models that this one may use: adapters, and the one that guesses ahead.
void CoreImpl::AddCompanions(LaunchSpec& launch) const {
  const auto guesses = launch.settings.extra.find("draft_model");
  for (const auto& [name, model] : models_) {
    if (model.variants.empty()) continue;
    const StoredVariant& variant = model.variants.front();
    const auto& can = variant.descriptor.capabilities;
    if (std::find(can.begin(), can.end(), "adapter") != can.end() && !variant.files.empty())
      launch.adapters.push_back({name, variant.files.front(), variant.sha256});
    if (guesses != launch.settings.extra.end() && name == guesses->second) launch.draft_files = variant.files;
  }
  launch.settings.extra.erase("draft_model");
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

  const std::string id = instance.info.id;
  const uint64_t number = ++instance.launch;
  instance.launched = instance.running_since = Now();
  instance.suspect = false;
  instance.kill_reason = absl::OkStatus();
  SetState(instance, InstanceState::kLoading, "loading with " + chosen.engine + " on " + chosen.backend);
  LaunchCallbacks callbacks;
  callbacks.on_started = [this, door = door(), id, number](int64_t pid) {
    door.Post([this, id, number, pid] {
      Instance* loading = Find(id);
      if (loading == nullptr || loading->launch != number) return;
      loading->info.pid = pid;
      Notify(*loading);
    });
  };
  callbacks.on_progress = [this, door = door(), id, number](double fraction, const std::string& step) {
    door.Post([this, id, number, fraction, step] {
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
  callbacks.on_ready = [this, door = door(), id, number](std::shared_ptr<Engine> engine, EngineInfo info) {
    door.Post([this, id, number, engine = std::move(engine), info = std::move(info)]() mutable {
      OnReady(id, number, std::move(engine), std::move(info));
    });
  };
  callbacks.on_exit = [this, door = door(), id, number](absl::Status status) {
    door.Post([this, id, number, status] { OnExit(id, number, status); });
  };
  instance.process = parts_.launcher->Launch(LaunchSpecOf(instance), std::move(callbacks));
}

void CoreImpl::OnReady(const std::string& id, uint64_t launch, std::shared_ptr<Engine> engine,
                       EngineInfo info) {
  Instance* found = Find(id);
  if (found == nullptr || found->launch != launch || found->stopping) return;
  Instance& instance = *found;
  instance.engine = std::move(engine);
  instance.proven = true;
  instance.ready_since = instance.last_progress = Now();
  instance.last_stats = {};
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
  LearnLoad(instance);
  SetState(instance, InstanceState::kReady, "ready");
  instance.last_used = Now();
  instance.progress_watchers.clear();
  PublishPromises();
  for (auto& waiter : std::exchange(instance.ready_waiters, {})) waiter(absl::OkStatus());
  LeasesReady(instance);
  Dispatch(instance);
  Rested(instance);
}

void CoreImpl::OnExit(const std::string& id, uint64_t launch, absl::Status status) {
  Instance* found = Find(id);
  if (found == nullptr || found->launch != launch) return;
  Instance& instance = *found;
  instance.process.reset();
  instance.engine.reset();
  instance.info.pid.reset();
  instance.info.progress.reset();
  NoteRelease(id);
  ledger_.Release(id);
  PublishPromises();
  RoomMayBeFree();
  if (instance.stopping) return Remove(id);
  if (status.ok()) status = instance.kill_reason;
  if (status.ok())
    status = Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed, "the engine ended by itself");
  const bool was_ready = instance.info.state == InstanceState::kReady;
  if (was_ready && Now() - instance.ready_since >= kStable) instance.failures = 0;
  if (++instance.failures >= kCrashLoop) instance.blocked_until = Now() + kCrashLoopRest;
  instance.suspect = false;
  NoteDeviceFault(instance, status);
  SetState(instance, InstanceState::kFailed, MessageOf(status));
  LeasesLost(instance, instance.info.reason, true);
  // Running requests end through their own streams. What waits, or is replayed, wants a fresh process, where
  // one is known to be able to run; a first load that fails is told at once.
  if (!instance.proven) {
    FailLoad(instance, status);
  } else if (!instance.queue.empty() || !instance.ready_waiters.empty() || (Kept(instance) && !draining_)) {
    Restart(instance);
  } else {
    KeepFailed(instance);
  }
}

absl::Status CoreImpl::CrashLoop(const Instance& instance) const {
  return RetryableError(absl::StatusCode::kUnavailable, Reason::kCrashLoop,
                        instance.info.model + " failed " + std::to_string(instance.failures) +
                            " times in a row: " + instance.info.reason,
                        "`rumbo logs` has the details; try again later.",
                        std::chrono::ceil<milliseconds>(instance.blocked_until - Now()));
}

// Starts a failed instance again, later where it failed before.
void CoreImpl::Restart(Instance& instance) {
  RUMBO_CHECK(instance.info.state == InstanceState::kFailed);
  if (instance.blocked_until > Now()) {
    const absl::Status loop = CrashLoop(instance);
    for (auto& waiter : std::exchange(instance.ready_waiters, {})) waiter(loop);
    FailWaiting(instance, loop);
    KeepFailed(instance);
    return;
  }
  ++instance.info.restarts;
  instance.placements = 0;
  instance.load_started = Now();
  const milliseconds delay = instance.failures >= kCrashLoop ? milliseconds(0) : BackOff(instance.failures);
  SetState(instance, InstanceState::kStarting, "starting again after: " + instance.info.reason);
  PostAfter(delay, [this, id = instance.info.id, launch = instance.launch] {
    Instance* again = Find(id);
    if (again != nullptr && again->launch == launch && again->info.state == InstanceState::kStarting)
      Place(id);
  });
}

// A load that failed: everyone who waits for it hears why.
void CoreImpl::FailLoad(Instance& instance, const absl::Status& status) {
  ledger_.Release(instance.info.id);
  LeaveRoomQueue(instance);
  if (instance.info.state != InstanceState::kFailed)
    SetState(instance, InstanceState::kFailed, MessageOf(status));
  const absl::Status heard = Annotate(status, instance.info.model);
  instance.progress_watchers.clear();
  for (auto& waiter : std::exchange(instance.ready_waiters, {})) waiter(heard);
  FailWaiting(instance, heard);
  KeepFailed(instance);
}

// What failed stays for a while, so that its failures are counted; what could not even be tried goes at once;
// what is pinned is tried again.
void CoreImpl::KeepFailed(Instance& instance, milliseconds at_least) {
  milliseconds rest = instance.failures > 0 ? milliseconds(kForgetFailed) : at_least;
  const bool pinned =
      (instance.info.pinned && (instance.proven || Plain(instance.spec))) || LeaseLevel(instance) > 0;
  if (pinned)
    rest =
        std::max<milliseconds>(kPinnedRetry, std::chrono::ceil<milliseconds>(instance.blocked_until - Now()));
  const uint64_t since = ++instance.failed_since;
  PostAfter(rest, [this, id = instance.info.id, since, pinned] {
    Instance* failed = Find(id);
    if (failed == nullptr || failed->info.state != InstanceState::kFailed || failed->failed_since != since)
      return;
    if (pinned && Kept(*failed) && !draining_) {
      Restart(*failed);
    } else if (failed->idle()) {
      Remove(id);
    } else {
      KeepFailed(*failed, seconds(1));  // somebody still holds on to it
    }
  });
}

void CoreImpl::StopInstance(Instance& instance, std::string why, absl::Status queued_hear,
                            milliseconds grace) {
  if (instance.stopping) return;
  instance.stopping = true;
  LeaveRoomQueue(instance);
  const std::string id = instance.info.id;
  SetState(instance, InstanceState::kDraining, std::move(why));
  LeasesLost(instance, instance.info.reason, true);
  instance.progress_watchers.clear();
  for (auto& waiter : std::exchange(instance.ready_waiters, {})) {
    waiter(Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped,
                 instance.info.model + ": " + instance.info.reason));
  }
  if (queued_hear.ok()) {
    // Later: several may be stopped in a row, and none of them is a new home.
    Post([this, id] {
      if (Instance* leaving = Find(id)) Rehouse(*leaving);
    });
  } else {
    FailWaiting(instance, queued_hear);
  }
  if (!instance.process) {
    Post([this, id] { Remove(id); });
    return;
  }
  if (instance.running.empty()) return instance.process->Stop(kStopGrace);
  if (grace.count() <= 0) return KillProcess(instance);
  PostAfter(grace, [this, id, launch = instance.launch] {
    Instance* draining = Find(id);
    if (draining != nullptr && draining->launch == launch) KillProcess(*draining);
  });
}

// Ends a stopping instance at once; requests that still run hear that it was not their engine's fault.
void CoreImpl::KillProcess(Instance& instance) {
  if (!instance.process) return;
  const absl::Status why = Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped,
                                 instance.info.model + " was stopped: " + instance.info.reason,
                                 "Send the request again to load it anew.");
  for (const auto& [id, request] : instance.running) request->SetCauseOfDeath(why, false);
  instance.process->Stop(milliseconds(0));
}

void CoreImpl::EndForFault(Instance& instance, absl::Status why) {
  if (!instance.process || instance.stopping || !instance.kill_reason.ok()) return;
  spdlog::warn("{}: ended: {}", instance.info.id, MessageOf(why));
  instance.suspect = true;
  for (const auto& [id, request] : instance.running) request->SetCauseOfDeath(why, true);
  instance.kill_reason = std::move(why);
  instance.process->Stop(milliseconds(0));
}

void CoreImpl::Remove(const std::string& id) {
  const auto it = instances_.find(id);
  if (it == instances_.end()) return;
  ledger_.Release(id);
  // A replay that came after the stop.
  FailWaiting(*it->second, Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped,
                                 "the model was unloaded", "Send the request again to load it anew."));
  it->second->stopping = true;
  LeasesLost(*it->second, it->second->info.reason, true);
  it->second->info.pid.reset();
  it->second->info.state = InstanceState::kStopped;
  Notify(*it->second);
  instances_.erase(it);
  std::vector<std::string> unblocked;
  for (auto& [other_id, other] : instances_) {
    if (other->waits_for.erase(id) > 0 && other->waits_for.empty()) unblocked.push_back(other_id);
  }
  // At once, before anybody else asks for that room.
  for (const std::string& other : unblocked) Place(other);
  RoomMayBeFree();
  const auto waiters = removal_waiters_.extract(id);
  if (waiters.empty()) return;
  for (const auto& waiter : waiters.mapped()) waiter();
}

void CoreImpl::SetState(Instance& instance, InstanceState state, std::string reason) {
  if (instance.info.state != state || instance.info.since_unix_s == 0)
    instance.info.since_unix_s = parts_.wall->UnixSeconds();
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

// Nothing runs here for now: its time of idleness begins, and others may have its room.
void CoreImpl::Rested(Instance& instance) {
  if (instance.idle()) ArmKeepAlive(instance);
  if (instance.at_rest()) RoomMayBeFree();
}

void CoreImpl::ArmKeepAlive(Instance& instance) {
  if (instance.keep_alive.count() < 0 || Kept(instance)) return;
  const TimePoint end = std::max(instance.last_used + instance.keep_alive, Now());
  if (instance.keep_alive_due <= end) return;  // looks again then
  instance.keep_alive_due = end;
  PostAfter(std::chrono::ceil<milliseconds>(end - Now()), [this, id = instance.info.id, end] {
    Instance* kept = Find(id);
    if (kept == nullptr || kept->keep_alive_due != end) return;
    kept->keep_alive_due = TimePoint::max();
    if (!kept->idle() || kept->stopping || Kept(*kept) || kept->keep_alive.count() < 0) return;
    if (kept->last_used + kept->keep_alive > Now()) return ArmKeepAlive(*kept);
    if (kept->info.state != InstanceState::kReady) return;
    StopInstance(*kept, "idle for " + std::to_string(kept->keep_alive.count()) + " s", absl::OkStatus(),
                 milliseconds(0));
  });
}

// Asks an engine whose requests are silent whether it lives. A stream that its client holds up is not silent.
void CoreImpl::ArmHangWatch(Instance& instance) {
  if (instance.hang_watch_armed) return;
  instance.hang_watch_armed = true;
  PostAfter(kHangCheck, [this, id = instance.info.id] {
    Instance* watched = Find(id);
    if (watched == nullptr) return;
    watched->hang_watch_armed = false;
    if (watched->running.empty() || !watched->engine) return;
    ArmHangWatch(*watched);
    const bool silent = std::all_of(watched->running.begin(), watched->running.end(), [&](const auto& entry) {
      return Now() - entry.second->last_event() > kHangSilence;
    });
    if (silent) {
      AskForLife(*watched);
    } else {
      watched->last_progress = Now();
    }
  });
}

void CoreImpl::AskForLife(Instance& instance) {
  if (instance.asked_for_life || !instance.engine || instance.stopping) return;
  instance.asked_for_life = true;
  instance.engine->GetStats(Now() + kHangCheck,
                            [this, door = door(), id = instance.info.id,
                             launch = instance.launch](absl::StatusOr<EngineStats> stats) {
                              door.Post([this, id, launch, stats = std::move(stats)] {
                                Instance* asked = Find(id);
                                if (asked == nullptr) return;
                                asked->asked_for_life = false;
                                if (asked->launch == launch && asked->engine) OnStats(*asked, stats);
                              });
                            });
}

void CoreImpl::OnStats(Instance& instance, const absl::StatusOr<EngineStats>& stats) {
  if (!stats.ok()) {
    return EndForFault(
        instance, Error(absl::StatusCode::kUnavailable, Reason::kEngineHung, "the engine stopped answering",
                        "Send the request again; the engine is started anew."));
  }
  const EngineStats& last = instance.last_stats;
  if (stats->prompt_tokens != last.prompt_tokens || stats->generated_tokens != last.generated_tokens ||
      instance.running.empty()) {
    instance.last_progress = Now();
  }
  instance.last_stats = *stats;
  if (Now() - instance.last_progress <= kNoProgress) return;
  EndForFault(instance, Error(absl::StatusCode::kUnavailable, Reason::kEngineHung,
                              "the engine made no progress for " + std::to_string(kNoProgress.count()) + " s",
                              "Send the request again; the engine is started anew."));
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
        if (backend.name == instance.info.backend && backend.selector == item.pool && !backend.pools.empty())
          pool = backend.pools.front();
      }
    }
    item.pool = pool;
    if (item.source.empty()) item.source = "measured here";
  }
  return items;
}

}  // namespace rumbo
