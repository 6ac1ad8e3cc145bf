// What the core learns from loads and runs, and what tuning runs find.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/fakes/core_world.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using testing::CoreWorld;

class KeptLog final : public MeasurementLog {
 public:
  void Add(Measurement m) override { kept.push_back(std::move(m)); }
  std::vector<Measurement> kept;
};

// A daemon with the real catalog, two builds of one engine, and a machine whose speed the test sets.
class CoreLearningTest : public ::testing::Test {
 protected:
  CoreLearningTest() {
    topology_.topology = testing::CpuMachine(64 * kGiB);
    StoredModel model;
    model.name = "m";
    StoredVariant variant;
    variant.sha256 = "abc";
    variant.files = {"/models/m"};
    variant.descriptor = testing::DenseModel(4 * kGiB);
    model.variants.push_back(variant);
    store_.models["m"] = model;
    Restart();
  }

  void Restart() {
    core_.reset();
    Calibration known;
    for (const Measurement& m : log_.kept) AddMeasurement(known, m);
    Core::Parts parts;
    parts.executor = &executor_;
    parts.launcher = &launcher_;
    parts.store = &store_;
    parts.inspector = &inspector_;
    parts.topology = &topology_;
    parts.wall = &wall_;
    parts.catalog = &BuiltInCatalog();
    parts.calibration = &known;
    parts.engines = {{"llamacpp", "native", "1", {"cpu"}}, {"llamacpp", "prebuilt", "1", {"cpu"}}};
    parts.measurements = &log_;
    core_ = Core::Create({}, parts);
    core_->Start();
    executor_.RunReady();
  }

  Plan PlanFor(uint32_t sessions, const std::string& objective = "") {
    PlanQuery query;
    query.model = "m";
    query.workload.sessions = sessions;
    query.workload.objective = objective;
    query.workload.prompt_tokens = 100;
    CoreWorld::Answer<Plan> plan;
    core_->MakePlan(query, plan.callback());
    executor_.RunReady();
    EXPECT_TRUE(plan.status().ok());
    return plan.get();
  }

  // Milliseconds per step and for a prompt with `n` requests at once, by build.
  double StepMs(const std::string& build, size_t n) const {
    return (build == fast_ ? 50 : 80) * (1 + 0.25 * static_cast<double>(n - 1));
  }
  static constexpr int kPromptMs = 400;

  struct Ask {
    std::shared_ptr<testing::Heard> heard = std::make_shared<testing::Heard>();
    std::unique_ptr<GenerateCall> call;
  };
  Ask Send(uint32_t sessions) {
    InferenceRequest request;
    request.id = NewRequestId();
    request.model = "m";
    request.workload.sessions = sessions;
    request.generate.input.prompt = "hello";
    Ask ask;
    ask.call = core_->Generate(std::move(request), ask.heard);
    executor_.RunReady();
    return ask;
  }

  // The engine's work: a prompt, then `tokens` tokens for everybody at once, until nobody asks any more.
  void Play(uint32_t tokens, const std::function<bool()>& done) {
    for (int i = 0; i < 200000 && !done(); ++i) {
      FakeProcess* process = nullptr;
      for (const auto& p : launcher_.processes) {
        if (p->alive() && p->open_replies() > 0) process = p.get();
      }
      if (process == nullptr) {
        executor_.Advance(milliseconds(10));
        continue;
      }
      const size_t n = process->open_replies();
      if (process->open_reply().tokens() == 0)
        executor_.Advance(milliseconds(kPromptMs * n));
      else
        executor_.Advance(milliseconds(std::lround(StepMs(process->spec.engine_build, n))));
      std::vector<std::shared_ptr<FakeReply>> open;
      for (const auto& reply : process->replies) {
        if (reply->open()) open.push_back(reply);
      }
      for (const auto& reply : open) {
        reply->prompt_tokens = 100;
        reply->Token();
        if (reply->tokens() >= tokens) reply->Finish();
      }
      executor_.RunReady();
    }
    EXPECT_TRUE(done());
  }

  void RunOnce(uint32_t sessions, uint32_t at_once) {
    std::vector<Ask> asks;
    for (uint32_t i = 0; i < at_once; ++i) asks.push_back(Send(sessions));
    Play(64, [&] {
      return std::all_of(asks.begin(), asks.end(), [](const Ask& a) { return a.heard->ended(); });
    });
    for (const Ask& ask : asks) EXPECT_TRUE(ask.heard->status.ok()) << MessageOf(ask.heard->status);
  }

