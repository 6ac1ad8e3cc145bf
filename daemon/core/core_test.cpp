// Models, plans, watching, status, drain and the end of the core.
#include "daemon/core/core.h"

#include <gtest/gtest.h>

#include "tests/fakes/core_world.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CoreWorld;

class CoreTest : public ::testing::Test {
 protected:
  CoreTest() {
    world.AddModel("a");
    world.AddModel("b");
  }
  CoreWorld world{4};
};

TEST_F(CoreTest, ListsGetsAndDeletesModels) {
  world.Start();
  CoreWorld::Answer<std::vector<StoredModel>> list;
  world.core->ListModels(list.callback());
  CoreWorld::Answer<StoredModel> missing;
  world.core->GetModel("c", missing.callback());
  CoreWorld::Answer<Bytes> freed;
  world.core->DeleteModel("b", freed.callback());
  world.Run();
  EXPECT_EQ(list.get().size(), 2u);
  EXPECT_EQ(ReasonOf(missing.status()), Reason::kModelNotFound);
  EXPECT_EQ(freed.get(), 100u);
  EXPECT_EQ(ReasonOf(world.Ask("b")->status), Reason::kModelNotFound);
}

TEST_F(CoreTest, LoadedModelIsNotDeletedAndAFailedDeleteLosesNothing) {
  world.Start();
  world.Load("a");
  CoreWorld::Answer<Bytes> refused, failed;
  world.core->DeleteModel("a", refused.callback());
  world.store.delete_status = Error(absl::StatusCode::kInternal, Reason::kInternal, "disk");
  world.core->DeleteModel("b", failed.callback());
  world.Run();
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(failed.status().ok());
  EXPECT_FALSE(world.Ask("b")->ended()) << "still there";
}

TEST_F(CoreTest, ImportedModelCanBeUsedAtOnce) {
  world.Start();
  CoreWorld::Answer<StoredModel> imported;
  int steps = 0;
  world.core->ImportModel(
      {"/x.gguf", "new", "", false}, std::make_shared<std::atomic<bool>>(false),
      [&steps](const StepProgress&) { ++steps; }, imported.callback());
  world.Run();
  EXPECT_TRUE(imported.status().ok());
  EXPECT_EQ(steps, 1);
  CoreWorld::Answer<StoredModel> got;
  world.core->GetModel("new", got.callback());
  world.Run();
  EXPECT_EQ(got.get().name, "new");
}

