#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/memory_model.h"
#include "daemon/core/planner_candidate.h"
#include "daemon/core/speed_model.h"

namespace rumbo {

// What one trial varies.
struct Trial {
  uint32_t context = 0;
  uint32_t sessions = 1;
  std::string kv_type;
  uint32_t draft_tokens = 0;
  uint32_t offloaded = 0;        // layers + 1: all
  uint32_t experts_on_host = 0;  // layers whose routed experts stay in host memory
  TuningKnobs knobs;             // settings that a tuning run tried
};

// Turns a trial of one option into a candidate: reservations, settings, predictions, what must be evicted.
// Internal to the planner. Borrows its arguments.
class CandidateBuilder {
 public:
  CandidateBuilder(const PlanInputs& in, const PlanOption& option);

  const ModelDescriptor& model() const { return *model_; }  // only where the option has a variant
  bool accelerated() const { return accelerated_; }
  // Encoders: every input is seen whole, in one step, and yields no tokens.
  bool pooled() const;
  bool encoder() const;

  // What was measured of this option on this machine; empty for machines of profiles.
  const Corrections& corrections() const { return corrections_; }

  // `fit_only`: reservations and whether they fit, without settings and predictions.
  Attempt Build(const Trial& trial, bool fit_only = false) const;

 private:
  CacheShape ShapeOf(const Trial& trial) const;
  const StepBuffers& BuffersOf(const Trial& trial, const CacheShape& shape) const;
  void Layered(const Trial& trial, bool fit_only, Attempt& a) const;
  void Paged(const Trial& trial, bool fit_only, Attempt& a) const;
  void Whole(const Trial& trial, bool fit_only, Attempt& a) const;
  void Fixed(const Trial& trial, Attempt& a) const;
  std::vector<double> Split() const;
  bool ReserveSide(size_t device, const SideBytes& bytes, Attempt& a) const;
  // Weights, cache and compute buffers of a draft model, all on the host.
  void ReserveDraft(const Trial& trial, Candidate& c) const;
  void ReserveOnHost(const SideBytes& bytes, Candidate& c) const;
  void LayeredSettings(const Trial& trial, const CacheShape& shape, const LayerPlacement& placement,
                       Candidate& c) const;
  void CommonSettings(const Trial& trial, Candidate& c) const;
  void Speed(const Trial& trial, const CacheShape& shape, const std::vector<SpeedSide>& sides,
             Attempt& a) const;
  void Load(Candidate& c) const;
  void Correct(const Trial& trial, Attempt& a) const;
  void Fit(Attempt& a) const;
  void HostCache(Attempt& a) const;
  uint32_t Threads(const Trial& trial) const;

  const PlanInputs& in_;
  const PlanOption& option_;
  const ModelDescriptor* model_ = nullptr;
  const Device* host_ = nullptr;
  const Room room_;
  const CalibrationKey key_;
  const Corrections corrections_;
  // Buffers of the trial before: a search varies the placement far more often than the shape.
  mutable std::optional<std::pair<Trial, StepBuffers>> buffers_;
  bool accelerated_ = false;
};

}  // namespace rumbo
