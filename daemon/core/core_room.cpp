// Room: who is placed where, who goes for it, and who waits until others are done.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "daemon/core/core_impl.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kMaxPlacements =
    3;  // evictions that may come to nothing because memory went elsewhere meanwhile
constexpr seconds kRoomCheck{1};   // memory of others may have come free
constexpr seconds kYieldAfter{5};  // a wait for room after which those in the way take no new requests
constexpr seconds kHoldAfter{30};  // a wait after which nobody younger takes room there
constexpr seconds kRoomWait{120};  // the longest wait

bool Overlap(const Reservation& a, const Reservation& b) {
  return std::any_of(a.pools.begin(), a.pools.end(),
                     [&](const auto& entry) { return b.pools.count(entry.first) > 0; });
}

}  // namespace

std::vector<PlanVariant> CoreImpl::VariantsOf(const std::string& model) const {
  std::vector<PlanVariant> variants;
  const auto it = models_.find(model);
  if (it == models_.end()) return variants;
  for (const StoredVariant& v : it->second.variants) {
    if (v.state == "complete") variants.push_back({v.id, v.descriptor, v.sha256});
  }
  return variants;
}

// Why nothing of a model can be loaded; OK where something can.
absl::Status CoreImpl::CheckLoadable(const std::string& model) const {
  const auto it = models_.find(model);
  if (it == models_.end() || !VariantsOf(model).empty() || it->second.variants.empty())
    return absl::OkStatus();
  const bool incomplete = it->second.variants[0].state == "incomplete";
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kModelInvalid,
               model + (incomplete ? " is not downloaded to its end"
                                   : " is damaged: a stored file is missing or changed"),
               incomplete ? "`rumbo pull` goes on with it."
                          : "`rumbo models verify " + model + "` says more; pull or import it again.");
}

// Plans, makes room, reserves, launches; called again when room was made. Nothing is stopped unless a plan
// fits then.
void CoreImpl::Place(const std::string& instance_id) {
  Instance* found = Find(instance_id);
  if (found == nullptr || found->stopping || found->info.state != InstanceState::kStarting) return;
  Instance& instance = *found;
  if (!instance.waits_for.empty()) return;  // Remove() comes back here
  if (const absl::Status loadable = CheckLoadable(instance.spec.model); !loadable.ok())
    return FailLoad(instance, loadable);
  RefreshMemory();
  PlanRequest request =
      MakePlanRequest(instance.spec.model, VariantsOf(instance.spec.model), instance.spec.workload,
                      instance.spec.contract, instance.spec.overrides);
  SubtractClaims(instance, request.ledger);
  request.evictable = Evictable(&instance, false);
  absl::StatusOr<Plan> plan = rumbo::MakePlan(request, *topology_, *parts_.catalog, calibration_);
  if (!plan.ok()) return FailLoad(instance, plan.status());
  const bool short_of_room = !plan->chosen && plan->refusal->reason_code == Reason::kDoesNotFit;
  instance.plan = std::move(*plan);
  if (short_of_room || (instance.plan.chosen && BehindAnother(instance)))
    return WaitForRoom(instance, std::move(request));
  if (!instance.plan.chosen) return FailLoad(instance, RefusalStatus(instance.plan));
  LeaveRoomQueue(instance);
  instance.claim = ReservationOf(*instance.plan.chosen);
  std::vector<std::string> victims = instance.plan.evictions;
  victims.insert(victims.end(), instance.replaces.begin(), instance.replaces.end());
  for (const std::string& victim : victims) {
    Instance* other = Find(victim);
    if (other == nullptr) continue;
    instance.waits_for.insert(victim);
    if (instance.replaces.count(victim) > 0) {
      StopInstance(*other, "replaced by a load with other settings", absl::OkStatus(), options_.drain);
    } else {
      StopInstance(*other, "evicted to make room for " + instance.info.model, absl::OkStatus(),
                   milliseconds(0));
    }
  }
  if (!instance.waits_for.empty()) {
    if (++instance.placements > kMaxPlacements) {
      instance.waits_for.clear();
      return FailLoad(instance,
                      RetryableError(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit,
                                     "memory kept changing while " + instance.info.model + " was placed",
                                     "Try again.", seconds(1)));
    }
    return SetState(instance, InstanceState::kStarting, "waiting for room");
  }
  const absl::Status reserved = ledger_.Reserve(instance_id, instance.claim, instance.plan.forced);
  if (!reserved.ok()) return FailLoad(instance, reserved);
  Launch(instance);
}

