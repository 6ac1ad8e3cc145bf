// Leases: models that clients keep loaded, who yields to whom, and what a holder is told.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "daemon/core/core_impl.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kRestoreCheck{5};
constexpr seconds kComeBack{60};     // the holder of a lease from before a restart has so long to come back
constexpr seconds kRestoreIdle{10};  // an instance that others left so long ago gives way to a revoked lease
constexpr uint64_t kJudgeAfter = 3;  // answers before a speed is held against a contract

LoadSpec LoadOf(const LeaseSpec& lease) {
  LoadSpec spec;
  spec.model = lease.model;
  spec.workload = lease.workload;
  spec.contract = lease.contract;
  return spec;
}

// 3: interactive, 1: batch.
int LevelOf(Priority priority) { return 3 - static_cast<int>(priority); }

bool SameLease(const LeaseSpec& a, const LeaseSpec& b) {
  return a.model == b.model && a.client.uid == b.client.uid && a.client.app == b.client.app;
}

std::string Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

}  // namespace

const char* Word(LeaseEvent::Kind kind) {
  switch (kind) {
    case LeaseEvent::Kind::kGranted:
      return "granted";
    case LeaseEvent::Kind::kYieldRequested:
      return "yield_requested";
    case LeaseEvent::Kind::kRevoked:
      return "revoked";
    case LeaseEvent::Kind::kRestored:
      return "restored";
    case LeaseEvent::Kind::kContractBroken:
      return "contract_broken";
    case LeaseEvent::Kind::kContractKept:
      return "contract_kept";
  }
  return "unknown";
}

std::shared_ptr<void> CoreImpl::Lease(LeaseSpec spec, std::function<void(const LeaseEvent&)> on_event,
                                      std::function<void(absl::Status)> on_end) {
  auto lease = std::make_shared<HeldLease>();
  lease->spec = std::move(spec);
  lease->on_event = std::move(on_event);
  lease->on_end = std::move(on_end);
  Post([this, lease] { WhenModels([this, lease] { AddLease(lease); }); });
  return std::shared_ptr<void>(nullptr, [this, door = door(), lease](void*) {
    door.Post([this, lease] {
      lease->on_end = nullptr;  // also one that comes only now
      DropLease(lease->number);
    });
  });
}

