// Tuning: one model measured with every way this machine has to run it.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/status.h"
#include "daemon/core/core_impl.h"
#include "engines/api/catalog.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kPromptWords = 96, kAnswerTokens = 48;
constexpr size_t kRounds = 7;       // of one trial, where they are quick
constexpr double kLongTrial = 6;    // seconds; rounds that took so long together are enough
constexpr double kHopeless = 1.5;   // so many times slower than the best in the first round: enough
constexpr milliseconds kPoll{250};  // how soon a cancel is noticed
constexpr seconds kLongestLimit{24 * 3600};

// Different prompts that share no prefix, the same in every run.
std::string PromptOf(uint32_t number) {
  static constexpr const char* kWords[] = {"river", "stone",  "lamp",   "copper", "window", "garden",
                                           "paper", "engine", "winter", "market", "bridge", "letter"};
  std::string text;
  uint64_t state = 0x9e3779b97f4a7c15ull * (number + 1);
  for (uint32_t i = 0; i < kPromptWords; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    text += std::string(i == 0 ? "" : " ") + kWords[(state >> 33) % std::size(kWords)];
  }
  return text;
}

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// One request's end, brought to whoever counts them.
class TrialSink final : public AnswerSink {
 public:
  explicit TrialSink(std::function<void(const absl::Status&, const FinishedEvent*)> on_end)
      : on_end_(std::move(on_end)) {}
  void OnPlaced(const Placement&) override {}
  void OnStarted(const StartedEvent&) override {}
  bool OnChunk(ChunkEvent&) override { return true; }
  void OnEnd(const absl::Status& status, const FinishedEvent* finished) override {
    on_end_(status, finished);
  }

 private:
  const std::function<void(const absl::Status&, const FinishedEvent*)> on_end_;
};

}  // namespace

// One run, on the core's executor from its start to its end. Keeps itself alive while it waits for something.
class CoreImpl::Tuning : public std::enable_shared_from_this<Tuning> {
 public:
  Tuning(CoreImpl* core, TuneSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
         std::function<void(const TuneEvent&)> progress, Callback<TuneResult> done)
      : core_(core),
        door_(core->door()),
        spec_(std::move(spec)),
        cancelled_(std::move(cancelled)),
        progress_(std::move(progress)),
        done_(std::move(done)) {}

  void Start() {
    begun_ = core_->Now();
    if (const absl::Status ok = Plan(); !ok.ok()) return End(ok);
    Watch();
    Next();
  }

 private:
  // A way to run the model, with so many sessions.
  struct Trial {
    TuneTrial shown;
    PlanOverrides overrides;
  };
  struct Round {
    double seconds = 0, tokens = 0;
    std::vector<double> decode, ttft, prompt;
  };

