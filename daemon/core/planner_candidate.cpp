#include "daemon/core/planner_candidate.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "daemon/core/memory_model.h"
#include "daemon/core/planner_builder.h"

namespace rumbo {
namespace {

constexpr uint32_t kMinContext = 256;  // per session, when the planner shortens

double Score(const PlanInputs& in, const Attempt& a) {
  const Predicted& p = a.candidate.predicted;
  const std::string& objective = in.workload.objective;
  if (objective == "memory") {
    double bytes = 0;
    for (const MemoryItem& item : a.candidate.memory) bytes += static_cast<double>(item.bytes);
    return bytes;
  }
  if (objective == "energy" && p.energy_j_per_tok) return *p.energy_j_per_tok;
  if (objective == "throughput" && p.aggregate_tok_s && *p.aggregate_tok_s > 0) return 1 / *p.aggregate_tok_s;
  if (objective == "energy" || objective == "throughput" || !a.loaded_ttft_ms) return kUnknownScore;
  if (!p.decode_tok_s) return *a.loaded_ttft_ms / 1e3;  // nothing to decode
  return *p.decode_tok_s > 0 ? *a.loaded_ttft_ms / 1e3 + *in.workload.answer_tokens / *p.decode_tok_s
                             : kUnknownScore;
}

// Less is better: first what fits, then the score, then fewer evictions.
bool Better(const Attempt& a, const Attempt& b) {
  const auto rank = [](const Attempt& x) { return !x.why_not.empty() ? 2 : x.shortage ? 1 : 0; };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) == 1 && a.shortage->missing != b.shortage->missing)
    return a.shortage->missing < b.shortage->missing;
  if (a.score != b.score) return a.score < b.score;
  return a.evictions.size() < b.evictions.size();
}

// Tokens a draft model guesses where nobody says.
constexpr uint32_t kDraftModelTokens = 4;

class Search {
 public:
  Search(const PlanInputs& in, const PlanOption& option)
      : in_(in),
        option_(option),
        builder_(in, option),
        layered_(option.engine->memory == MemoryModel::kLayered),
        cached_(layered_ || option.engine->memory == MemoryModel::kPaged) {
    if (option.variant != nullptr) layers_ = static_cast<uint32_t>(option.variant->descriptor.layers.size());
  }

  Attempt At(uint32_t context, uint32_t sessions) {
    Trial trial = Start(context, sessions);
    if (!cached_) return Scored(trial);
    if (Attempt refused; !CacheTypes(trial, refused)) return refused;
    Attempt best = Drafts(trial);
    // A smaller cache only where the default one does not fit and nobody chose one.
    if (best.shortage && in_.request.overrides.kv_type.empty() && types_.size() > 1) {
      trial.kv_type = types_[1];
      if (Holds(trial)) {
        best = Drafts(trial);
        best.candidate.reasons.push_back("the " + types_[0] + " cache does not fit, the " + types_[1] +
                                         " cache does");
      }
      trial.kv_type = types_[0];
    }
    if (best.shortage) {
      Attempt partial = Partial(trial);
      if (!partial.shortage && partial.why_not.empty()) {
        partial.candidate.reasons.push_back("all of it would need " + FormatBytes(best.shortage->missing) +
                                            " more of " + best.shortage->pool);
      }
      if (Better(partial, best)) best = std::move(partial);
    }
    return best;
  }

  bool Fits(uint32_t context, uint32_t sessions) {
    Trial trial = Start(context, sessions);
    Attempt refused;
    if (cached_ && !CacheTypes(trial, refused)) return false;
    const auto fits = [&] { return Holds(trial); };
    if (fits()) return true;
    if (!cached_) return false;
    if (in_.request.overrides.kv_type.empty() && types_.size() > 1) {
      trial.kv_type = types_[1];
      if (fits()) return true;
      trial.kv_type = types_[0];
    }
    if (!MayStayOnHost()) return false;
    trial.experts_on_host = layers_;
    if (builder_.model().experts > 0 && fits()) return true;
    trial.offloaded = 0;
    return fits();
  }

 private:
  bool Holds(const Trial& trial) const {
    const Attempt a = builder_.Build(trial, /*fit_only=*/true);
    return a.why_not.empty() && !a.shortage;
  }

  Trial Start(uint32_t context, uint32_t sessions) const {
    Trial trial;
    trial.context = context;
    trial.sessions = std::min(sessions, option_.engine->max_sessions);
    trial.offloaded = in_.request.overrides.gpu_layers
                          ? std::min(*in_.request.overrides.gpu_layers, layers_ + 1)
                          : layers_ + 1;
    return trial;
  }

  // With the settings that a tuning run found best for so many sessions, where there was one.
  Attempt Scored(Trial trial) const {
    if (in_.request.overrides.knobs) trial.knobs = TuningKnobs::Parse(*in_.request.overrides.knobs);
    Attempt best = ScoredAs(trial);
    for (const std::string& text : TunedKnobs(trial.sessions)) {
      trial.knobs = TuningKnobs::Parse(text);
      Attempt a = ScoredAs(trial);
      if (!Better(a, best)) continue;
      a.candidate.reasons.push_back("settings found by tuning here: " + text);
      best = std::move(a);
    }
    return best;
  }

