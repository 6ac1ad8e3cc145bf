// Who gets room, who goes for it, and who waits.
#include <gtest/gtest.h>

#include "tests/fakes/core_world.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CoreWorld;
using testing::kSlot;

class CoreRoomTest : public ::testing::Test {
 protected:
  // Room for four small models; "a" to "f" are small, "m" takes two, "l" four, "huge" can never fit.
  CoreRoomTest() {
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) world.AddModel(name);
    world.AddModel("m", "m");
    world.AddModel("l", "l");
  }
  void Fill() {
    for (const char* name : {"a", "b", "c", "d"}) {
      auto load = world.Load(name);
      ASSERT_TRUE(load.come() && load.status().ok());
      world.Advance(seconds(1));
    }
  }
  std::string States() {
    std::string out;
    for (const InstanceInfo& info : world.Instances()) out += info.model + ":" + Word(info.state) + " ";
    return out;
  }
  CoreWorld world{4};
};

TEST_F(CoreRoomTest, IdlestGoesAndIsGoneBeforeTheNewOneStarts) {
  world.Start();
  Fill();
  FakeProcess* a = world.ProcessOf("a");
  a->silent = true;  // does not end at once
  auto load = world.Load("e");
  EXPECT_TRUE(a->stop_asked());
  EXPECT_EQ(world.ProcessOf("e"), nullptr) << "started before its room was free";
  EXPECT_FALSE(load.come());
  world.Advance(seconds(6));
  EXPECT_FALSE(a->alive());
  EXPECT_TRUE(load.come() && load.status().ok());
  EXPECT_EQ(world.launcher.alive(), 4u);
  EXPECT_FALSE(world.InstanceOf("a"));
}

TEST_F(CoreRoomTest, OnlyAsManyGoAsAreNeeded) {
  world.Start();
  Fill();
  world.Load("m");
  EXPECT_EQ(States(), "c:ready d:ready m:ready ");
}

TEST_F(CoreRoomTest, PinnedIsNeverEvicted) {
  world.Start();
  Fill();
  for (const char* name : {"a", "b", "c"}) world.Pin(name, true);
  EXPECT_TRUE(world.Load("e").status().ok());
  EXPECT_EQ(States(), "a:ready b:ready c:ready e:ready ");
  world.Advance(seconds(3));  // past the time in which the memory of the one that went might still come free
  auto medium = world.Load("m");
  ASSERT_TRUE(medium.come());
  EXPECT_EQ(ReasonOf(medium.status()), Reason::kDoesNotFit);
  EXPECT_EQ(States(), "a:ready b:ready c:ready e:ready ")
      << "nothing was stopped for a plan that cannot work";
}

TEST_F(CoreRoomTest, WhatNeverFitsIsRefusedAtOnceAndCostsNobodyAnything) {
  CoreWorld small(3);
  for (const char* name : {"a", "b"}) small.AddModel(name);
  small.AddModel("l", "l");
  small.Start();
  auto a = small.Ask("a"), b = small.Ask("b");
  auto idle = small.Ask("l");
  ASSERT_TRUE(idle->ended());
  EXPECT_EQ(idle->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(idle->status), Reason::kDoesNotFit);
  EXPECT_NE(MessageOf(idle->status).find("16.0 MiB"), std::string::npos)
      << "what is missing after every eviction: " << idle->status;
  EXPECT_EQ(small.launcher.processes.size(), 2u);
  EXPECT_FALSE(a->ended());
  EXPECT_FALSE(b->ended());
}

TEST_F(CoreRoomTest, UnknownMemoryIsRefusedAndDoesNotHang) {
  world.topology.topology.pools[0].total_bytes.reset();
  world.topology.topology.pools[0].free_bytes.reset();
  world.Start();
  auto call = world.Ask("a");
  EXPECT_TRUE(call->ended());
  EXPECT_TRUE(world.launcher.processes.empty());
}

