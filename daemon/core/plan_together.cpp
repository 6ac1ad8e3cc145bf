#include "daemon/core/plan_together.h"

#include <algorithm>
#include <numeric>

#include "base/status.h"

namespace rumbo {
namespace {

constexpr size_t kAllOrders = 5;

// Time for a whole answer, to compare orders by; 0 where unknown.
double AnswerSeconds(const Plan& plan) {
  if (!plan.chosen || !plan.chosen->predicted.ttft_ms) return 0;
  const Predicted& p = plan.chosen->predicted;
  const double decode = p.decode_tok_s.value_or(0);
  return *p.ttft_ms / 1e3 + (decode > 0 ? plan.workload.answer_tokens.value_or(0) / decode : 0);
}

struct Arrangement {
  std::vector<absl::StatusOr<Plan>> plans;
  size_t placed = 0;
  double worst = 0;  // longest answer
  double sum = 0;

  bool operator<(const Arrangement& other) const {  // better first
    if (placed != other.placed) return placed > other.placed;
    if (worst != other.worst) return worst < other.worst;
    return sum < other.sum;
  }
};

Arrangement Place(const std::vector<PlanRequest>& requests, const std::vector<size_t>& order,
                  const Topology& topology, const EngineCatalog& catalog, const Calibration& calibration) {
  Arrangement a;
  a.plans.assign(requests.size(), absl::StatusOr<Plan>(Internal("not placed")));
  LedgerSnapshot ledger = requests[order[0]].ledger;
  std::vector<EvictionCandidate> evictable = requests[order[0]].evictable;
  for (const size_t i : order) {
    PlanRequest request = requests[i];
    request.ledger = ledger;
    request.evictable = evictable;
    a.plans[i] = MakePlan(request, topology, catalog, calibration);
    if (!a.plans[i].ok() || !a.plans[i]->chosen) continue;
    const Plan& plan = *a.plans[i];
    std::vector<const EvictionCandidate*> gone;
    for (const EvictionCandidate& instance : evictable) {
      if (std::find(plan.evictions.begin(), plan.evictions.end(), instance.instance_id) !=
          plan.evictions.end()) {
        gone.push_back(&instance);
      }
    }
    ledger = AfterPlacing(topology, std::move(ledger), *plan.chosen, gone);
    std::erase_if(evictable, [&](const EvictionCandidate& instance) {
      return std::find(plan.evictions.begin(), plan.evictions.end(), instance.instance_id) !=
             plan.evictions.end();
    });
    ++a.placed;
    const double seconds = AnswerSeconds(plan);
    a.worst = std::max(a.worst, seconds);
    a.sum += seconds;
  }
  return a;
}

Bytes Size(const PlanRequest& request) {
  Bytes size = 0;
  for (const PlanVariant& variant : request.variants) size = std::max(size, variant.descriptor.tensor_bytes);
  return size;
}

}  // namespace

LedgerSnapshot AfterPlacing(const Topology& topology, LedgerSnapshot ledger, const Candidate& candidate,
                            const std::vector<const EvictionCandidate*>& evicted) {
  for (const MemoryPool& pool : topology.pools) {
    const auto free = pool.free_bytes ? pool.free_bytes : pool.total_bytes;
    if (free) ledger.pool_free.emplace(pool.id, *free);
    for (const MemoryLimit& limit : pool.limits) {
      if (limit.max_bytes) {
        ledger.limit_free.emplace(limit.id, SaturatingSub(*limit.max_bytes, limit.used_bytes.value_or(0)));
      }
    }
  }
  for (const EvictionCandidate* instance : evicted) {
    for (const auto& [pool, bytes] : instance->pool_bytes) {
      const auto it = ledger.pool_free.find(pool);
      if (it != ledger.pool_free.end()) it->second = SaturatingAdd(it->second, bytes);
    }
    for (const auto& [limit, bytes] : instance->limit_bytes) {
      const auto it = ledger.limit_free.find(limit);
      if (it != ledger.limit_free.end()) it->second = SaturatingAdd(it->second, bytes);
    }
  }
  for (const MemoryItem& item : candidate.memory) {
    const auto it = ledger.pool_free.find(item.pool);
    if (it != ledger.pool_free.end()) it->second = SaturatingSub(it->second, item.bytes);
  }
  for (const auto& [limit, bytes] : candidate.limit_bytes) {
    const auto it = ledger.limit_free.find(limit);
    if (it != ledger.limit_free.end()) it->second = SaturatingSub(it->second, bytes);
  }
  return ledger;
}

std::vector<absl::StatusOr<Plan>> PlanTogether(const std::vector<PlanRequest>& requests,
                                               const Topology& topology, const EngineCatalog& catalog,
                                               const Calibration& calibration) {
  if (requests.empty()) return {};
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (requests.size() > kAllOrders) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return Size(requests[a]) > Size(requests[b]); });
    return Place(requests, order, topology, catalog, calibration).plans;
  }
  Arrangement best = Place(requests, order, topology, catalog, calibration);
  while (std::next_permutation(order.begin(), order.end())) {
    Arrangement other = Place(requests, order, topology, catalog, calibration);
    if (other < best) best = std::move(other);
  }
  return std::move(best.plans);
}

}  // namespace rumbo