// `request` did not fit now. It waits where it would once others are done; else it is refused, with what is
// missing even then.
void CoreImpl::WaitForRoom(Instance& instance, PlanRequest request) {
  request.ledger = ledger_.Snapshot();
  request.evictable = Evictable(&instance, true);
  absl::StatusOr<Plan> later = rumbo::MakePlan(request, *topology_, *parts_.catalog, calibration_);
  if (!later.ok()) return FailLoad(instance, later.status());
  if (!later->chosen) {
    instance.plan = std::move(*later);
    return FailLoad(instance, RefusalStatus(instance.plan));
  }
  instance.claim = ReservationOf(*later->chosen);
  instance.blockers = later->evictions;
  std::string who;
  for (const std::string& id : instance.blockers) {
    if (const Instance* other = Find(id)) who += (who.empty() ? "" : ", ") + other->info.model;
  }
  if (!instance.wants_room) {
    instance.wants_room = true;
    instance.room_since = Now();
  } else if (Now() - instance.room_since > kRoomWait) {
    return FailLoad(
        instance,
        RetryableError(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit,
                       "no room came free within " + std::to_string(kRoomWait.count()) +
                           " s; in the way: " + (who.empty() ? "other loads" : who),
                       "`rumbo ps` shows what runs; unload something, or try again later.", seconds(10)));
  }
  const std::string reason = "waiting for room" + (who.empty() ? "" : " that has " + who);
  if (instance.info.reason != reason) SetState(instance, InstanceState::kStarting, reason);
  if (room_timer_armed_) return;
  room_timer_armed_ = true;
  PostAfter(kRoomCheck, [this] {
    room_timer_armed_ = false;
    RetryRoom();
  });
}

void CoreImpl::LeaveRoomQueue(Instance& instance) {
  instance.wants_room = false;
  instance.blockers.clear();
  instance.claim = {};
}

// Somebody who waits for room in the same memory has waited so long that nobody younger goes first.
bool CoreImpl::BehindAnother(const Instance& instance) const {
  const Reservation wanted = ReservationOf(*instance.plan.chosen);
  return std::any_of(instances_.begin(), instances_.end(), [&](const auto& entry) {
    const Instance& other = *entry.second;
    if (&other == &instance || !other.wants_room || Now() - other.room_since < kHoldAfter) return false;
    return (!instance.wants_room || other.room_since < instance.room_since) && Overlap(wanted, other.claim);
  });
}

// Tries again soon for those who wait. Cheap where nobody does.
void CoreImpl::RoomMayBeFree() {
  if (room_retry_posted_) return;
  const bool wanted = std::any_of(instances_.begin(), instances_.end(),
                                  [](const auto& entry) { return entry.second->wants_room; });
  if (!wanted) return;
  room_retry_posted_ = true;
  Post([this] {
    room_retry_posted_ = false;
    RetryRoom();
  });
}

void CoreImpl::RetryRoom() {
  std::vector<const Instance*> waiting;
  for (const auto& [id, instance] : instances_) {
    if (instance->wants_room) waiting.push_back(instance.get());
  }
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const Instance* a, const Instance* b) { return a->room_since < b->room_since; });
  std::vector<std::string> ids;
  for (const Instance* instance : waiting) ids.push_back(instance->info.id);
  AskToYield();
  for (const std::string& id : ids) {
    Instance* instance = Find(id);
    if (instance == nullptr || !instance->wants_room) continue;
    if (instance->idle() && !instance->info.pinned) {
      StopInstance(*instance, "nobody waits for it any more", absl::OkStatus(), milliseconds(0));
    } else {
      Place(id);
    }
  }
}