TEST_F(CoreRoomTest, MemoryOfOthersCounts) {
  world.Start();
  world.topology.free["pool-system"] = testing::kSystemReserve + kSlot;
  EXPECT_TRUE(world.Load("a").status().ok());
  auto second = world.Load("m");
  ASSERT_TRUE(second.come());
  EXPECT_EQ(ReasonOf(second.status()), Reason::kDoesNotFit);
}

// Drivers give the memory of an ended process back a moment later.
TEST_F(CoreRoomTest, MemoryThatComesFreeLateAfterAnEvictionIsWaitedFor) {
  world.Start();
  Fill();
  world.topology.free["pool-system"] = testing::kSystemReserve;  // all four have taken theirs
  for (const auto& process : world.launcher.processes) {
    process->Started();
    world.topology.process_bytes[process->pid] = kSlot;
  }
  world.Run();
  auto load = world.Load("e");
  EXPECT_FALSE(world.ProcessOf("a")->alive());
  EXPECT_FALSE(load.come()) << load.status();
  world.Advance(milliseconds(700));
  EXPECT_FALSE(load.come()) << load.status();
  world.topology.free["pool-system"] = testing::kSystemReserve + kSlot;
  world.Advance(milliseconds(100));
  EXPECT_TRUE(load.come() && load.status().ok());
  EXPECT_EQ(world.launcher.alive(), 4u) << "nobody else had to go";
}

// ---- Busy models (a newcomer waits) ----

TEST_F(CoreRoomTest, BusyIsNeverEvictedTheNewcomerWaitsVisibly) {
  CoreWorld one(1);
  one.AddModel("a");
  one.AddModel("b");
  one.Start();
  auto first = one.Ask("a");
  one.launcher.last().open_reply().Token();
  auto newcomer = one.Ask("b");
  EXPECT_FALSE(newcomer->ended());
  EXPECT_EQ(one.InstanceOf("b")->state, InstanceState::kStarting);
  EXPECT_NE(one.InstanceOf("b")->reason.find("waiting for room that has a"), std::string::npos)
      << one.InstanceOf("b")->reason;
  one.Advance(seconds(3));
  EXPECT_EQ(one.launcher.processes.size(), 1u);
  FakeProcess* a = one.ProcessOf("a");
  a->open_reply().Token();
  a->open_reply().Finish();
  one.Run();
  EXPECT_TRUE(first->status.ok()) << "its normal end";
  EXPECT_EQ(first->tokens, 2u);
  EXPECT_FALSE(a->alive());
  ASSERT_NE(one.ProcessOf("b"), nullptr);
  one.Answer3(one.ProcessOf("b")->open_reply());
  EXPECT_TRUE(newcomer->status.ok());
}

TEST_F(CoreRoomTest, LoadingIsNotEvictedAndServesBeforeItMayGo) {
  CoreWorld one(1);
  one.AddModel("a");
  one.AddModel("b");
  one.launcher.auto_ready = false;
  one.Start();
  auto first = one.Ask("a");
  auto second = one.Ask("b");
  ASSERT_EQ(one.launcher.processes.size(), 1u);
  one.ProcessOf("a")->Ready();
  one.Run();
  EXPECT_TRUE(one.ProcessOf("a")->alive());
  ASSERT_EQ(one.ProcessOf("a")->open_replies(), 1u);
  one.Answer3(one.ProcessOf("a")->open_reply());
  EXPECT_TRUE(first->status.ok());
  ASSERT_NE(one.ProcessOf("b"), nullptr);
  one.ProcessOf("b")->Ready();
  one.Run();
  EXPECT_EQ(one.ProcessOf("b")->open_replies(), 1u);
  EXPECT_FALSE(second->ended());
}

