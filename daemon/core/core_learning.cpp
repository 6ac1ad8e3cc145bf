// Learning: what loads and runs took, beside what was predicted for just these conditions.
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "daemon/core/core_impl.h"
#include "daemon/core/planner_candidate.h"

namespace rumbo {
namespace {

constexpr uint32_t kFewTokens = 16;  // of an answer: fewer say little about its rate
constexpr uint32_t kFirstRuns = 64;  // of one kind are all kept ...
constexpr std::chrono::seconds kThenEvery{
    5};  // ... then one now and then: load changes, the disk is not worn

}  // namespace

Measurement CoreImpl::MeasurementOf(const Instance& instance) const {
  const Candidate& chosen = *instance.plan.chosen;
  Measurement m;
  m.key = chosen.key;
  // What really runs, should the engine say other than its pack.
  if (!instance.engine_info.version.empty() && m.key.engine_version.empty())
    m.key.engine_version = instance.engine_info.version;
  m.context_total = chosen.settings.context_total.value_or(0);
  m.sessions = chosen.settings.sessions.value_or(1);
  m.knobs = chosen.knobs.Text();
  return m;
}

void CoreImpl::Learn(Measurement m) {
  m.unix_s = parts_.wall->UnixSeconds();
  if (parts_.measurements != nullptr) parts_.measurements->Add(m);
  rumbo::AddMeasurement(calibration_, std::move(m));
}

void CoreImpl::LearnLoad(const Instance& instance) {
  if (!instance.plan.chosen) return;
  const Candidate& chosen = *instance.plan.chosen;
  Measurement m = MeasurementOf(instance);
  m.predicted_memory = chosen.uncorrected_memory;
  m.measured_memory = instance.measured.memory;
  m.predicted_load_s = chosen.uncorrected.load_s;
  m.measured_load_s = std::chrono::duration<double>(Now() - instance.launched).count();
  Learn(std::move(m));
}

// Requests that were running, times seconds: its growth over a time is their mean number.
double CoreImpl::RunningSeconds(Instance& instance) {
  const TimePoint now = Now();
  instance.running_seconds += static_cast<double>(instance.running.size()) *
                              std::chrono::duration<double>(now - instance.running_since).count();
  instance.running_since = now;
  return instance.running_seconds;
}

// Call before the request leaves `running`.
void CoreImpl::LearnRun(Instance& instance, const ActiveRequest& request) {
  const FinishedEvent& f = request.finished();
  if (!instance.plan.chosen || instance.tuning || request.held_up() || f.completion_tokens < kFewTokens)
    return;
  const double seconds = std::chrono::duration<double>(Now() - request.dispatched()).count();
  if (!(seconds > 0)) return;
  const double mean = (RunningSeconds(instance) - request.running_mark()) / seconds;
  const double sessions = std::max(1.0, std::round(mean));
  if (std::abs(mean - sessions) > std::max(0.2, 0.15 * sessions)) return;  // neither so many nor so many
  const bool alone = mean < 1.05;
  const bool read_prompt = f.cached_tokens * 20 <= f.prompt_tokens && f.prompt_tokens > 1;
  RunKind& kind = instance.run_kinds[{CalibrationBucket(static_cast<uint32_t>(sessions)),
                                      alone && read_prompt ? CalibrationBucket(f.prompt_tokens) : 0}];
  if (++kind.seen > kFirstRuns && Now() - kind.last < kThenEvery) return;
  kind.last = Now();
  Measurement m = MeasurementOf(instance);
  m.sessions = static_cast<uint32_t>(sessions);
  m.prompt_tokens = f.prompt_tokens;
  const Predicted predicted = PredictedOf(instance, m.sessions, f.prompt_tokens, f.completion_tokens);
  m.predicted_decode_tok_s = predicted.decode_tok_s;
  m.measured_decode_tok_s = f.decode_tok_s;
  if (alone && read_prompt) {
    m.predicted_ttft_ms = predicted.ttft_ms;
    m.measured_ttft_ms = f.ttft_ms;
  }
  Learn(std::move(m));
}

// By the formulas, for what really ran.
Predicted CoreImpl::PredictedOf(const Instance& instance, uint32_t sessions, uint32_t prompt_tokens,
                                uint32_t answer_tokens) const {
  PlanRequest request =
      MakePlanRequest(instance.spec.model, VariantsOf(instance.spec.model), instance.spec.workload,
                      instance.spec.contract, instance.spec.overrides);
  Workload workload = instance.plan.workload;
  workload.sessions = sessions;
  workload.prompt_tokens = std::max(prompt_tokens, 1u);
  workload.answer_tokens = answer_tokens;
  const PlanInputs inputs{request, *topology_, *parts_.catalog, calibration_, workload};
  return PredictRun(inputs, *instance.plan.chosen);
}

}  // namespace rumbo