TEST_F(CoreTest, LoadReportsProgressThenItsPlan) {
  world.launcher.auto_ready = false;
  world.Start();
  std::vector<double> fractions;
  CoreWorld::Answer<LoadResult> load;
  LoadSpec spec;
  spec.model = "a";
  world.core->LoadModel(
      spec, [&](const StepProgress& p) { fractions.push_back(*p.fraction); }, load.callback());
  world.Run();
  FakeProcess& process = world.launcher.last();
  process.Started();
  process.Progress(0.25);
  process.Progress(0.75);
  world.Run();
  EXPECT_EQ(world.InstanceOf("a")->pid, process.pid);
  EXPECT_EQ(world.InstanceOf("a")->progress, 0.75);
  process.Ready();
  world.Run();
  EXPECT_EQ(fractions, (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(load.get().plan.chosen->engine, "s");
  EXPECT_FALSE(world.InstanceOf("a")->progress);
}

TEST_F(CoreTest, PlanHasNoConsequences) {
  world.Start();
  PlanQuery query;
  query.model = "a";
  CoreWorld::Answer<Plan> plan, by_path, no_path;
  world.core->MakePlan(query, plan.callback());
  query.model = "/some/file.gguf";
  world.inspector.files[query.model] = world.store.models["a"].variants[0].descriptor;
  world.core->MakePlan(query, by_path.callback());
  query.model = "/none.gguf";
  world.core->MakePlan(query, no_path.callback());
  world.Run();
  EXPECT_EQ(plan.get().chosen->engine, "s");
  EXPECT_EQ(by_path.get().chosen->engine, "s");
  EXPECT_EQ(ReasonOf(no_path.status()), Reason::kFileNotFound);
  EXPECT_TRUE(world.launcher.processes.empty());
}

TEST_F(CoreTest, PlanForAProfileOfOtherHardware) {
  world.topology.profiles["big"] = testing::CpuMachine(100 * kGiB);
  world.Start();
  PlanQuery query;
  query.model = "a";
  query.hardware = "big";
  CoreWorld::Answer<Plan> plan, unknown;
  world.core->MakePlan(query, plan.callback());
  query.hardware = "nonesuch";
  world.core->MakePlan(query, unknown.callback());
  world.Run();
  EXPECT_TRUE(plan.get().chosen);
  EXPECT_EQ(ReasonOf(unknown.status()), Reason::kProfileNotFound);
}

TEST_F(CoreTest, ExplainsByInstanceModelAndRequest) {
  world.Start();
  InferenceRequest request = world.Request("a");
  const std::string id = request.id;
  auto call = world.Ask(request);
  const std::string instance = world.InstanceOf("a")->id;
  world.Answer3(world.launcher.last().open_reply());
  for (const std::string& what : {id, instance, std::string("a")}) {
    CoreWorld::Answer<Explanation> explained;
    world.core->Explain(what, explained.callback());
    world.Run();
    ASSERT_TRUE(explained.status().ok()) << what;
    EXPECT_EQ(explained.get().instance_id, instance);
    EXPECT_TRUE(explained.get().plan.chosen);
  }
  CoreWorld::Answer<Explanation> unknown;
  world.core->Explain("req-none", unknown.callback());
  world.Run();
  EXPECT_EQ(ReasonOf(unknown.status()), Reason::kInstanceNotFound);
}

TEST_F(CoreTest, WatchTellsWhatIsThereThenEveryChangeThenNothingMore) {
  world.Start();
  world.Load("a");
  std::vector<std::string> seen;
  auto token = world.core->WatchInstances([&](const InstanceInfo& info, bool initial) {
    seen.push_back((initial ? "=" : "") + info.model + ":" + Word(info.state));
  });
  world.Run();
  EXPECT_EQ(seen, std::vector<std::string>{"=a:ready"});
  seen.clear();
  world.Load("b");
  world.Unload("a");
  EXPECT_EQ(seen, (std::vector<std::string>{"b:starting", "b:loading", "b:loading", "b:ready", "a:draining",
                                            "a:stopped"}));
  seen.clear();
  token.reset();
  world.Unload("b");
  EXPECT_TRUE(seen.empty());
}

TEST_F(CoreTest, WatcherMayLeaveInsideItsOwnCall) {
  world.Start();
  std::shared_ptr<void> token;
  int calls = 0;
  token = world.core->WatchInstances([&](const InstanceInfo&, bool) {
    ++calls;
    token.reset();
  });
  world.Run();
  world.Load("a");
  world.Load("b");
  EXPECT_EQ(calls, 1);
}

TEST_F(CoreTest, PinnedModelsAreLoadedAtTheStartAndPinsAreShown) {
  world.AddModel("p", "s", true);
  world.Start();
  ASSERT_TRUE(world.InstanceOf("p"));
  EXPECT_TRUE(world.InstanceOf("p")->pinned);
  EXPECT_EQ(world.launcher.processes.size(), 1u);
}

TEST_F(CoreTest, FakeEngineRunsUnderAnyName) {
  world.Start();
  InferenceRequest request = world.Request("whatever");
  request.overrides.engine = "fake";
  auto call = world.Ask(request);
  EXPECT_EQ(world.launcher.last().spec.engine, "fake");
  EXPECT_FALSE(call->ended());
}

// ---- Drain and the end ----

TEST_F(CoreTest, DrainLetsRunningWorkFinishAndTakesNoNew) {
  world.Start();
  auto running = world.Ask("a");
  bool drained = false;
  world.core->Drain(seconds(10), [&] { drained = true; });
  world.Run();
  EXPECT_FALSE(drained);
  EXPECT_TRUE(world.Status().draining);
  auto refused = world.Ask("a");
  EXPECT_EQ(ReasonOf(refused->status), Reason::kDraining);
  EXPECT_TRUE(RetryAfterOf(refused->status));
  EXPECT_EQ(ReasonOf(world.Load("b").status()), Reason::kDraining);
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(running->status.ok());
  EXPECT_TRUE(drained);
}

TEST_F(CoreTest, DrainEndsAtItsLimitWhateverIsStillWaiting) {
  world.launcher.auto_ready = false;
  world.Start();
  auto loading = world.Ask("a");
  auto load = world.Load("b");
  LoadSpec spec;
  spec.model = "b";
  CoreWorld::Answer<Core::ReadyEngine> borrowed;
  world.core->WithEngine(spec, {}, TimePoint::max(), borrowed.callback());
  world.Run();
  bool drained = false;
  world.core->Drain(seconds(2), [&] { drained = true; });
  world.Advance(seconds(3));
  EXPECT_TRUE(drained);
  EXPECT_EQ(ReasonOf(loading->status), Reason::kDraining) << loading->status;
  EXPECT_TRUE(load.come());
  EXPECT_TRUE(borrowed.come()) << "a call that nobody ends would hold the daemon up";
  EXPECT_EQ(world.launcher.alive(), 0u);
}

TEST_F(CoreTest, EveryRequestHearsTheEndOfTheCore) {
  world.Start();
  LoadSpec one;
  one.model = "a";
  one.workload.sessions = 1;
  world.Load(one);
  auto silent = world.Ask("a");  // runs, nothing heard yet: would be replayed
  auto queued = world.Ask("a");
  world.store.models.clear();
  world.core.reset();
  world.Run();
  world.Advance(milliseconds(1));
  for (const auto* call : {&silent, &queued}) {
    EXPECT_EQ((*call)->ends, 1);
    EXPECT_EQ((*call)->status.code(), absl::StatusCode::kUnavailable) << (*call)->status;
  }
  EXPECT_EQ(world.launcher.alive(), 0u);
}

TEST_F(CoreTest, CoreMayGoBeforeItsPortsHaveAnswered) {
  world.store.hold_list = true;
  world.core->Start();
  auto call = world.Ask("a");
  world.core.reset();
  world.store.Release();
  world.Run();
  EXPECT_EQ(call->ends, 1);
  call.Cancel();
  call.handle.reset();
  world.Run();
  EXPECT_EQ(call->ends, 1);
}

// With threads, as in the daemon: for the sanitizers.
TEST(CoreThreadsTest, ManyClientsFromManyThreads) {
  auto executor = NewThreadExecutor("core");
  FakeLauncher launcher(executor.get());
  FakeModelStore store(executor.get());
  FakeModelInspector inspector(executor.get());
  FakeTopologySource topology(executor.get());
  FakeWallClock wall;
  const Calibration calibration;
  topology.topology = testing::CpuMachine(10 * kGiB);
  Core::Parts parts{executor.get(),
                    &launcher,
                    &store,
                    &inspector,
                    &topology,
                    &wall,
                    &testing::SlotCatalog(),
                    &calibration,
                    {{"fake", "", "1", {"cpu"}}}};
  auto core = Core::Create({}, parts);
  core->Start();
  struct Sink final : AnswerSink {
    std::atomic<int> ends{0};
    void OnPlaced(const Placement&) override {}
    void OnStarted(const StartedEvent&) override {}
    bool OnChunk(ChunkEvent&) override { return true; }
    void OnEnd(const absl::Status&, const FinishedEvent*) override { ++ends; }
  };
  std::vector<std::shared_ptr<Sink>> sinks;
  for (int i = 0; i < 200; ++i) sinks.push_back(std::make_shared<Sink>());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 200; i += 4) {
        InferenceRequest request;
        request.model = "m";
        request.overrides.engine = "fake";
        request.generate.input.prompt = "x";
        auto call = core->Generate(request, sinks[i]);
        if (i % 3 == 0) call->Cancel();
        if (i % 7 == 0) call->Resume();
      }  // destroying the handle cancels
    });
  }
  auto watch = core->WatchInstances([](const InstanceInfo&, bool) {});
  for (auto& thread : threads) thread.join();
  watch.reset();
  core.reset();
  executor.reset();
  for (const auto& sink : sinks) EXPECT_EQ(sink->ends, 1);
}

}  // namespace
}  // namespace rumbo