TEST_F(CoreRoomTest, WaitForRoomCanBeCancelledAndItsInstanceGoes) {
  CoreWorld one(1);
  one.AddModel("a");
  one.AddModel("b");
  one.Start();
  auto busy = one.Ask("a");
  auto waiting = one.Ask("b");
  waiting.Cancel();
  one.Run();
  EXPECT_EQ(waiting->status.code(), absl::StatusCode::kCancelled);
  one.Advance(seconds(2));
  EXPECT_FALSE(one.InstanceOf("b"));
  EXPECT_TRUE(one.ProcessOf("a")->alive());
}

TEST_F(CoreRoomTest, WaitForRoomIsBounded) {
  CoreWorld one(1);
  one.AddModel("a");
  one.AddModel("b");
  one.Start();
  auto busy = one.Ask("a");
  auto waiting = one.Ask("b");
  one.Advance(seconds(119));
  EXPECT_FALSE(waiting->ended());
  one.Advance(seconds(3));
  ASSERT_TRUE(waiting->ended());
  EXPECT_EQ(ReasonOf(waiting->status), Reason::kDoesNotFit);
  EXPECT_TRUE(RetryAfterOf(waiting->status));
  EXPECT_NE(MessageOf(waiting->status).find("in the way: a"), std::string::npos) << waiting->status;
  EXPECT_FALSE(busy->ended());
}

// Both models always have requests waiting: each must get its turn.
TEST_F(CoreRoomTest, TwoModelsThatCannotLiveTogetherTakeTurns) {
  CoreWorld one(1);
  one.AddModel("a");
  one.AddModel("b");
  one.launcher.auto_ready = false;
  one.Start();
  std::vector<CoreWorld::Call> calls;
  std::map<std::string, int> served;
  TimePoint ready_at{};
  for (int half_seconds = 0; half_seconds < 120; ++half_seconds) {
    calls.push_back(one.Ask("a"));
    calls.push_back(one.Ask("b"));
    one.Advance(milliseconds(500));
    FakeProcess& last = one.launcher.last();
    if (ready_at == TimePoint{} && !last.ready()) ready_at = one.Now() + seconds(2);
    if (!last.ready() && one.Now() >= ready_at) {
      last.Ready();
      ready_at = {};
      one.Run();
    }
    for (const char* name : {"a", "b"}) {
      FakeProcess* process = one.ProcessOf(name);
      if (process == nullptr || !process->alive() || process->open_replies() == 0) continue;
      one.Answer3(process->open_reply());
      ++served[name];
    }
    ASSERT_LE(one.launcher.alive(), 1u);
  }
  EXPECT_GT(served["a"], 25);
  EXPECT_GT(served["b"], 25);
  EXPECT_LT(one.launcher.processes.size(), 12u) << "turns, not a thrash";
}

TEST_F(CoreRoomTest, LoadOfALoadedModelIsNotHeldUpByAWaitingOne) {
  CoreWorld two(2);
  for (const char* name : {"a", "b"}) two.AddModel(name);
  two.AddModel("m", "m");
  two.Start();
  auto busy = two.Ask("a");
  auto big = two.Ask("m");
  auto other = two.Ask("a");
  EXPECT_EQ(two.ProcessOf("a")->open_replies(), 2u);
  auto small = two.Ask("b");
  ASSERT_NE(two.ProcessOf("b"), nullptr) << "a small load does not wait behind a big one";
  EXPECT_EQ(two.ProcessOf("b")->open_replies(), 1u);
  EXPECT_FALSE(big->ended());
}

