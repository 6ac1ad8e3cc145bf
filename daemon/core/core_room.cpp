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
constexpr seconds kRoomCheck{1};  // memory of others may have come free
constexpr seconds kSettle{2};     // a device may report the memory of an ended process as taken for so long
constexpr seconds kYieldAfter{
    5};  // a wait for room after which those in the way take no new requests, if they had as long
constexpr seconds kHoldAfter{30};  // a wait after which nobody younger takes room there
constexpr seconds kRoomWait{120};  // the longest wait
constexpr seconds kQuarantine{600};
constexpr int kFaultsToQuarantine = 3;

// While it lives, no other daemon of this machine promises memory.
class PromiseTurn {
 public:
  explicit PromiseTurn(PromiseBoard* board) : board_(board) {
    if (board_ != nullptr) board_->Enter();
  }
  ~PromiseTurn() {
    if (board_ != nullptr) board_->Leave();
  }
  PromiseTurn(const PromiseTurn&) = delete;
  PromiseTurn& operator=(const PromiseTurn&) = delete;

 private:
  PromiseBoard* const board_;
};

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

RoomView CoreImpl::View(const Instance& instance, const PlanRequest& request) const {
  const LedgerSnapshot all = ledger_.Snapshot();
  return {request.ledger.pool_free, request.ledger.limit_free, all.pool_free,
          all.limit_free,           request.evictable,         Evictable(&instance, true)};
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
  const PromiseTurn turn(parts_.promises);
  RefreshMemory();
  DropSettled();
  PlanRequest request =
      MakePlanRequest(instance.spec.model, VariantsOf(instance.spec.model), instance.spec.workload,
                      instance.spec.contract, instance.spec.overrides);
  SubtractClaims(instance, request.ledger);
  request.evictable = Evictable(&instance, false);
  if (instance.wants_room && instance.seen && *instance.seen == View(instance, request))
    return WaitOn(instance);
  instance.seen.reset();
  absl::StatusOr<Plan> plan = PlanHere(request);
  if (!plan.ok()) return FailLoad(instance, plan.status());
  const bool settles = std::count(plan->evictions.begin(), plan->evictions.end(), "") > 0;
  const bool short_of_room = !plan->chosen && plan->refusal->reason_code == Reason::kDoesNotFit;
  instance.plan = std::move(*plan);
  if (short_of_room) instance.seen = View(instance, request);
  if (short_of_room || settles || (instance.plan.chosen && BehindAnother(instance)))
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
  PublishPromises();
  Launch(instance);
}

// `request` did not fit now. It waits where it would once others are done; else it is refused, with what is
// missing even then.
void CoreImpl::WaitForRoom(Instance& instance, PlanRequest request) {
  request.ledger = ledger_.Snapshot();
  request.evictable = Evictable(&instance, true);
  absl::StatusOr<Plan> later = PlanHere(request);
  if (!later.ok()) return FailLoad(instance, later.status());
  if (!later->chosen) {
    instance.plan = std::move(*later);
    return FailLoad(instance, RefusalStatus(instance.plan));
  }
  instance.claim = ReservationOf(*later->chosen);
  instance.blockers = later->evictions;
  if (!std::exchange(instance.wants_room, true)) instance.room_since = Now();
  AskToYield();
  WaitOn(instance);
}

// It waits for room, but not for ever.
void CoreImpl::WaitOn(Instance& instance) {
  std::string who;
  for (const std::string& id : instance.blockers) {
    if (const Instance* other = Find(id)) who += (who.empty() ? "" : ", ") + other->info.model;
  }
  if (Now() - instance.room_since > kRoomWait) {
    return FailLoad(
        instance,
        RetryableError(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit,
                       "no room came free within " + std::to_string(kRoomWait.count()) +
                           " s; in the way: " + (who.empty() ? "other loads" : who),
                       "`rumbo ps` shows what runs; unload something, or try again later.", seconds(10)));
  }
  const std::string reason = "waiting for room" + (who.empty() ? "" : " that has " + who);
  if (instance.info.reason != reason) SetState(instance, InstanceState::kStarting, reason);
  ArmRoomTimer();
}

void CoreImpl::ArmRoomTimer() {
  if (std::exchange(room_timer_armed_, true)) return;
  PostAfter(settling_.empty() ? milliseconds(kRoomCheck) : milliseconds(50), [this] {
    room_timer_armed_ = false;
    RetryRoom();
  });
}

void CoreImpl::LeaveRoomQueue(Instance& instance) {
  instance.blockers.clear();
  instance.seen.reset();
  instance.claim = {};
  // Those who yielded to it go on.
  if (std::exchange(instance.wants_room, false)) RetryRoomSoon();
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
  if (wanted) RetryRoomSoon();
}