  ManualExecutor executor_;
  FakeLauncher launcher_{&executor_};
  FakeModelStore store_{&executor_};
  FakeModelInspector inspector_{&executor_};
  FakeTopologySource topology_{&executor_};
  FakeWallClock wall_;
  std::string fast_ = "native";  // the build that is faster on this machine
  KeptLog log_;
  std::unique_ptr<Core> core_;
};

TEST_F(CoreLearningTest, AfterTenRunsTheNextPredictionIsWithinTenPercent) {
  const Plan before = PlanFor(1);
  ASSERT_TRUE(before.chosen && before.chosen->predicted.decode_tok_s);
  EXPECT_EQ(before.chosen->predicted.source, "formula");
  EXPECT_GT(std::abs(*before.chosen->predicted.decode_tok_s / 20 - 1), 0.1) << "the test would prove nothing";
  for (int i = 0; i < 10; ++i) RunOnce(1, 1);
  const Plan after = PlanFor(1);
  EXPECT_NEAR(*after.chosen->predicted.decode_tok_s, 20, 2);
  EXPECT_NEAR(*after.chosen->predicted.ttft_ms, kPromptMs, kPromptMs / 10);
  EXPECT_NE(after.chosen->predicted.source.find("measured here"), std::string::npos);
  EXPECT_EQ(after.chosen->uncorrected.decode_tok_s, before.chosen->uncorrected.decode_tok_s);
}

TEST_F(CoreLearningTest, SessionsThatRunTogetherAreLearnedAsSuch) {
  RunOnce(8, 1);
  RunOnce(8, 8);
  EXPECT_NEAR(*PlanFor(8).chosen->predicted.decode_tok_s, 1000 / StepMs("native", 8), 1);
  EXPECT_NEAR(*PlanFor(1).chosen->predicted.decode_tok_s, 20, 2);
}

TEST_F(CoreLearningTest, WhatWasLearnedSurvivesARestart) {
  RunOnce(1, 1);
  Restart();
  EXPECT_NEAR(*PlanFor(1).chosen->predicted.decode_tok_s, 20, 2);
}

TEST_F(CoreLearningTest, ALoadsMemoryCorrectsTheNextPlan) {
  const Plan before = PlanFor(1);
  launcher_.auto_ready = false;
  CoreWorld::Answer<LoadResult> load;
  LoadSpec spec;
  spec.model = "m";
  spec.workload.sessions = 1;
  core_->LoadModel(spec, nullptr, load.callback());
  executor_.RunReady();
  FakeProcess& process = launcher_.last();
  for (const MemoryItem& item : before.chosen->memory)
    process.info.memory.push_back(
        {"host", item.what, item.what == "compute" ? item.bytes * 2 : item.bytes, ""});
  process.Ready();
  executor_.RunReady();
  ASSERT_TRUE(load.status().ok());
  const Plan after = PlanFor(1);
  EXPECT_EQ(testing::SumOf(*after.chosen, "pool-system", "compute"),
            2 * testing::SumOf(*before.chosen, "pool-system", "compute"));
  EXPECT_EQ(testing::SumOf(*after.chosen, "pool-system", "weights"),
            testing::SumOf(*before.chosen, "pool-system", "weights"));
  for (const MemoryItem& item : after.chosen->memory) {
    if (item.what == "compute") {
      EXPECT_EQ(item.source, "measured here");
    }
  }
}

TEST_F(CoreLearningTest, ARunThatItsClientHeldUpTeachesNothing) {
  Ask ask = Send(1);
  ask.heard->pause = true;
  executor_.Advance(milliseconds(100));
  launcher_.last().open_reply().Token();
  executor_.Advance(std::chrono::seconds(5));
  ask.heard->pause = false;
  ask.call->Resume();
  Play(64, [&] { return ask.heard->ended(); });
  EXPECT_EQ(PlanFor(1).chosen->predicted.source, "formula");
}

TEST_F(CoreLearningTest, ManyRunsDoNotFloodTheDisk) {
  RunOnce(1, 1);
  const size_t first = log_.kept.size();
  // Six minutes of short answers.
  for (int i = 0; i < 300; ++i) {
    std::vector<Ask> asks;
    asks.push_back(Send(1));
    Play(16, [&] { return asks[0].heard->ended(); });
  }
  EXPECT_LE(log_.kept.size() - first, 64u + 300 * 1200 / 5000 + 1);
}