// What waits for one victim must not be sent to the next one.
TEST_F(CoreRoomTest, TwoVictimsOfOneModelDoNotTakeInEachOthersRequests) {
  CoreWorld two(2);
  two.AddModel("a");
  two.AddModel("m", "m");
  two.Start();
  std::vector<CoreWorld::Call> calls;
  for (const uint32_t sessions : {1u, 2u}) {
    InferenceRequest request = two.Request("a");
    request.workload.sessions = sessions;
    calls.push_back(two.Ask(request));
  }
  ASSERT_EQ(two.launcher.alive(), 2u);
  two.Advance(seconds(6));
  auto big = two.Ask("m");
  two.Advance(seconds(6));  // both yield
  for (int i = 0; i < 4; ++i) calls.push_back(two.Ask("a"));
  two.Answer3(two.launcher.processes[0]->open_reply());
  two.Answer3(two.launcher.processes[1]->open_reply());
  ASSERT_NE(two.ProcessOf("m"), nullptr);
  two.Answer3(two.ProcessOf("m")->open_reply());
  EXPECT_TRUE(big->status.ok());
  for (int i = 0; i < 40 && two.Status().finished_requests < 7; ++i) {
    two.Advance(seconds(1));
    FakeProcess& last = two.launcher.last();
    if (last.open_replies() > 0) two.Answer3(last.open_reply());
  }
  for (const auto& call : calls) EXPECT_TRUE(call->ended() && call->status.ok()) << call->status;
}

// Those who were asked to yield go on when the one they yielded to has given up.
TEST_F(CoreRoomTest, YieldingEndsWithTheWaitItWasFor) {
  CoreWorld one(1);
  one.AddModel("a");
  one.AddModel("b");
  one.Start();
  one.Load("a");
  one.Advance(seconds(6));
  auto busy = one.Ask("a");
  auto waiting = one.Ask("b");
  one.Advance(seconds(10));
  auto held_back = one.Ask("a");
  EXPECT_EQ(one.ProcessOf("a")->open_replies(), 1u) << "yields";
  waiting.Cancel();
  one.Advance(seconds(2));
  EXPECT_EQ(one.ProcessOf("a")->open_replies(), 2u);
}

// A stream of small loads must not keep a big one out for ever.
TEST_F(CoreRoomTest, BigLoadIsNotStarvedBySmallOnes) {
  world.Start();
  std::vector<CoreWorld::Call> calls;
  calls.push_back(world.Ask("a"));
  auto big = world.Ask("l");
  const char* small[] = {"b", "c", "d", "e", "f", "a"};
  for (int i = 0; i < 200 && world.ProcessOf("l") == nullptr; ++i) {
    calls.push_back(world.Ask(small[i % 6]));
    world.Advance(milliseconds(700));
    for (const auto& process : world.launcher.processes) {
      if (process->alive() && process->open_replies() > 1) process->open_reply().Finish();
      if (i % 3 == 0 && process->alive() && process->open_replies() > 0) process->open_reply().Finish();
      world.Run();
    }
  }
  ASSERT_NE(world.ProcessOf("l"), nullptr);
  EXPECT_LT(world.Now() - TimePoint{}, seconds(120));
  world.Answer3(world.ProcessOf("l")->open_reply());
  EXPECT_TRUE(big->status.ok());
}

TEST_F(CoreRoomTest, StormOfModelsIsServedToTheLast) {
  CoreWorld three(3);
  std::vector<CoreWorld::Call> calls;
  for (int i = 0; i < 50; ++i) three.AddModel("m" + std::to_string(i));
  three.Start();
  for (int i = 0; i < 50; ++i) calls.push_back(three.Ask("m" + std::to_string(i)));
  for (int step = 0; step < 1000 && three.Status().finished_requests < 50; ++step) {
    ASSERT_LE(three.launcher.alive(), 3u);
    for (size_t i = 0; i < three.launcher.processes.size(); ++i) {
      const auto process = three.launcher.processes[i];
      if (process->alive() && process->open_replies() > 0) three.Answer3(process->open_reply());
    }
    three.Advance(milliseconds(100));
  }
  for (auto& call : calls) EXPECT_TRUE(call->ended() && call->status.ok()) << call->status;
  EXPECT_EQ(three.launcher.processes.size(), 50u);
}