void CoreImpl::AddLease(const std::shared_ptr<HeldLease>& lease) {
  if (!lease->on_end) return;  // let go already
  if (draining_) {
    return lease->on_end(
        Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down"));
  }
  lease->number = next_lease_++;
  leases_[lease->number] = lease;
  // The holder is back after a restart: its own lease takes the place of the one kept for it.
  std::vector<uint64_t> kept;
  for (const auto& [number, other] : leases_) {
    if (!other->on_event && SameLease(other->spec, lease->spec)) kept.push_back(number);
  }
  AttachLease(*lease);
  for (const uint64_t number : kept) DropLease(number);
  SaveLeases();
}

// Finds or loads an instance for the lease; its events tell what comes of it.
void CoreImpl::AttachLease(HeldLease& lease) {
  const absl::StatusOr<Instance*> ensured = EnsureInstance(LoadOf(lease.spec), false);
  const auto failed = [this, number = lease.number](const absl::Status& status) {
    const auto it = leases_.find(number);
    if (it == leases_.end()) return;
    HeldLease& late = *it->second;
    if (late.granted) {
      late.instance.clear();
      RestoreLeases();
      return;
    }
    const auto on_end = std::move(late.on_end);
    leases_.erase(it);
    SaveLeases();
    if (on_end) on_end(status);
  };
  if (!ensured.ok()) {
    Post([failed, status = ensured.status()] { failed(status); });
    return;
  }
  Instance& instance = **ensured;
  lease.instance = instance.info.id;
  if (instance.info.state == InstanceState::kReady) return LeasesReady(instance);
  instance.ready_waiters.push_back([this, id = lease.instance, failed](absl::Status status) {
    if (!status.ok()) return failed(status);
    if (Instance* ready = Find(id)) LeasesReady(*ready);
  });
}

void CoreImpl::DropLease(uint64_t number) {
  const auto it = leases_.find(number);
  if (it == leases_.end()) return;
  const std::string instance_id = it->second->instance;
  leases_.erase(it);
  SaveLeases();
  Instance* instance = Find(instance_id);
  if (instance == nullptr) return;
  instance->last_used = std::max(instance->last_used, Now());
  if (LeaseLevel(*instance) == 0) instance->yield_asked.reset();
  Rested(*instance);
  RoomMayBeFree();
}

// 0 without a lease, 3 with an interactive one.
int CoreImpl::LeaseLevel(const Instance& instance) const {
  int level = 0;
  for (const auto& [number, lease] : leases_) {
    if (lease->instance == instance.info.id) level = std::max(level, LevelOf(lease->spec.priority));
  }
  return level;
}

// How much somebody wants this instance who has it not yet.
int CoreImpl::WantedLevel(const Instance& instance) const {
  int level = std::max(LeaseLevel(instance), instance.info.pinned ? 3 : 0);
  if (!instance.ready_waiters.empty()) level = std::max(level, LevelOf(Priority::kNormal));
  for (const auto& [id, request] : instance.waiting) {
    level = std::max(level, LevelOf(request->request().generate.priority));
  }
  return level;
}

void CoreImpl::Tell(HeldLease& lease, LeaseEvent::Kind kind, const std::string& reason) {
  spdlog::info("lease of {} ({}): {}: {}", lease.spec.model, lease.instance, Word(kind), reason);
  if (lease.on_event) lease.on_event({kind, lease.instance, reason});
}

// `instance` serves: to those who hold it, and to those who lost it and want it back.
void CoreImpl::LeasesReady(Instance& instance) {
  const auto leases = leases_;  // a holder may let go while it is told
  for (const auto& [number, lease] : leases) {
    if (lease->spec.model != instance.info.model || lease->has_model) continue;
    if (lease->instance.empty() && Serves(instance, LoadOf(lease->spec))) lease->instance = instance.info.id;
    if (lease->instance != instance.info.id) continue;
    lease->has_model = lease->comes_back = true;
    instance.yield_asked.reset();  // the newcomer is to be asked too, and has its time
    if (std::exchange(lease->granted, true)) {
      Tell(*lease, LeaseEvent::Kind::kRestored, "the model is loaded again");
    } else {
      Tell(*lease, LeaseEvent::Kind::kGranted, "the model is loaded");
    }
    if (HoldsBatch() && lease->spec.priority == Priority::kBatch) {
      lease->contract_kept = false;
      Tell(*lease, LeaseEvent::Kind::kContractBroken, batch_held_because_);
    }
  }
}

// `instance` serves no more. One that crashed stays theirs and starts again.
void CoreImpl::LeasesLost(Instance& instance, const std::string& reason, bool comes_back) {
  instance.yield_asked.reset();
  const auto leases = leases_;
  for (const auto& [number, lease] : leases) {
    if (lease->instance != instance.info.id) continue;
    if (std::exchange(lease->has_model, false)) Tell(*lease, LeaseEvent::Kind::kRevoked, reason);
    lease->comes_back = comes_back;
    if (instance.stopping || !comes_back) lease->instance.clear();
  }
  RestoreLeases();
}

void CoreImpl::AskLeasesToYield(Instance& instance, const std::string& for_whom) {
  if (instance.yield_asked || LeaseLevel(instance) == 0 || instance.info.state != InstanceState::kReady)
    return;
  instance.yield_asked = Now();
  const auto leases = leases_;
  for (const auto& [number, lease] : leases) {
    if (lease->instance == instance.info.id && lease->has_model)
      Tell(*lease, LeaseEvent::Kind::kYieldRequested, "its memory is wanted for " + for_whom);
  }
}

void CoreImpl::NoMoreYield(Instance& instance) {
  if (!std::exchange(instance.yield_asked, std::nullopt)) return;
  const auto leases = leases_;
  for (const auto& [number, lease] : leases) {
    if (lease->instance == instance.info.id && lease->has_model)
      Tell(*lease, LeaseEvent::Kind::kRestored, "its memory is not wanted any more");
  }
}

// Would it fit without taking anything from anybody at work? Not even from those who were at work a moment
// ago, or it would come and go all the time.
bool CoreImpl::FitsAgain(const HeldLease& lease) {
  const LoadSpec spec = LoadOf(lease.spec);
  PlanRequest request =
      MakePlanRequest(spec.model, VariantsOf(spec.model), spec.workload, spec.contract, spec.overrides);
  for (EvictionCandidate& candidate : Evictable(nullptr, false)) {
    const Instance* other = Find(candidate.instance_id);
    if (other != nullptr && (Now() - other->last_used < kRestoreIdle || LeaseLevel(*other) > 0)) continue;
    request.evictable.push_back(std::move(candidate));
  }
  const auto plan = PlanHere(request);
  return plan.ok() && plan->chosen;
}

// Those who lost their model get it back as soon as there is room, the most important first.
void CoreImpl::RestoreLeases() {
  std::vector<std::shared_ptr<HeldLease>> lost;
  for (const auto& [number, lease] : leases_) {
    if (lease->instance.empty() && lease->comes_back) lost.push_back(lease);
  }
  if (lost.empty() || draining_) return;
  if (!std::exchange(restore_armed_, true)) {
    PostAfter(kRestoreCheck, [this] {
      restore_armed_ = false;
      if (topology_) RefreshMemory();
      std::vector<std::shared_ptr<HeldLease>> waiting;
      for (const auto& [number, lease] : leases_) {
        if (lease->instance.empty() && lease->comes_back) waiting.push_back(lease);
      }
      std::stable_sort(waiting.begin(), waiting.end(),
                       [](const auto& a, const auto& b) { return a->spec.priority < b->spec.priority; });
      for (const auto& lease : waiting) {
        if (leases_.count(lease->number) == 0 || !lease->instance.empty() || !topology_) continue;
        if (FitsAgain(*lease)) AttachLease(*lease);
      }
      RestoreLeases();
    });
  }
}

// ---- Contracts while the model runs ----

// A model that turns out slower than agreed: its holder is told, and told again once it is fast enough.
void CoreImpl::CheckContracts() {
  const auto leases = leases_;
  for (const auto& [number, lease] : leases) {
    const Instance* instance = Find(lease->instance);
    if (instance == nullptr || !lease->has_model) continue;
    std::string why;
    const std::optional<double> asked = lease->spec.contract.min_tokens_per_s;
    const std::optional<double> measured = instance->measured.decode_tok_s;
    if (asked && measured && instance->measured.requests >= kJudgeAfter && *measured < *asked) {
      why = "measured " + Rounded(*measured) + " tokens/s, agreed " + Rounded(*asked);
    }
    if (why.empty() && HoldsBatch() && lease->spec.priority == Priority::kBatch) why = batch_held_because_;
    if (std::exchange(lease->contract_kept, why.empty()) == why.empty()) continue;
    Tell(*lease, why.empty() ? LeaseEvent::Kind::kContractKept : LeaseEvent::Kind::kContractBroken,
         why.empty() ? "it runs as agreed again" : why);
  }
}

// On a battery that runs low, or on a machine that is too hot, batch work waits; everything else goes on.
void CoreImpl::CheckPower() {
  if (parts_.power == nullptr) return;
  const PowerState state = parts_.power->Read();
  const double back = HoldsBatch() ? 1.0 : 0.0;  // a little better than the limit before it goes on
  std::string why;
  if (options_.battery_floor > 0 && state.on_battery && state.battery_percent &&
      *state.battery_percent < options_.battery_floor + 5 * back) {
    why = "batch work waits: on battery with " + Rounded(*state.battery_percent) + " %";
  } else if (options_.heat_ceiling > 0 && state.hottest_share &&
             *state.hottest_share > options_.heat_ceiling - 0.05 * back) {
    why = "batch work waits: the machine is hot, " + state.hottest;
  }
  const bool before = HoldsBatch();
  batch_held_because_ = why;
  if (before != HoldsBatch()) spdlog::info("{}", why.empty() ? "batch work may run again" : why);
  CheckContracts();
  if (!before || HoldsBatch()) return;
  std::vector<std::string> ids;
  for (const auto& [id, instance] : instances_) ids.push_back(id);
  for (const std::string& id : ids) {
    if (Instance* instance = Find(id)) Dispatch(*instance);
  }
}

// ---- Over restarts ----

void CoreImpl::SaveLeases() {
  if (parts_.leases == nullptr || !leases_loaded_ || draining_) return;
  std::vector<LeaseSpec> held;
  for (const auto& [number, lease] : leases_) held.push_back(lease->spec);
  parts_.leases->Save(std::move(held));
}

// What was leased when the last daemon was killed is loaded again and kept for a while: its holders come
// back.
void CoreImpl::ReloadLeases() {
  if (parts_.leases == nullptr) return;
  parts_.leases->Load([this, door = door()](absl::StatusOr<std::vector<LeaseSpec>> leases) {
    door.Post([this, leases = std::move(leases)] {
      leases_loaded_ = true;
      if (!leases.ok()) {
        spdlog::warn("leases of the last run: {}", MessageOf(leases.status()));
        return;
      }
      for (const LeaseSpec& spec : *leases) {
        auto lease = std::make_shared<HeldLease>();
        lease->spec = spec;
        lease->on_end = [](absl::Status) {};
        const bool back = std::any_of(leases_.begin(), leases_.end(),
                                      [&](const auto& entry) { return SameLease(entry.second->spec, spec); });
        if (back) continue;
        lease->number = next_lease_++;
        leases_[lease->number] = lease;
        AttachLease(*lease);
        PostAfter(kComeBack, [this, number = lease->number] { DropLease(number); });
      }
      SaveLeases();
    });
  });
}

}  // namespace rumbo