void CoreImpl::RetryRoomSoon() {
  if (std::exchange(room_retry_posted_, true)) return;
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
    if (instance->idle() && !Kept(*instance)) {
      StopInstance(*instance, "nobody waits for it any more", absl::OkStatus(), milliseconds(0));
    } else {
      Place(id);
    }
  }
}

// Instances in the way of one that has waited for long take no new requests, so that they come to rest; what
// waits for them is served when it is their turn again.
void CoreImpl::AskToYield() {
  std::set<std::string> asked, leases_asked = pressed_;
  for (const auto& [id, instance] : instances_) {
    if (!instance->wants_room) continue;
    for (const std::string& blocker : instance->blockers) {
      Instance* other = Find(blocker);
      if (other == nullptr || other->stopping) continue;
      AskLeasesToYield(*other, instance->info.model);
      leases_asked.insert(blocker);
    }
  }
  std::vector<std::string> relieved;
  for (const auto& [id, instance] : instances_) {
    if (instance->yield_asked && leases_asked.count(id) == 0) relieved.push_back(id);
  }
  for (const std::string& id : relieved) {
    if (Instance* instance = Find(id)) NoMoreYield(*instance);
  }
  for (const auto& [id, instance] : instances_) {
    if (!instance->wants_room || Now() - instance->room_since < kYieldAfter) continue;
    asked.insert(instance->blockers.begin(), instance->blockers.end());
  }
  for (const auto& [id, instance] : instances_) {
    const bool had_its_turn =
        instance->info.state == InstanceState::kReady && Now() - instance->ready_since >= kYieldAfter;
    const bool yielded =
        std::exchange(instance->yielding, had_its_turn && asked.count(id) > 0 && !KeptByPin(*instance));
    if (yielded && !instance->yielding) Dispatch(*instance);
  }
}

// The process of `id` has ended. Drivers report its memory as free a moment later: until then nobody else is
// evicted for want of it.
void CoreImpl::NoteRelease(const std::string& id) {
  const Reservation* held = ledger_.Find(id);
  if (held == nullptr || !topology_) return;
  Settling entry{Now(), *held, {}};
  for (const MemoryPool& pool : topology_->pools) {
    const auto promised = held->pools.find(pool.id);
    if (promised == held->pools.end() || !pool.free_bytes) continue;
    // Half of it: others take and give memory at the same time.
    const Bytes took = std::min(ledger_.Taken(id, pool.id).value_or(promised->second), promised->second);
    if (took > 0) entry.free_then[pool.id] = SaturatingAdd(*pool.free_bytes, took / 2);
  }
  settling_.push_back(std::move(entry));
}