TEST_F(CoreRoomTest, RoomThatSomebodyIsBeingEvictedForIsNotGivenToAnother) {
  world.Start();
  Fill();
  for (const char* name : {"a", "b", "c", "d"}) world.ProcessOf(name)->silent = true;
  auto big = world.Load("l");  // waits for all four
  auto late = world.Load("e");
  world.ProcessOf("a")->Exit(absl::OkStatus());
  world.Run();
  EXPECT_EQ(world.ProcessOf("e"), nullptr);
  world.Advance(seconds(6));
  EXPECT_TRUE(big.come() && big.status().ok());
  EXPECT_EQ(world.ProcessOf("e") != nullptr, late.come());
}

TEST_F(CoreRoomTest, LoadAfterAnUnloadWaitsForTheMemoryInsteadOfBeingRefused) {
  CoreWorld one(1);
  one.AddModel("a");
  one.AddModel("b");
  one.Start();
  one.Load("a");
  one.ProcessOf("a")->silent = true;
  auto unload = one.Unload("a");
  EXPECT_FALSE(unload.come()) << "not before it is gone";
  auto load = one.Load("b");
  EXPECT_FALSE(load.come());
  one.Advance(seconds(6));
  EXPECT_TRUE(unload.come());
  EXPECT_TRUE(load.come() && load.status().ok());
}

// ---- Other settings, keep-alive, unload ----

TEST_F(CoreRoomTest, LoadWithOtherSettingsReplacesAndServesWhatWaits) {
  world.Start();
  InferenceRequest request = world.Request("a");
  LoadSpec first;
  first.model = "a";
  first.workload.sessions = 1;
  ASSERT_TRUE(world.Load(first).status().ok());
  auto running = world.Ask("a");
  auto waiting = world.Ask("a");
  LoadSpec second = first;
  second.workload.sessions = 2;
  auto load = world.Load(second);
  EXPECT_FALSE(load.come()) << "the old one drains";
  world.Answer3(world.launcher.processes[0]->open_reply());
  EXPECT_TRUE(running->status.ok());
  world.Run();
  ASSERT_TRUE(load.come() && load.status().ok());
  ASSERT_EQ(world.launcher.processes.size(), 2u);
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(waiting->status.ok()) << waiting->status;
  EXPECT_EQ(world.Instances().size(), 1u);
  EXPECT_EQ(world.InstanceOf("a")->sessions, 2u);
}

TEST_F(CoreRoomTest, LoadWithOtherSettingsThatCannotWorkLeavesTheOldOneAlone) {
  world.Start();
  world.Load("a");
  LoadSpec impossible;
  impossible.model = "a";
  impossible.contract.device_kind = "gpu";
  auto load = world.Load(impossible);
  ASSERT_TRUE(load.come());
  EXPECT_FALSE(load.status().ok());
  world.Advance(seconds(1));
  EXPECT_EQ(States(), "a:ready ");
  EXPECT_EQ(world.launcher.processes.size(), 1u);
}

TEST_F(CoreRoomTest, SameSettingsAreNoReasonToLoadAgain) {
  world.Start();
  LoadSpec spec;
  spec.model = "a";
  spec.workload.sessions = 3;
  const std::string id = world.Load(spec).get().instance_id;
  EXPECT_EQ(world.Load(spec).get().instance_id, id);
  EXPECT_EQ(world.Load("a").get().instance_id, id);
  EXPECT_EQ(world.launcher.processes.size(), 1u);
}

TEST_F(CoreRoomTest, UnloadDrainsWhatRunsAndRefusesWhatWaits) {
  world.Start();
  LoadSpec one;
  one.model = "a";
  one.workload.sessions = 1;
  world.Load(one);
  auto running = world.Ask("a");
  auto waiting = world.Ask("a");
  auto unload = world.Unload("a", seconds(5));
  EXPECT_EQ(ReasonOf(waiting->status), Reason::kInstanceStopped);
  EXPECT_FALSE(running->ended());
  world.Answer3(world.launcher.last().open_reply());
  EXPECT_TRUE(running->status.ok());
  EXPECT_TRUE(unload.come());
  EXPECT_EQ(unload.get().size(), 1u);
  EXPECT_TRUE(world.Instances().empty());
  EXPECT_EQ(world.Status().running_requests, 0u);
}