  // The trials: every placement that fits, for each number of sessions.
  absl::Status Plan() {
    for (const uint32_t sessions : spec_.sessions) {
      PlanRequest request =
          core_->MakePlanRequest(spec_.model, core_->VariantsOf(spec_.model), {}, {}, spec_.overrides);
      request.workload.sessions = sessions;
      request.evictable = core_->Evictable(nullptr, false);
      RUMBO_ASSIGN_OR_RETURN(
          const rumbo::Plan plan,
          rumbo::MakePlan(request, *core_->topology_, *core_->parts_.catalog, core_->calibration_));
      if (!plan.chosen) continue;
      Add(sessions, plan.chosen->variant, plan.chosen->engine, plan.chosen->engine_build,
          plan.chosen->backend, plan.chosen->devices);
      for (const Rejected& r : plan.rejected) {
        // Twins of a device that is tried have no figures of their own.
        if (r.reason_code == Reason::kSlowerThanChosen && !r.memory.empty())
          Add(sessions, r.variant, r.engine, r.engine_build, r.backend, r.devices);
      }
    }
    if (trials_.empty()) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kDoesNotFit,
                   "nothing here can run " + spec_.model, "`rumbo plan " + spec_.model + "` says why.");
    }
    return absl::OkStatus();
  }

  void Add(uint32_t sessions, const std::string& variant, const std::string& engine, const std::string& build,
           const std::string& backend, const std::vector<std::string>& devices) {
    Trial trial;
    trial.shown.variant = variant;
    trial.shown.engine = engine;
    trial.shown.engine_build = build;
    trial.shown.backend = backend;
    trial.shown.devices = devices;
    trial.shown.sessions = sessions;
    trial.overrides = spec_.overrides;
    trial.overrides.variant = variant;
    trial.overrides.engine = engine;
    trial.overrides.build = build;
    trial.overrides.backend = backend;
    if (devices.size() == 1) trial.overrides.device = devices.front();
    trial.overrides.knobs = "";
    trials_.push_back(std::move(trial));
  }

  // Settings to try beside the planner's own, with the best placement for so many sessions.
  void AddKnobs(const Trial& best) {
    const auto catalogued = core_->parts_.catalog->Find(best.shown.engine);
    if (catalogued == nullptr || catalogued->memory != MemoryModel::kLayered) return;
    std::vector<TuningKnobs> tries;
    if (best.shown.sessions > 1) {
      TuningKnobs batch;
      batch.batch = 2048;
      tries.push_back(batch);
    }
    const uint32_t threads = threads_;
    if (threads >= 4 && !spec_.overrides.threads) {
      TuningKnobs half;
      half.threads = threads / 2;
      tries.push_back(half);
    }
    for (const TuningKnobs& knobs : tries) {
      Trial trial = best;
      trial.shown = {};
      trial.shown.variant = best.shown.variant;
      trial.shown.engine = best.shown.engine;
      trial.shown.engine_build = best.shown.engine_build;
      trial.shown.backend = best.shown.backend;
      trial.shown.devices = best.shown.devices;
      trial.shown.sessions = best.shown.sessions;
      trial.shown.knobs = knobs.Text();
      trial.overrides.knobs = knobs.Text();
      trials_.push_back(std::move(trial));
    }
  }

  double Elapsed() const { return std::chrono::duration<double>(core_->Now() - begun_).count(); }
  bool TimeIsUp() const {
    return *cancelled_ || core_->draining_ || Elapsed() >= std::chrono::duration<double>(spec_.limit).count();
  }

  // Ends what runs where the time is up.
  void Watch() {
    core_->PostAfter(kPoll, [self = shared_from_this()] {
      if (self->ended_) return;
      if (self->TimeIsUp()) {
        for (const auto& call : self->calls_) call->Cancel();
      }
      self->Watch();
    });
  }

  void Tell(std::string step) {
    TuneEvent event;
    event.progress =
        TuneProgress{std::move(step), static_cast<uint32_t>(at_), static_cast<uint32_t>(trials_.size()),
                     Elapsed(), std::chrono::duration<double>(spec_.limit).count()};
    progress_(event);
  }

  void Next() {
    if (at_ == trials_.size() && !knobs_added_) {
      knobs_added_ = true;
      for (const uint32_t sessions : spec_.sessions) {
        if (const Trial* best = Best("throughput", sessions)) AddKnobs(Trial(*best));
      }
    }
    if (at_ == trials_.size() || TimeIsUp()) return Finish();
    Trial& trial = trials_[at_];
    const TuneTrial& t = trial.shown;
    Tell(t.engine + (t.engine_build.empty() ? "" : " " + t.engine_build) + " on " + t.backend + ", " +
         t.variant + ", " + std::to_string(t.sessions) + " session(s)" +
         (t.knobs.empty() ? "" : ", " + t.knobs));
    LoadSpec load;
    load.model = spec_.model;
    load.workload.sessions = t.sessions;
    load.overrides = trial.overrides;
    rounds_.clear();
    disturbed_ = false;
    core_->LoadModel(
        std::move(load), nullptr,
        [self = shared_from_this()](absl::StatusOr<LoadResult> loaded) { self->Loaded(std::move(loaded)); });
  }

  void Loaded(absl::StatusOr<LoadResult> loaded) {
    if (!loaded.ok()) return Failed(MessageOf(loaded.status()));
    instance_ = loaded->instance_id;
    Instance* instance = core_->Find(instance_);
    if (instance == nullptr) return Failed("it ended at once");
    instance->tuning = true;
    trials_[at_].shown.engine_version = instance->plan.chosen->engine_version;
    threads_ = instance->plan.chosen->settings.threads.value_or(0);
    Run(1, [self = shared_from_this()](Round) {
      self->Measure();
    });  // the first touches what is not in memory yet
  }

  void Measure() {
    Run(trials_[at_].shown.sessions, [self = shared_from_this()](Round round) {
      self->rounds_.push_back(round);
      if (self->Enough(round)) {
        self->Record();
      } else {
        self->Measure();
      }
    });
  }

  bool Enough(const Round& round) const {
    double seconds = 0;
    for (const Round& r : rounds_) seconds += r.seconds;
    return rounds_.size() >= kRounds || seconds > kLongTrial || Hopeless(round);
  }

  bool Hopeless(const Round& round) const {
    const uint32_t sessions = trials_[at_].shown.sessions;
    const Trial* fast = Best("throughput", sessions);
    const Trial* soon = Best("latency", sessions);
    if (fast == nullptr || soon == nullptr) return false;
    return round.tokens / round.seconds * kHopeless < *fast->shown.aggregate_tok_s &&
           MedianOf(round.ttft) > *soon->shown.ttft_ms * kHopeless;
  }

  // `count` requests at once.
  void Run(uint32_t count, std::function<void(Round)> then) {
    if (TimeIsUp()) return Finish();
    struct State {
      Round round;
      uint32_t left = 0;
      absl::Status status;
    };
    auto state = std::make_shared<State>();
    state->left = count;
    const TimePoint begin = core_->Now();
    calls_.clear();
    disturbed_ = disturbed_ || OthersRun();
    for (uint32_t i = 0; i < count; ++i) {
      InferenceRequest request;
      request.model = spec_.model;
      request.generate.input.prompt = PromptOf(prompts_++);
      request.generate.sampling.max_tokens = kAnswerTokens;
      request.generate.sampling.temperature = 0.f;
      request.generate.sampling.ignore_eos = true;
      request.overrides = trials_[at_].overrides;
      request.workload.sessions = trials_[at_].shown.sessions;
      request.client.app = "tune";
      auto end = [self = shared_from_this(), state, then, begin](const absl::Status& status,
                                                                 const FinishedEvent* finished) {
        const FinishedEvent f = finished != nullptr ? *finished : FinishedEvent{};
        self->door_.Post([self, state, then, begin, status, f] {
          if (!status.ok()) {
            state->status.Update(status);
          } else {
            state->round.tokens += f.completion_tokens;
            state->round.decode.push_back(f.decode_tok_s);
            state->round.ttft.push_back(f.queue_ms + f.ttft_ms);
            state->round.prompt.push_back(f.prompt_tokens);
          }
          if (--state->left > 0) return;
          self->calls_.clear();
          self->disturbed_ = self->disturbed_ || self->OthersRun();
          state->round.seconds = std::chrono::duration<double>(self->core_->Now() - begin).count();
          if (self->TimeIsUp()) return self->Finish();
          if (!state->status.ok()) return self->Failed(MessageOf(state->status));
          then(state->round);
        });
      };
      calls_.push_back(core_->Generate(std::move(request), std::make_shared<TrialSink>(std::move(end))));
    }
  }

  // Somebody else's requests are being answered.
  bool OthersRun() const {
    return std::any_of(core_->instances_.begin(), core_->instances_.end(), [&](const auto& entry) {
      return entry.first != instance_ && !entry.second->running.empty();
    });
  }

  // Medians over the rounds; to the planner's knowledge unless somebody disturbed them.
  void Record() {
    TuneTrial& t = trials_[at_].shown;
    std::vector<double> decode, aggregate, ttft, prompt;
    for (const Round& round : rounds_) {
      decode.push_back(MedianOf(round.decode));
      ttft.push_back(MedianOf(round.ttft));
      prompt.push_back(MedianOf(round.prompt));
      aggregate.push_back(round.seconds > 0 ? round.tokens / round.seconds : 0);
    }
    t.decode_tok_s = MedianOf(decode);
    t.ttft_ms = MedianOf(ttft);
    t.aggregate_tok_s = MedianOf(aggregate);
    Instance* instance = core_->Find(instance_);
    if (instance == nullptr || !instance->plan.chosen)
      return Failed("the instance ended while it was measured");
    Measurement m = core_->MeasurementOf(*instance);
    m.sessions = t.sessions;
    m.prompt_tokens = static_cast<uint32_t>(std::lround(MedianOf(prompt)));
    const Predicted p = core_->PredictedOf(*instance, t.sessions, m.prompt_tokens, kAnswerTokens);
    t.predicted_decode_tok_s = m.predicted_decode_tok_s = p.decode_tok_s;
    t.predicted_ttft_ms = m.predicted_ttft_ms = p.ttft_ms;
    m.predicted_aggregate_tok_s = p.aggregate_tok_s;
    m.measured_decode_tok_s = t.decode_tok_s;
    m.measured_aggregate_tok_s = t.aggregate_tok_s;
    m.measured_ttft_ms = t.ttft_ms;
    m.tuned = true;
    if (disturbed_) {
      t.failed = "not kept: other models were at work meanwhile";
    } else {
      core_->Learn(std::move(m));
    }
    Done();
  }

  void Failed(std::string why) {
    if (TimeIsUp()) return Finish();
    trials_[at_].shown.failed = std::move(why);
    Done();
  }

  void Done() {
    TuneEvent event;
    event.trial = trials_[at_].shown;
    progress_(event);
    ++at_;
    Next();
  }

  // The best measured trial for so many sessions; null where none was measured.
  const Trial* Best(const std::string& objective, uint32_t sessions) const {
    const auto cost = [&](const Trial& trial) {
      const TuneTrial& t = trial.shown;
      return objective == "throughput" ? 1 / std::max(*t.aggregate_tok_s, 1e-9)
                                       : *t.ttft_ms / 1e3 + 256 / std::max(*t.decode_tok_s, 1e-9);
    };
    const Trial* best = nullptr;
    for (const Trial& trial : trials_) {
      if (trial.shown.sessions != sessions || !trial.shown.failed.empty() || !trial.shown.aggregate_tok_s)
        continue;
      if (best == nullptr || cost(trial) < cost(*best)) best = &trial;
    }
    return best;
  }

  void Finish() {
    if (ended_) return;
    TuneResult result;
    result.cut_short = at_ < trials_.size();
    result.trials = static_cast<uint32_t>(at_);
    result.elapsed_s = Elapsed();
    for (const uint32_t sessions : spec_.sessions) {
      for (const char* objective : {"latency", "throughput"}) {
        if (const Trial* best = Best(objective, sessions)) result.winners.push_back({objective, best->shown});
      }
    }
    End(std::move(result));
  }

  // Leaves nothing loaded: the next request gets the placement that was found best for it.
  void End(absl::StatusOr<TuneResult> result) {
    ended_ = true;
    for (const auto& call : calls_) call->Cancel();
    core_->tuning_ = false;
    if (instance_.empty() || core_->Find(instance_) == nullptr) return done_(std::move(result));
    core_->UnloadModel(instance_, milliseconds(0),
                       [self = shared_from_this(), result = std::move(result)](
                           const absl::StatusOr<std::vector<std::string>>&) { self->done_(result); });
  }

  CoreImpl* const core_;  // used on the executor, inside the door, only
  const Door door_;
  const TuneSpec spec_;
  const std::shared_ptr<std::atomic<bool>> cancelled_;
  const std::function<void(const TuneEvent&)> progress_;
  const Callback<TuneResult> done_;

  TimePoint begun_{};
  std::vector<Trial> trials_;
  size_t at_ = 0;
  bool knobs_added_ = false;
  bool ended_ = false;
  bool disturbed_ = false;
  uint32_t threads_ = 0;
  uint32_t prompts_ = 0;
  std::string instance_;
  std::vector<Round> rounds_;
  std::vector<std::unique_ptr<GenerateCall>> calls_;
};