  std::vector<std::string> TunedKnobs(uint32_t sessions) const {
    std::vector<std::string> out;
    if (in_.request.overrides.knobs) return out;
    for (const std::string& text : builder_.corrections().TunedKnobs(sessions)) {
      const TuningKnobs knobs = TuningKnobs::Parse(text);
      if (!text.empty() && layered_ && !(knobs.threads && in_.request.overrides.threads)) out.push_back(text);
    }
    return out;
  }

  Attempt ScoredAs(const Trial& trial) const {
    Attempt a = builder_.Build(trial);
    a.score = Score(in_, a);
    // What is less proven must be that much better to be chosen.
    const auto caution = in_.catalog.caution.find(option_.maturity);
    if (caution != in_.catalog.caution.end() && a.score < kUnknownScore) a.score *= caution->second;
    return a;
  }

  // Fills types_ and the trial's default; or says why none works.
  bool CacheTypes(Trial& trial, Attempt& refused) {
    const std::string& wanted = in_.request.overrides.kv_type;
    types_.clear();
    for (const std::string& type : option_.backend->kv_types) {
      if ((wanted.empty() || type == wanted) && Usable(type)) types_.push_back(type);
    }
    const auto advised = option_.settings.find("kv_type");
    if (wanted.empty() && advised != option_.settings.end()) {
      const auto at = std::find(types_.begin(), types_.end(), advised->second);
      if (at != types_.end()) std::rotate(types_.begin(), at, at + 1);
    }
    if (!types_.empty()) {
      trial.kv_type = types_[0];
      return true;
    }
    refused.reason_code = Reason::kCapabilityMissing;
    refused.why_not = wanted.empty()
                          ? "no cache type fits the heads of this model"
                          : "a " + wanted + " cache does not work with this engine, device and model";
    return false;
  }

  bool Usable(const std::string& type) const {
    const auto& hardware = option_.backend->kv_types_hardware;
    if (std::find(hardware.begin(), hardware.end(), type) != hardware.end()) {
      for (const Device* device : option_.devices) {
        const auto& formats = device->number_formats;
        if (std::find(formats.begin(), formats.end(), type) == formats.end()) return false;
      }
    }
    const uint32_t block = CacheBlock(type);
    if (block <= 1) return block == 1;
    for (const LayerDescriptor& layer : builder_.model().layers) {
      if (layer.kv_heads == 0) continue;
      if (layer.key_length % block != 0 || layer.value_length % block != 0) return false;
    }
    return true;
  }

  // Draft depth by acceptance and step cost. Where nobody knows the acceptance, the depth that publishers
  // advise is taken if it is about as good as the best computed one.
  Attempt Drafts(Trial trial) const {
    const PlanOverrides& chosen = in_.request.overrides;
    const bool drafted = in_.request.draft != nullptr;
    if (chosen.draft_tokens || drafted) {
      trial.draft_tokens = chosen.draft_tokens.value_or(kDraftModelTokens);
      if (trial.draft_tokens == 0) return Scored(trial);
      if (builder_.pooled() || !(drafted ? option_.engine->draft_models : option_.engine->speculative) ||
          (!drafted && builder_.model().mtp_layers == 0)) {
        Attempt refused;
        refused.reason_code = Reason::kCapabilityMissing;
        refused.why_not =
            drafted ? "the engine takes no draft model" : "the model has no heads that guess ahead";
        return refused;
      }
      return Scored(trial);
    }
    Attempt best = Scored(trial);
    if (builder_.model().mtp_layers == 0 || !option_.engine->speculative || builder_.pooled()) return best;
    const uint32_t advised = AdvisedDrafts();
    std::optional<Attempt> prior;
    for (uint32_t drafts = 1; drafts <= option_.engine->max_draft_tokens; ++drafts) {
      trial.draft_tokens = drafts;
      Attempt a = Scored(trial);
      if (drafts == advised) prior = a;
      if (Better(a, best)) best = std::move(a);
    }
    const auto tie = in_.catalog.assumptions.find("draft_tie");
    const double slack = 1 + (tie == in_.catalog.assumptions.end() ? 0 : tie->second);
    if (prior && !in_.workload.draft_acceptance && prior->why_not.empty() &&
        prior->shortage.has_value() == best.shortage.has_value() && prior->score <= best.score * slack) {
      if (prior->candidate.settings.draft_tokens != best.candidate.settings.draft_tokens) {
        prior->candidate.reasons.push_back("drafts " + std::to_string(advised) +
                                           " tokens per step as its publisher advises; " +
                                           std::to_string(best.candidate.settings.draft_tokens.value_or(0)) +
                                           " is computed to be about as fast");
      }
      return *std::move(prior);
    }
    return best;
  }