TEST_F(CoreRoomTest, UnloadCutsOffAfterItsDrainAndSaysWhy) {
  world.Start();
  auto started = world.Ask("a");
  auto silent = world.Ask("a");  // no token yet: must not be replayed either
  world.launcher.last().open_reply(0).Token();
  auto unload = world.Unload("a", seconds(5));
  world.Advance(milliseconds(4999));
  EXPECT_FALSE(unload.come());
  world.Advance(milliseconds(2));
  EXPECT_TRUE(unload.come());
  EXPECT_EQ(ReasonOf(started->status), Reason::kInstanceStopped) << started->status;
  EXPECT_NE(MessageOf(started->status).find("after 1 tokens"), std::string::npos) << started->status;
  EXPECT_EQ(ReasonOf(silent->status), Reason::kInstanceStopped) << silent->status;
  EXPECT_EQ(started->ends + silent->ends, 2);
  EXPECT_EQ(world.Status().running_requests, 0u) << "a drain would wait for ever";
  EXPECT_EQ(world.launcher.processes.size(), 1u);
}

TEST_F(CoreRoomTest, UnloadOfAModelThatLoadsTellsThoseWhoWait) {
  world.launcher.auto_ready = false;
  world.Start();
  auto load = world.Load("a");
  auto call = world.Ask("a");
  auto unload = world.Unload("a");
  EXPECT_EQ(ReasonOf(load.status()), Reason::kInstanceStopped);
  EXPECT_EQ(ReasonOf(call->status), Reason::kInstanceStopped);
  EXPECT_TRUE(unload.come());
  EXPECT_EQ(world.launcher.alive(), 0u);
}

TEST_F(CoreRoomTest, UnloadOfWhatIsNotLoadedIsNothingOrNotFound) {
  world.Start();
  EXPECT_TRUE(world.Unload("a").get().empty());
  EXPECT_EQ(ReasonOf(world.Unload("zzz").status()), Reason::kInstanceNotFound);
}

TEST_F(CoreRoomTest, KeepAliveOfTheLastRequestDecides) {
  world.Start();
  world.Load("a");  // 300 s by default
  InferenceRequest request = world.Request("a");
  request.keep_alive_s = 10;
  auto call = world.Ask(request);
  world.Answer3(world.launcher.last().open_reply());
  world.Advance(seconds(9));
  EXPECT_TRUE(world.InstanceOf("a"));
  world.Advance(seconds(2));
  EXPECT_FALSE(world.InstanceOf("a"));
  world.Load("a");
  request = world.Request("a");
  request.keep_alive_s = -1;
  call = world.Ask(request);
  world.Answer3(world.launcher.last().open_reply());
  world.Advance(std::chrono::hours(48));
  EXPECT_TRUE(world.InstanceOf("a"));
}

TEST_F(CoreRoomTest, PinnedOutlivesKeepAliveUntilItIsUnpinned) {
  world.Start();
  world.Load("a");
  world.Pin("a", true);
  world.Advance(std::chrono::hours(1));
  EXPECT_TRUE(world.InstanceOf("a"));
  world.Pin("a", false);
  world.Advance(seconds(301));
  EXPECT_FALSE(world.InstanceOf("a"));
}

TEST_F(CoreRoomTest, ReportedMemoryBeyondThePromiseCountsForTheNextLoad) {
  world.launcher.auto_ready = false;
  world.Start();
  world.Load("a");
  world.launcher.last().info.memory = {{"host", "weights", 4 * kSlot, "measured"}};
  world.launcher.last().Ready();
  world.Run();
  auto load = world.Load("b");
  EXPECT_FALSE(world.ProcessOf("a")->alive()) << "the idle one has to go after all";
  EXPECT_NE(world.ProcessOf("b"), nullptr);
}

}  // namespace
}  // namespace rumbo