// Instances in the way of one that has waited for long take no new requests, so that they come to rest; what
// waits for them is served when it is their turn again.
void CoreImpl::AskToYield() {
  std::set<std::string> asked;
  for (const auto& [id, instance] : instances_) {
    if (!instance->wants_room || Now() - instance->room_since < kYieldAfter) continue;
    asked.insert(instance->blockers.begin(), instance->blockers.end());
  }
  for (const auto& [id, instance] : instances_) {
    const bool yielded = std::exchange(instance->yielding, asked.count(id) > 0 && !instance->info.pinned);
    if (yielded && !instance->yielding) Dispatch(*instance);
  }
}

// What is free and promised to nobody, but for which running instances are being ended already on somebody's
// behalf.
void CoreImpl::SubtractClaims(const Instance& besides, LedgerSnapshot& snapshot) const {
  const auto subtract = [](std::map<std::string, Bytes>& free, const std::string& id, Bytes bytes) {
    if (const auto it = free.find(id); it != free.end()) it->second = SaturatingSub(it->second, bytes);
  };
  for (const auto& [id, instance] : instances_) {
    if (instance.get() == &besides || instance->waits_for.empty() || instance->stopping) continue;
    Reservation rest = instance->claim;
    for (const std::string& victim : instance->waits_for) {
      const Reservation* held = ledger_.Find(victim);
      if (held == nullptr) continue;
      for (const auto& [pool, bytes] : held->pools) subtract(rest.pools, pool, bytes);
      for (const auto& [limit, bytes] : held->limits) subtract(rest.limits, limit, bytes);
    }
    for (const auto& [pool, bytes] : rest.pools) subtract(snapshot.pool_free, pool, bytes);
    for (const auto& [limit, bytes] : rest.limits) subtract(snapshot.limit_free, limit, bytes);
  }
}

// Instances whose end would make room for `besides`, least worth keeping first: those that are ending anyway
// and whose room nobody has claimed, the one it replaces, idle ones (by chance of reuse times the cost to
// reload, per byte); with `busy_too` also those that are loading or at work, last. Never pinned ones.
std::vector<EvictionCandidate> CoreImpl::Evictable(const Instance* besides, bool busy_too) const {
  std::set<std::string> claimed;
  for (const auto& [id, instance] : instances_)
    claimed.insert(instance->waits_for.begin(), instance->waits_for.end());
  using Rank = std::pair<int, double>;
  std::vector<std::pair<Rank, EvictionCandidate>> ranked;
  for (const auto& [id, instance] : instances_) {
    const Reservation* reserved = ledger_.Find(id);
    if (reserved == nullptr || instance.get() == besides) continue;
    const bool replaced = besides != nullptr && besides->replaces.count(id) > 0;
    const bool idle =
        instance->at_rest() && instance->info.state == InstanceState::kReady && !instance->info.pinned;
    Rank rank;
    if (instance->stopping) {
      if (claimed.count(id) > 0 && !busy_too) continue;
      rank.first = 0;
    } else if (replaced) {
      rank.first = 1;
    } else if (idle) {
      rank.first = 2;
    } else if (busy_too && !instance->info.pinned) {
      rank.first = 3;
    } else {
      continue;
    }
    Bytes bytes = 1;
    for (const auto& [pool, amount] : reserved->pools) bytes = SaturatingAdd(bytes, amount);
    const double idle_s = std::chrono::duration<double>(Now() - instance->last_used).count();
    rank.second =
        std::exp(-idle_s / 600.0) * instance->measured.load_s.value_or(1.0) / static_cast<double>(bytes);
    ranked.push_back({rank, {id, reserved->pools, reserved->limits}});
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.instance_id < b.second.instance_id;
  });
  std::vector<EvictionCandidate> out;
  for (auto& [rank, candidate] : ranked) out.push_back(std::move(candidate));
  return out;
}

}  // namespace rumbo