  uint32_t AdvisedDrafts() const {
    const auto it = option_.settings.find("draft_tokens");
    return it == option_.settings.end()
               ? 0
               : static_cast<uint32_t>(std::strtoul(it->second.c_str(), nullptr, 10));
  }

  bool MayStayOnHost() const {
    return layered_ && builder_.accelerated() && option_.backend->partial_offload &&
           !in_.request.overrides.gpu_layers;
  }

  // Part of the layers, or the routed experts, in host memory.
  Attempt Partial(Trial trial) const {
    if (!MayStayOnHost()) {
      Attempt none;
      none.why_not = "no part of it may stay in host memory";
      return none;
    }
    if (builder_.model().experts > 0) {
      Attempt a = Smallest(trial, [](Trial& t, uint32_t n) { t.experts_on_host = n; });
      if (!a.shortage) {
        a.candidate.reasons.push_back("the routed experts of " +
                                      a.candidate.settings.extra["experts_on_host"] +
                                      " layers stay in host memory, the rest is on the device");
        return a;
      }
      trial.experts_on_host = layers_;
    }
    Attempt a = Smallest(trial, [&](Trial& t, uint32_t n) { t.offloaded = layers_ - n; });
    if (!a.shortage) {
      a.candidate.reasons.push_back(std::to_string(a.candidate.settings.gpu_layers.value_or(0)) + " of " +
                                    std::to_string(layers_ + 1) +
                                    " layers fit on the device, the rest stays in host memory");
    }
    return a;
  }

  // The attempt for the smallest n up to the number of layers that fits, where fitting grows with n; the one
  // for all layers where none does.
  template <typename Set>
  Attempt Smallest(Trial trial, const Set& set) const {
    uint32_t low = 0, high = layers_;
    set(trial, high);
    Attempt most = builder_.Build(trial, /*fit_only=*/true);
    if (most.shortage || !most.why_not.empty()) return most;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      set(trial, middle);
      if (Holds(trial)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    set(trial, high);
    return Scored(trial);
  }

  const PlanInputs& in_;
  const PlanOption& option_;
  CandidateBuilder builder_;
  const bool layered_, cached_;
  uint32_t layers_ = 0;
  std::vector<std::string> types_;
};

}  // namespace

Attempt TryOptionAt(const PlanInputs& in, const PlanOption& option, uint32_t context, uint32_t sessions) {
  return Search(in, option).At(context, sessions);
}

bool FitsAt(const PlanInputs& in, const PlanOption& option, uint32_t context, uint32_t sessions) {
  return Search(in, option).Fits(context, sessions);
}

Predicted PredictRun(const PlanInputs& in, const Candidate& placement) {
  const PlanOptions options = EnumerateOptions(in.request, in.topology, in.catalog);
  for (const PlanOption& option : options.options) {
    if (option.engine->name != placement.engine || option.build != placement.engine_build ||
        option.backend->name != placement.backend ||
        (option.variant == nullptr ? "" : option.variant->id) != placement.variant ||
        !std::equal(option.devices.begin(), option.devices.end(), placement.devices.begin(),
                    placement.devices.end(),
                    [](const Device* device, const std::string& id) { return device->id == id; })) {
      continue;
    }
    Trial trial;
    trial.context = std::max(*in.workload.context, *in.workload.sessions);
    trial.sessions = *in.workload.sessions;
    trial.kv_type = placement.settings.kv_type_k;
    trial.draft_tokens = placement.settings.draft_tokens.value_or(0);
    trial.offloaded = placement.settings.gpu_layers.value_or(0);
    const auto experts = placement.settings.extra.find("experts_on_host");
    if (experts != placement.settings.extra.end())
      trial.experts_on_host = static_cast<uint32_t>(std::strtoul(experts->second.c_str(), nullptr, 10));
    trial.knobs = placement.knobs;
    return CandidateBuilder(in, option).Build(trial).candidate.uncorrected;
  }
  return {};
}

Attempt TryOption(const PlanInputs& in, const PlanOption& option) {
  const uint32_t sessions = *in.workload.sessions;
  Attempt best = TryOptionAt(in, option, *in.workload.context, sessions);
  if (!best.shortage || in.request.workload.context) return best;
  const uint32_t least = std::max(kMinContext, in.request.contract.min_context.value_or(0));
  if (!FitsAt(in, option, least * sessions, sessions)) return best;  // too large at any length
  for (uint32_t each = *in.workload.context / sessions / 2; each >= least; each /= 2) {
    if (!FitsAt(in, option, each * sessions, sessions)) continue;
    Attempt a = TryOptionAt(in, option, each * sessions, sessions);
    if (a.shortage) continue;
    a.candidate.reasons.push_back("the default context does not fit: shortened to " + std::to_string(each) +
                                  " tokens per session");
    return a;
  }
  return best;
}

}  // namespace rumbo