TEST_F(CoreLearningTest, TuningFindsTheFasterBuildAndLaterPlansTakeIt) {
  // The formulas think both builds equal, and the first wins; on this machine it is the slower one.
  EXPECT_EQ(PlanFor(4, "throughput").chosen->engine_build, "native");
  fast_ = "prebuilt";
  TuneSpec spec;
  spec.model = "m";
  spec.sessions = {1, 4};
  spec.limit = std::chrono::seconds(3600);
  std::vector<TuneTrial> trials;
  CoreWorld::Answer<TuneResult> result;
  core_->TuneModel(
      spec, std::make_shared<std::atomic<bool>>(false),
      [&](const TuneEvent& e) {
        if (e.trial) trials.push_back(*e.trial);
      },
      result.callback());
  executor_.RunReady();
  Play(48, [&] { return result.come(); });
  ASSERT_TRUE(result.status().ok()) << MessageOf(result.status());
  EXPECT_FALSE(result.get().cut_short);
  ASSERT_GE(trials.size(), 4u);
  for (const TuneTrial& t : trials) EXPECT_EQ(t.failed, "") << t.engine_build;
  for (const TuneWinner& w : result.get().winners) EXPECT_EQ(w.trial.engine_build, "prebuilt") << w.objective;
  EXPECT_EQ(result.get().winners.size(), 4u);
  executor_.Advance(std::chrono::seconds(10));
  CoreWorld::Answer<std::vector<InstanceInfo>> loaded;
  core_->ListInstances(loaded.callback());
  executor_.RunReady();
  EXPECT_TRUE(loaded.get().empty()) << "nothing stays loaded";
  const Plan plan = PlanFor(4, "throughput");
  EXPECT_EQ(plan.chosen->engine_build, "prebuilt");
  EXPECT_NE(plan.chosen->predicted.source.find("measured here: this model with as many sessions"),
            std::string::npos);
  bool slower = false;
  for (const Rejected& r : plan.rejected) {
    if (r.engine_build == "native" && r.predicted.decode_tok_s)
      slower = *r.predicted.decode_tok_s < *plan.chosen->predicted.decode_tok_s / 1.4;
  }
  EXPECT_TRUE(slower);
}

TEST_F(CoreLearningTest, TuningIsCancelledBoundedAndAlone) {
  TuneSpec spec;
  spec.model = "m";
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  CoreWorld::Answer<TuneResult> result, second;
  core_->TuneModel(
      spec, cancelled, [](const TuneEvent&) {}, result.callback());
  executor_.RunReady();
  core_->TuneModel(
      spec, cancelled, [](const TuneEvent&) {}, second.callback());
  executor_.RunReady();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  *cancelled = true;
  executor_.Advance(milliseconds(300));  // a request runs: nobody answers it
  executor_.Advance(std::chrono::seconds(6));
  ASSERT_TRUE(result.come());
  EXPECT_TRUE(result.get().cut_short);

  CoreWorld::Answer<TuneResult> bounded;
  spec.limit = std::chrono::seconds(5);
  core_->TuneModel(
      spec, std::make_shared<std::atomic<bool>>(false), [](const TuneEvent&) {}, bounded.callback());
  executor_.Advance(std::chrono::seconds(4));
  EXPECT_FALSE(bounded.come());
  executor_.Advance(std::chrono::seconds(8));
  ASSERT_TRUE(bounded.come());
  EXPECT_TRUE(bounded.get().cut_short);
}

TEST_F(CoreLearningTest, TuningRefusesWhatItCannotMeasure) {
  TuneSpec spec;
  spec.model = "none";
  const auto ask = [&] {
    CoreWorld::Answer<TuneResult> result;
    core_->TuneModel(
        spec, std::make_shared<std::atomic<bool>>(false), [](const TuneEvent&) {}, result.callback());
    executor_.RunReady();
    return result.status();
  };
  EXPECT_EQ(ReasonOf(ask()), Reason::kModelNotFound);
  spec.model = "m";
  spec.sessions = {};
  EXPECT_EQ(ask().code(), absl::StatusCode::kInvalidArgument);
  spec.sessions = {1};
  Ask busy = Send(1);
  EXPECT_EQ(ask().code(), absl::StatusCode::kFailedPrecondition) << "the machine is at work";
}

TEST_F(CoreLearningTest, SeveralModelsArePlannedSideBySide) {
  StoredModel other = store_.models["m"];
  other.name = "n";
  store_.models["n"] = other;
  Restart();
  PlanQuery m, n;
  m.model = "m";
  n.model = "n";
  CoreWorld::Answer<std::vector<Plan>> plans, missing;
  core_->MakePlans({m, n}, plans.callback());
  n.model = "nobody";
  core_->MakePlans({m, n}, missing.callback());
  executor_.RunReady();
  ASSERT_TRUE(plans.status().ok());
  ASSERT_EQ(plans.get().size(), 2u);
  EXPECT_TRUE(plans.get()[0].chosen && plans.get()[1].chosen);
  EXPECT_EQ(ReasonOf(missing.status()), Reason::kModelNotFound);
}

}  // namespace
}  // namespace rumbo
