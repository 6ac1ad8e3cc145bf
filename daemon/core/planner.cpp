#include "daemon/core/planner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/status.h"
#include "daemon/core/calibration.h"
#include "daemon/core/planner_candidate.h"
#include "daemon/core/planner_options.h"
#include "engines/api/catalog.h"

namespace rumbo {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 100 ? "%.0f" : "%.1f", value);
  return text;
}

struct Tried {
  const PlanOption* option;
  Attempt attempt;
};

// Which of the options breaks the contract, and how; "" where none does.
std::string ContractBroken(const Contract& contract, const Attempt& a) {
  const Candidate& c = a.candidate;
  if (contract.min_context && c.settings.context_per_session.value_or(0) < *contract.min_context) {
    return "only " + std::to_string(c.settings.context_per_session.value_or(0)) +
           " tokens of context per session, " + std::to_string(*contract.min_context) + " are asked for";
  }
  if (!contract.min_tokens_per_s) return "";
  if (!c.predicted.decode_tok_s) return "its speed is unknown, and a minimum is asked for";
  if (*c.predicted.decode_tok_s < *contract.min_tokens_per_s) {
    return "about " + Number(*c.predicted.decode_tok_s) + " tokens/s per session, " +
           Number(*contract.min_tokens_per_s) + " are asked for";
  }
  return "";
}

class Planning {
 public:
  Planning(const PlanInputs& in, Plan& plan) : in_(in), plan_(plan), room_(in.topology, in.request.ledger) {}

  void Run() {
    PlanOptions options = EnumerateOptions(in_.request, in_.topology, in_.catalog);
    plan_.rejected = std::move(options.rejected);
    std::vector<Tried> fitting, short_of_room;
    for (size_t i = 0; i < options.options.size(); ++i) {
      const PlanOption& option = options.options[i];
      if (const PlanOption* twin = Twin(options.options, i)) {
        plan_.rejected.push_back(Reject(option, Reason::kSlowerThanChosen,
                                        "as good as " + twin->devices[0]->id + ", which has the lower id"));
        continue;
      }
      Sort(Tried{&option, TryOption(in_, option)}, fitting, short_of_room);
    }
    Rank(fitting);
    if (fitting.empty() && in_.request.overrides.force && !short_of_room.empty())
      Force(short_of_room, fitting);
    if (!fitting.empty()) {
      Choose(fitting);
    } else {
      Refuse(options.options, short_of_room);
    }
  }

 private:
  // An option before this one that differs only in which of several equal devices it takes.
  const PlanOption* Twin(const std::vector<PlanOption>& options, size_t index) const {
    if (!in_.request.evictable.empty() || options[index].devices.size() != 1) return nullptr;
    for (size_t i = 0; i < index; ++i) {
      if (Twins(options[i], options[index])) return &options[i];
    }
    return nullptr;
  }

  bool Twins(const PlanOption& a, const PlanOption& b) const {
    if (a.devices.size() != 1 || a.variant != b.variant || a.engine != b.engine || a.build != b.build ||
        a.backend != b.backend)
      return false;
    const Device& x = *a.devices[0];
    const Device& y = *b.devices[0];
    if (x.kind == DeviceKind::kCpu || x.name != y.name ||
        x.bandwidth_bytes_s.value != y.bandwidth_bytes_s.value || x.fp16_flops.value != y.fp16_flops.value ||
        x.secondary != y.secondary || x.pools.size() != 1 || y.pools.size() != 1) {
      return false;
    }
    const auto free = [&](const Device& d) { return room_.FreeFor(d.pools[0], d.id, a.backend->name); };
    return free(x).has_value() && free(x) == free(y);
  }

  // By the objective. Energy that is unknown for some cannot be compared: then the thriftier kind of device
  // comes first, as the catalog ranks them.
  void Rank(std::vector<Tried>& fitting) {
    energy_by_kind_ = in_.workload.objective == "energy" &&
                      std::any_of(fitting.begin(), fitting.end(),
                                  [](const Tried& t) { return t.attempt.score >= kUnknownScore; });
    std::stable_sort(fitting.begin(), fitting.end(), [&](const Tried& a, const Tried& b) {
      const int kind_a = a.option->backend->energy_rank, kind_b = b.option->backend->energy_rank;
      if (energy_by_kind_ && kind_a != kind_b) return kind_a < kind_b;
      if (a.attempt.score != b.attempt.score) return a.attempt.score < b.attempt.score;
      return a.attempt.evictions.size() < b.attempt.evictions.size();
    });
  }