void CoreImpl::DropSettled() {
  std::erase_if(settling_, [&](const Settling& entry) {
    if (Now() - entry.since > kSettle) return true;
    return std::all_of(topology_->pools.begin(), topology_->pools.end(), [&](const MemoryPool& pool) {
      const auto then = entry.free_then.find(pool.id);
      return then == entry.free_then.end() || pool.free_bytes.value_or(0) >= then->second;
    });
  });
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
// reload, per byte); with `busy_too` also those that are loading or at work, last. Never pinned ones. Before
// them all, nameless, memory that is about to be reported free.
// Leased ones only for somebody more important, and once their holders had time to let go.
std::vector<EvictionCandidate> CoreImpl::Evictable(const Instance* besides, bool busy_too) const {
  const int wanted = besides == nullptr ? 0 : WantedLevel(*besides);
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
        instance->at_rest() && instance->info.state == InstanceState::kReady && !KeptByPin(*instance);
    const int leased = LeaseLevel(*instance);
    const bool weaker = leased < wanted || leased == 0;
    const bool asked = instance->yield_asked && Now() - *instance->yield_asked >= kYieldAfter;
    Rank rank;
    if (instance->stopping) {
      if (claimed.count(id) > 0 && !busy_too) continue;
      rank.first = 0;
    } else if (replaced) {
      rank.first = 1;
    } else if (idle && weaker && (leased == 0 || asked)) {
      rank.first = 2;
    } else if (busy_too && weaker && !KeptByPin(*instance)) {
      rank.first = 3 + leased;
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
  for (const Settling& entry : settling_) out.push_back({"", entry.held.pools, entry.held.limits});
  for (auto& [rank, candidate] : ranked) out.push_back(std::move(candidate));
  return out;
}

// ---- What others do to the memory, and devices that fail ----

// Bytes of `instance` in `pool` that are promised and not yet part of what the machine reports as used.
Bytes CoreImpl::Untaken(const Instance& instance, const std::string& pool) const {
  const Reservation* held = ledger_.Find(instance.info.id);
  if (held == nullptr) return 0;
  const auto promised = held->pools.find(pool);
  if (promised == held->pools.end()) return 0;
  const Bytes unknown = instance.info.state == InstanceState::kReady ? promised->second : 0;
  return SaturatingSub(promised->second, ledger_.Taken(instance.info.id, pool).value_or(unknown));
}

void CoreImpl::PublishPromises() {
  if (parts_.promises == nullptr || !topology_) return;
  std::map<std::string, Bytes> ours;
  for (const MemoryPool& pool : topology_->pools) {
    Bytes sum = 0;
    for (const auto& [id, instance] : instances_) sum = SaturatingAdd(sum, Untaken(*instance, pool.id));
    if (sum > 0) ours[pool.id] = sum;
  }
  ledger_.SetForeign(parts_.promises->Exchange(ours));
}

// Other programs took memory that is promised here: what nobody uses goes, then the least important lease is
// asked to yield.
void CoreImpl::RelievePressure() {
  std::set<std::string> pressed;
  std::vector<std::pair<std::string, std::string>> ends;  // instance, why
  for (const MemoryPool& pool : topology_->pools) {
    if (!pool.free_bytes) continue;
    Bytes untaken = 0;
    for (const auto& [id, instance] : instances_)
      untaken = SaturatingAdd(untaken, Untaken(*instance, pool.id));
    if (untaken == 0 || untaken <= *pool.free_bytes) continue;
    Instance* weakest = nullptr;
    auto weakness = [this](const Instance& i) {
      return std::tuple(LeaseLevel(i), !i.at_rest(), i.last_used);
    };
    for (const auto& [id, instance] : instances_) {
      const Reservation* held = ledger_.Find(id);
      if (held == nullptr || held->pools.count(pool.id) == 0 || instance->stopping || KeptByPin(*instance))
        continue;
      if (instance->info.state != InstanceState::kReady) continue;
      if (weakest == nullptr || weakness(*instance) < weakness(*weakest)) weakest = instance.get();
    }
    if (weakest == nullptr) continue;
    pressed.insert(weakest->info.id);
    const bool leased = LeaseLevel(*weakest) > 0;
    if (leased)
      AskLeasesToYield(*weakest, "other programs, which took " + FormatBytes(untaken - *pool.free_bytes) +
                                     " of " + pool.id);
    const bool waited = !leased || Now() - *weakest->yield_asked >= kYieldAfter;
    if (waited && weakest->at_rest())
      ends.emplace_back(weakest->info.id, "other programs took memory of " + pool.id);
  }
  const bool before = !pressed_.empty();
  pressed_ = std::move(pressed);
  for (const auto& [id, why] : ends) {
    if (Instance* instance = Find(id))
      StopInstance(*instance, "evicted: " + why, absl::OkStatus(), milliseconds(0));
  }
  if (before && pressed_.empty()) AskToYield();
}

// A device whose driver lost it several times in a short while gets no new work for a while.
void CoreImpl::NoteDeviceFault(const Instance& instance, const absl::Status& status) {
  if (ReasonOf(status) != Reason::kDeviceLost) return;
  for (const std::string& id : instance.info.devices) {
    std::vector<TimePoint>& faults = device_faults_[id];
    faults.push_back(Now());
    std::erase_if(faults, [&](TimePoint at) { return Now() - at > kQuarantine; });
    if (faults.size() == kFaultsToQuarantine) {
      spdlog::warn("{} is not used for {} min: {}", id, kQuarantine.count() / 60, MessageOf(status));
    }
  }
}

bool CoreImpl::Quarantined(const std::string& device) const {
  const auto it = device_faults_.find(device);
  if (it == device_faults_.end()) return false;
  const auto recent = [&](TimePoint at) { return Now() - at <= kQuarantine; };
  return std::count_if(it->second.begin(), it->second.end(), recent) >= kFaultsToQuarantine;
}

// The plan for this machine, without the devices in quarantine.
absl::StatusOr<Plan> CoreImpl::PlanHere(const PlanRequest& request) const {
  const auto bad = [this](const Device& device) { return Quarantined(device.id); };
  if (std::none_of(topology_->devices.begin(), topology_->devices.end(), bad)) {
    return rumbo::MakePlan(request, *topology_, *parts_.catalog, calibration_);
  }
  Topology rest = *topology_;
  for (Device& device : rest.devices) {
    if (!bad(device)) continue;
    device.usable = false;
    device.reason = "in quarantine: its driver lost it " + std::to_string(kFaultsToQuarantine) +
                    " times in " + std::to_string(kQuarantine.count() / 60) + " min";
  }
  return rumbo::MakePlan(request, rest, *parts_.catalog, calibration_);
}

}  // namespace rumbo