void CoreImpl::TuneModel(TuneSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
                         std::function<void(const TuneEvent&)> progress, Callback<TuneResult> done) {
  Post([this, spec = std::move(spec), cancelled, progress = std::move(progress), done = std::move(done)] {
    WhenModels([this, spec, cancelled, progress, done] {
      const auto refuse = [&](std::string why, std::string next) {
        done(Error(absl::StatusCode::kFailedPrecondition, Reason::kInvalidArgument, std::move(why),
                   std::move(next)));
      };
      const auto model = FindModel(spec.model);
      if (!model.ok()) return done(model.status());
      if (spec.limit <= seconds(0) || spec.limit > kLongestLimit || spec.sessions.empty() ||
          spec.sessions.size() > 16) {
        return done(
            InvalidArgument("a tuning run takes from 1 s to a day, with at most 16 numbers of sessions"));
      }
      for (const StoredVariant& variant : (*model)->variants) {
        const auto& can = variant.descriptor.capabilities;
        if (std::find(can.begin(), can.end(), "generate") == can.end()) {
          return done(Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                            spec.model + " writes no text: there is nothing to tune yet for such models"));
        }
      }
      if (tuning_) return refuse("another tuning run is under way", "Wait for its end, or cancel it.");
      for (const auto& [id, instance] : instances_) {
        if (!instance->running.empty() || instance->borrowed > 0)
          return refuse(instance->info.model + " is at work: measurements would mean little",
                        "Tune when the machine has nothing else to do.");
        if (instance->info.model == spec.model && instance->info.pinned)
          return refuse(spec.model + " is pinned", "`rumbo pin " + spec.model + " --off` first.");
      }
      tuning_ = true;
      auto run = std::make_shared<Tuning>(this, spec, cancelled, progress, done);
      WhenTopology([this, run, done](absl::Status status) {
        if (status.ok()) return run->Start();
        tuning_ = false;
        done(status);
      });
    });
  });
}

}  // namespace rumbo