  void Sort(Tried tried, std::vector<Tried>& fitting, std::vector<Tried>& short_of_room) {
    const Attempt& a = tried.attempt;
    if (!a.why_not.empty()) {
      plan_.rejected.push_back(Reject(*tried.option, a.reason_code, a.why_not));
      return;
    }
    if (a.shortage) {
      Rejected r = Reject(*tried.option, Reason::kDoesNotFit,
                          "lacks " + FormatBytes(a.shortage->missing) + " of " + a.shortage->pool);
      r.predicted = a.candidate.predicted;
      r.memory = a.candidate.memory;
      plan_.rejected.push_back(std::move(r));
      short_of_room.push_back(std::move(tried));
      return;
    }
    const std::string broken = ContractBroken(in_.request.contract, a);
    if (!broken.empty()) {
      Rejected r = Reject(*tried.option, Reason::kContractUnsatisfiable, broken);
      r.predicted = a.candidate.predicted;
      r.memory = a.candidate.memory;
      plan_.rejected.push_back(std::move(r));
      return;
    }
    fitting.push_back(std::move(tried));
  }

  void Force(std::vector<Tried>& short_of_room, std::vector<Tried>& fitting) {
    const auto least =
        std::min_element(short_of_room.begin(), short_of_room.end(), [](const Tried& a, const Tried& b) {
          return a.attempt.shortage->missing < b.attempt.shortage->missing;
        });
    least->attempt.candidate.reasons.insert(least->attempt.candidate.reasons.begin(),
                                            "forced: it lacks " +
                                                FormatBytes(least->attempt.shortage->missing) + " of " +
                                                least->attempt.shortage->pool);
    fitting.push_back(*least);
    plan_.forced = true;
  }

  void Choose(std::vector<Tried>& fitting) {
    Attempt& best = fitting.front().attempt;
    plan_.workload = best.workload;
    plan_.evictions = best.evictions;
    std::vector<std::string> reasons = {Headline(fitting)};
    for (const std::string& note : fitting.front().option->notes) reasons.push_back(note);
    for (const std::string& reason : best.candidate.reasons) reasons.push_back(reason);
    if (!plan_.evictions.empty()) {
      reasons.push_back("stops " + std::to_string(plan_.evictions.size()) + " idle instance(s) for room");
    }
    best.candidate.reasons = std::move(reasons);
    WhyNotAnAccelerator(fitting, best.candidate.reasons);
    WhyOneOfSeveral(*fitting.front().option, best.candidate.reasons);
    StaleTuning(*fitting.front().option, best.candidate);
    for (size_t i = 1; i < fitting.size(); ++i) Beaten(fitting[i], best);
    plan_.chosen = std::move(best.candidate);
  }

  static bool OnHost(const PlanOption& option) {
    return std::all_of(option.devices.begin(), option.devices.end(),
                       [](const Device* device) { return device->kind == DeviceKind::kCpu; });
  }

  // "Why is it on the CPU?", where the machine has something else.
  void WhyNotAnAccelerator(const std::vector<Tried>& fitting, std::vector<std::string>& reasons) const {
    if (!OnHost(*fitting.front().option)) return;
    for (size_t i = 1; i < fitting.size(); ++i) {
      const PlanOption& option = *fitting[i].option;
      if (OnHost(option)) continue;
      const Predicted& p = fitting[i].attempt.candidate.predicted;
      std::string why = "not on " + option.devices[0]->name + " (" + option.backend->name + "): ";
      if (!p.decode_tok_s || !p.ttft_ms) {
        why += "its speed is unknown";
      } else {
        why += "about " + Number(*p.ttft_ms) + " ms to the first token, then " + Number(*p.decode_tok_s) +
               " tokens/s there; the smaller the model, the more of that is overhead of each step";
      }
      reasons.push_back(std::move(why));
      return;
    }
    const Rejected* telling = nullptr;
    for (const Rejected& r : plan_.rejected) {
      const Device* device = r.devices.empty() ? nullptr : in_.topology.FindDevice(r.devices[0]);
      if (device == nullptr || device->kind == DeviceKind::kCpu || device->software) continue;
      if (telling == nullptr || r.reason_code == Reason::kDoesNotFit) telling = &r;
      if (r.reason_code == Reason::kDoesNotFit) break;
    }
    if (telling != nullptr) {
      reasons.push_back("not on " + in_.topology.FindDevice(telling->devices[0])->name + " (" +
                        telling->backend + "): " + telling->reason);
      return;
    }
    for (const Device& device : in_.topology.devices) {
      if (device.kind == DeviceKind::kCpu || device.software) continue;
      reasons.push_back("not on " + device.name + ": no engine of the catalog runs this model there");
      return;
    }
  }

