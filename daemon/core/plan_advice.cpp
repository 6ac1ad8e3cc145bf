#include "daemon/core/plan_advice.h"

#include <tbb/parallel_for.h>

#include <algorithm>

#include "base/status.h"

namespace rumbo {
namespace {

AdviceRow MakeRow(const PlanRequest& request, const Topology& machine, const EngineCatalog& catalog,
                  const Calibration& calibration, const AdviceOptions& options) {
  AdviceRow row;
  const std::string prefix = "profile:";
  row.hardware = machine.source.compare(0, prefix.size(), prefix) == 0 ? machine.source.substr(prefix.size())
                                                                       : machine.source;
  row.title = machine.name;
  row.model = request.model;
  if (machine.price && (options.currency.empty() || machine.price->currency == options.currency))
    row.price = machine.price;
  PlanRequest own = request;
  own.assume_installed = true;
  auto plan = MakePlan(own, machine, catalog, calibration);
  if (plan.ok()) {
    row.plan = *std::move(plan);
  } else {
    row.plan.model = request.model;
    row.plan.hardware = machine.source;
    row.plan.refusal =
        Refusal{ReasonOf(plan.status()),  MessageOf(plan.status()), "", std::nullopt, std::nullopt,
                NextStepOf(plan.status())};
  }
  if (!row.price) return row;
  if (const double gib = AcceleratorGib(machine); gib > 0) row.price_per_gb = row.price->amount / gib;
  const auto& chosen = row.plan.chosen;
  if (chosen && chosen->predicted.aggregate_tok_s && *chosen->predicted.aggregate_tok_s > 0) {
    row.price_per_tok_s = row.price->amount / *chosen->predicted.aggregate_tok_s;
  }
  return row;
}

}  // namespace

double AcceleratorGib(const Topology& machine) {
  Bytes own = 0, shared = 0;
  for (const MemoryPool& pool : machine.pools) {
    if (pool.kind == PoolKind::kVram) own = SaturatingAdd(own, pool.total_bytes.value_or(0));
    if (pool.kind == PoolKind::kCarveout) shared = std::max(shared, pool.total_bytes.value_or(0));
    if (pool.kind != PoolKind::kSystem) continue;
    for (const MemoryLimit& limit : pool.limits) {
      if (limit.kind == LimitKind::kGtt)
        shared = std::max(shared, std::min(limit.max_bytes.value_or(0), pool.total_bytes.value_or(0)));
    }
  }
  return static_cast<double>(own > 0 ? own : shared) / static_cast<double>(kGiB);
}

std::vector<AdviceRow> AdviseOver(const std::vector<PlanRequest>& requests,
                                  const std::vector<Topology>& machines, const EngineCatalog& catalog,
                                  const Calibration& calibration, const AdviceOptions& options) {
  std::vector<const Topology*> within;
  for (const Topology& machine : machines) {
    if (!options.budget || !machine.price || machine.price->amount <= *options.budget)
      within.push_back(&machine);
  }
  std::vector<AdviceRow> rows(requests.size() * within.size());
  tbb::parallel_for(size_t{0}, rows.size(), [&](size_t i) {
    rows[i] = MakeRow(requests[i / within.size()], *within[i % within.size()], catalog, calibration, options);
  });
  return rows;
}

}  // namespace rumbo