  void WhyOneOfSeveral(const PlanOption& chosen, std::vector<std::string>& reasons) const {
    if (chosen.devices.size() != 1 || OnHost(chosen)) return;
    size_t equal = 0;
    for (const Device& device : in_.topology.devices) equal += device.name == chosen.devices[0]->name ? 1 : 0;
    if (equal < 2) return;
    reasons.push_back(
        "one of " + std::to_string(equal) + " equal devices holds it; " +
        (chosen.engine->memory == MemoryModel::kLayered
             ? "they would work on its layers one after the other, which makes no session faster"
             : "with more of them the predicted figures are not better") +
        "; the others are free for further instances");
  }

  void StaleTuning(const PlanOption& option, Candidate& chosen) const {
    if (in_.request.assume_installed) return;
    const std::string stale = Corrections(in_.calibration, KeyOf(option)).StaleTuning();
    if (!stale.empty())
      chosen.reasons.push_back("what tuning found was with " + stale + ": stale, tune it again");
  }

  std::string Headline(const std::vector<Tried>& fitting) const {
    const Candidate& c = fitting.front().attempt.candidate;
    if (!in_.request.overrides.engine.empty() || !in_.request.overrides.device.empty()) return "as asked for";
    if (fitting.size() == 1) {
      return std::string("the only choice that fits") +
             (in_.workload.objective == "energy" && !c.predicted.energy_j_per_tok
                  ? "; its energy per token is unknown"
                  : "");
    }
    const std::string& objective = in_.workload.objective;
    if (objective == "memory") return "takes the least memory";
    if (objective == "energy" && energy_by_kind_) {
      return "the thriftiest kind of device that can run it; the energy per token is unknown for some of "
             "them, so it "
             "could not be computed";
    }
    if (objective == "energy")
      return "takes the least energy: about " + Number(*c.predicted.energy_j_per_tok) + " J per token";
    if (!c.predicted.decode_tok_s && c.predicted.ttft_ms)
      return "shortest time per input: about " + Number(*c.predicted.ttft_ms) + " ms";
    if (!c.predicted.decode_tok_s) return "first in the catalog; no speed is known";
    if (objective == "throughput")
      return "most tokens/s in all: about " + Number(*c.predicted.aggregate_tok_s);
    return "shortest answer: about " + Number(*c.predicted.ttft_ms) + " ms to the first token, then " +
           Number(*c.predicted.decode_tok_s) + " tokens/s";
  }

  void Beaten(const Tried& tried, const Attempt& best) {
    std::string why = "loses by the objective (" + in_.workload.objective + ")";
    const auto& mine = tried.attempt.candidate.predicted;
    const auto& its = best.candidate.predicted;
    if (!mine.decode_tok_s && !mine.ttft_ms) {
      why = "its speed is unknown";
    } else if (in_.workload.objective == "latency" && mine.decode_tok_s && its.decode_tok_s) {
      why = Number(*mine.ttft_ms) + " ms to the first token, then " + Number(*mine.decode_tok_s) +
            " tokens/s, against " + Number(*its.ttft_ms) + " ms and " + Number(*its.decode_tok_s);
    } else if (in_.workload.objective == "throughput" && mine.aggregate_tok_s && its.aggregate_tok_s) {
      why = "about " + Number(*mine.aggregate_tok_s) + " tokens/s in all against " +
            Number(*its.aggregate_tok_s);
    } else if (in_.workload.objective == "energy" && energy_by_kind_) {
      why = "a less thrifty kind of device";
    }
    const auto caution = in_.catalog.caution.find(tried.option->maturity);
    if (caution != in_.catalog.caution.end() && tried.attempt.score / caution->second < best.score) {
      why += "; and as " + tried.option->maturity + " it would have to be faster by " +
             Number(100 * (caution->second - 1)) + " %";
    }
    Rejected r = Reject(*tried.option, Reason::kSlowerThanChosen, why);
    r.predicted = mine;
    r.memory = tried.attempt.candidate.memory;
    plan_.rejected.push_back(std::move(r));
  }

  void Refuse(const std::vector<PlanOption>& options, const std::vector<Tried>& short_of_room) {
    Refusal refusal;
    if (!short_of_room.empty()) {
      const auto least =
          std::min_element(short_of_room.begin(), short_of_room.end(), [](const Tried& a, const Tried& b) {
            return a.attempt.shortage->missing < b.attempt.shortage->missing;
          });
      refusal.reason_code = Reason::kDoesNotFit;
      refusal.pool = least->attempt.shortage->pool;
      refusal.missing_bytes = least->attempt.shortage->missing;
      refusal.nearest = Nearest(options);
      refusal.reason =
          "no placement fits" +
          std::string(in_.request.evictable.empty() ? "" : ", even with every idle model stopped") + ": " +
          FormatBytes(*refusal.missing_bytes) + " of " + refusal.pool + " are missing";
      refusal.next_step = refusal.nearest
                              ? "Ask for " + std::to_string(*refusal.nearest->sessions) +
                                    " session(s) and a context of " +
                                    std::to_string(*refusal.nearest->context) + " tokens, or free memory."
                              : "Use a smaller variant of the model, or a machine with more memory.";
    } else {
      Otherwise(refusal);
    }
    plan_.refusal = std::move(refusal);
  }

  // Nothing came as far as memory: the most telling of the rejections.
  void Otherwise(Refusal& refusal) const {
    const Reason order[] = {Reason::kContractUnsatisfiable, Reason::kDeviceNotUsable,
                            Reason::kBackendUnavailable,    Reason::kUnverified,
                            Reason::kCapabilityMissing,     Reason::kFormatUnsupported,
                            Reason::kEngineNotInstalled,    Reason::kSystemUnsupported};
    refusal.reason_code = Reason::kContractUnsatisfiable;
    refusal.reason = "no engine can run this model here";
    refusal.next_step = "See the rejected candidates; install an engine, or relax the contract.";
    for (const Reason code : order) {
      for (const Rejected& r : plan_.rejected) {
        if (r.reason_code != code) continue;
        refusal.reason_code = code;
        refusal.reason = r.reason;
        return;
      }
    }
  }

  // The largest context that fits somewhere, with the sessions asked for or else one.
  std::optional<Workload> Nearest(const std::vector<PlanOption>& options) const {
    for (const uint32_t sessions : {*in_.workload.sessions, 1u}) {
      std::optional<Workload> best;
      for (size_t i = 0; i < options.size(); ++i) {
        const PlanOption& option = options[i];
        if (Twin(options, i) != nullptr) continue;
        const uint32_t context = LargestContext(option, sessions);
        if (context == 0 || (best && *best->context >= context)) continue;
        best = in_.workload;
        best->context = context;
        best->sessions = sessions;
      }
      if (best) return best;
    }
    return std::nullopt;
  }

  uint32_t LargestContext(const PlanOption& option, uint32_t sessions) const {
    constexpr uint32_t kStep = 256;
    const auto fits = [&](uint32_t each) { return FitsAt(in_, option, each * sessions, sessions); };
    uint32_t low = 0, high = *in_.workload.context / sessions / kStep;
    if (high == 0 || !fits(kStep)) return 0;  // most options that lack room lack it at any length
    while (low < high) {
      const uint32_t middle = low + (high - low + 1) / 2;
      if (fits(middle * kStep)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low * kStep * sessions;
  }

  const PlanInputs& in_;
  Plan& plan_;
  const Room room_;
  bool energy_by_kind_ = false;
};

}  // namespace

absl::StatusOr<Plan> MakePlan(const PlanRequest& request, const Topology& topology,
                              const EngineCatalog& catalog, const Calibration& calibration) {
  RUMBO_ASSIGN_OR_RETURN(const Workload workload, CompleteWorkload(request, topology, catalog));
  Plan plan;
  plan.model = request.model;
  plan.hardware = topology.source;
  plan.ledger_generation = request.ledger.generation;
  plan.workload = workload;
  const PlanInputs inputs{request, topology, catalog, calibration, workload};
  Planning(inputs, plan).Run();
  return plan;
}

}  // namespace rumbo
