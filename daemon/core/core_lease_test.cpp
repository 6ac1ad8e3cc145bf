// Leases: kept loaded, asked to yield, revoked, restored; contracts; foreign memory; batch work on a low
// battery.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/core_world.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CoreWorld;
using ::testing::ElementsAre;
using testing::kSlot;
using testing::kSystemReserve;

struct Holder {
  std::vector<std::string> events;
  std::vector<std::string> reasons;
  std::vector<absl::Status> ends;
  std::shared_ptr<void> token;
};

class FakePower final : public PowerSource {
 public:
  PowerState Read() override { return state; }
  PowerState state;
};

class FakePromises final : public PromiseBoard {
 public:
  void Enter() override { ++inside; }
  void Leave() override { --inside; }
  std::map<std::string, Bytes> Exchange(const std::map<std::string, Bytes>& ours) override {
    published = ours;
    return others;
  }
  std::map<std::string, Bytes> published, others;
  int inside = 0;
};

class FakeJournal final : public LeaseJournal {
 public:
  void Save(std::vector<LeaseSpec> leases) override { saved = std::move(leases); }
  void Load(Callback<std::vector<LeaseSpec>> done) override { done(saved); }
  std::vector<LeaseSpec> saved;
};

class CoreLeaseTest : public ::testing::Test {
 protected:
  explicit CoreLeaseTest(int slots = 2) {
    CoreOptions options;
    options.keep_alive = seconds(5);
    world_ = std::make_unique<CoreWorld>(slots, options, [this](Core::Parts& parts) {
      parts.power = &power_;
      parts.promises = &promises_;
      parts.leases = &journal_;
    });
    for (const char* name : {"a", "b", "c"}) world_->AddModel(name);
    world_->AddModel("wide", "m");
  }
  Holder& Lease(const std::string& model, Priority priority = Priority::kNormal, Contract contract = {}) {
    holders_.push_back(std::make_unique<Holder>());
    Holder* holder = holders_.back().get();
    LeaseSpec spec;
    spec.model = model;
    spec.priority = priority;
    spec.contract = contract;
    spec.client.app = "test";
    holder->token = world_->core->Lease(
        spec,
        [holder](const LeaseEvent& event) {
          holder->events.push_back(Word(event.kind));
          holder->reasons.push_back(event.reason);
        },
        [holder](const absl::Status& status) { holder->ends.push_back(status); });
    world_->Run();
    return *holder;
  }
  void LetGo(Holder& holder) {
    holder.token.reset();
    world_->Run();
  }
  CoreWorld::Call AskAs(const std::string& model, Priority priority) {
    InferenceRequest request = world_->Request(model);
    request.generate.priority = priority;
    return world_->Ask(std::move(request));
  }
  bool Ready(const std::string& model) {
    const auto info = world_->InstanceOf(model);
    return info && info->state == InstanceState::kReady;
  }
  // What the machine reports: our ready processes and `foreign` slots of others.
  void Report(int slots, int foreign) {
    int taken = foreign;
    world_->topology.process_bytes.clear();
    for (const auto& process : world_->launcher.processes) {
      if (!process->alive() || !process->ready()) continue;
      const int size = process->spec.engine == "m" ? 2 : 1;
      taken += size;
      world_->topology.process_bytes[process->pid] = kSlot * static_cast<Bytes>(size);
    }
    world_->topology.free["pool-system"] =
        SaturatingSub(kSystemReserve + kSlot * static_cast<Bytes>(slots), kSlot * static_cast<Bytes>(taken));
  }

  FakePower power_;
  FakePromises promises_;
  FakeJournal journal_;
  std::unique_ptr<CoreWorld> world_;
  std::vector<std::unique_ptr<Holder>> holders_;  // gone before the world
};

TEST_F(CoreLeaseTest, KeepsItsModelAndLetsItGoWithTheHolder) {
  world_->Start();
  Holder& holder = Lease("a");
  EXPECT_THAT(holder.events, ElementsAre("granted"));
  world_->Advance(seconds(60));
  EXPECT_TRUE(Ready("a")) << "keep-alive is 5 s";
  LetGo(holder);
  world_->Advance(seconds(10));
  EXPECT_FALSE(world_->InstanceOf("a"));
  EXPECT_TRUE(holder.ends.empty());
}

TEST_F(CoreLeaseTest, UnknownModelEndsTheLeaseAtOnce) {
  world_->Start();
  Holder& holder = Lease("nonesuch");
  ASSERT_EQ(holder.ends.size(), 1u);
  EXPECT_EQ(ReasonOf(holder.ends[0]), Reason::kModelNotFound);
  EXPECT_TRUE(holder.events.empty());
}

TEST_F(CoreLeaseTest, HolderWhoGoesBeforeTheModelsAreKnownLeavesNothing) {
  Holder& holder = Lease("a");  // the core has not started yet
  LetGo(holder);
  world_->Start();
  world_->Advance(seconds(1));
  EXPECT_FALSE(world_->InstanceOf("a"));
  EXPECT_TRUE(holder.events.empty() && holder.ends.empty());
}

TEST_F(CoreLeaseTest, LessImportantYieldsAndGetsItsModelBack) {
  world_->Start();
  Holder& batch = Lease("a", Priority::kBatch);
  Holder& normal = Lease("b", Priority::kNormal);
  CoreWorld::Call call = AskAs("c", Priority::kInteractive);
  EXPECT_THAT(batch.events, ElementsAre("granted", "yield_requested"));
  EXPECT_THAT(normal.events, ElementsAre("granted"));
  EXPECT_TRUE(Ready("a")) << "it has time to let go";
  world_->Advance(seconds(7));
  ASSERT_TRUE(Ready("c"));
  EXPECT_FALSE(world_->InstanceOf("a"));
  EXPECT_THAT(batch.events, ElementsAre("granted", "yield_requested", "revoked"));
  EXPECT_NE(batch.reasons.back().find("c"), std::string::npos);
  world_->Answer3(world_->ProcessOf("c")->open_reply());
  EXPECT_TRUE(call->status.ok());
  world_->Advance(seconds(30));
  EXPECT_THAT(batch.events, ElementsAre("granted", "yield_requested", "revoked", "restored"));
  EXPECT_TRUE(Ready("a") && Ready("b"));
}

TEST_F(CoreLeaseTest, AsImportantIsRefusedAndTouchesNobody) {
  world_->Start();
  Holder& a = Lease("a");
  Holder& b = Lease("b");
  CoreWorld::Call call = AskAs("c", Priority::kNormal);
  world_->Advance(seconds(1));
  ASSERT_TRUE(call->ended());
  EXPECT_EQ(ReasonOf(call->status), Reason::kDoesNotFit);
  EXPECT_THAT(a.events, ElementsAre("granted"));
  EXPECT_THAT(b.events, ElementsAre("granted"));
  EXPECT_EQ(world_->launcher.processes.size(), 2u);
}

TEST_F(CoreLeaseTest, NewcomerWhoGivesUpLeavesTheHolderItsModel) {
  world_->Start();
  Holder& batch = Lease("a", Priority::kBatch);
  Holder& other = Lease("b", Priority::kInteractive);
  CoreWorld::Call call = AskAs("c", Priority::kNormal);
  EXPECT_THAT(batch.events, ElementsAre("granted", "yield_requested"));
  call.Cancel();
  world_->Advance(seconds(3));
  EXPECT_THAT(batch.events, ElementsAre("granted", "yield_requested", "restored"));
  world_->Advance(seconds(30));
  EXPECT_TRUE(Ready("a") && Ready("b"));
  EXPECT_THAT(other.events, ElementsAre("granted"));
}

TEST_F(CoreLeaseTest, HolderAtWorkIsNotCutOff) {
  world_->Start();
  Holder& batch = Lease("a", Priority::kBatch);
  Lease("b", Priority::kInteractive);
  CoreWorld::Call work = AskAs("a", Priority::kBatch);
  FakeReply& reply = world_->ProcessOf("a")->open_reply();
  reply.Token();
  CoreWorld::Call call = AskAs("c", Priority::kInteractive);
  world_->Advance(seconds(20));
  EXPECT_TRUE(Ready("a"));
  EXPECT_FALSE(work->ended());
  reply.Token();
  reply.Finish();
  world_->Run();
  EXPECT_TRUE(work->status.ok());
  world_->Advance(seconds(3));
  EXPECT_TRUE(Ready("c"));
  EXPECT_EQ(batch.events.back(), "revoked");
}

TEST_F(CoreLeaseTest, CrashIsTellableAndHealsWithoutAnyoneAsking) {
  world_->Start();
  Holder& holder = Lease("a");
  world_->launcher.last().Crash();
  world_->Run();
  EXPECT_THAT(holder.events, ElementsAre("granted", "revoked", "restored"));
  EXPECT_TRUE(Ready("a"));
}

TEST_F(CoreLeaseTest, UserWhoUnloadsWins) {
  world_->Start();
  Holder& holder = Lease("a");
  world_->Unload("a");
  world_->Advance(seconds(60));
  EXPECT_FALSE(world_->InstanceOf("a"));
  EXPECT_THAT(holder.events, ElementsAre("granted", "revoked"));
  world_->Load("a");
  EXPECT_THAT(holder.events, ElementsAre("granted", "revoked", "restored"));
}

TEST_F(CoreLeaseTest, DrainEndsIt) {
  world_->Start();
  Holder& holder = Lease("a");
  world_->core->Drain(seconds(1), [] {});
  world_->Run();
  ASSERT_EQ(holder.ends.size(), 1u);
  EXPECT_EQ(ReasonOf(holder.ends[0]), Reason::kDraining);
}

TEST_F(CoreLeaseTest, LeasesOfAKilledDaemonAreLoadedAgainAndKeptForAMinute) {
  LeaseSpec old;
  old.model = "a";
  old.client.app = "test";
  journal_.saved = {old};
  world_->Start();
  EXPECT_TRUE(Ready("a"));
  world_->Advance(seconds(50));
  EXPECT_TRUE(Ready("a"));
  Holder& back = Lease("a");
  EXPECT_THAT(back.events, ElementsAre("granted"));
  EXPECT_EQ(journal_.saved.size(), 1u) << "one lease, not two";
  world_->Advance(seconds(60));
  EXPECT_TRUE(Ready("a"));
  LetGo(back);
  world_->Advance(seconds(10));
  EXPECT_FALSE(world_->InstanceOf("a"));
  EXPECT_TRUE(journal_.saved.empty());
}

TEST_F(CoreLeaseTest, SlowerThanAgreedIsReportedOnceAndTakenBack) {
  world_->Start();
  Contract contract;
  contract.min_tokens_per_s = 100;
  world_->Load("a");  // a new plan would be refused: the speed of this engine is unknown
  Holder& holder = Lease("a", Priority::kNormal, contract);
  const auto answer = [&](milliseconds per_token) {
    CoreWorld::Call call = world_->Ask("a");
    FakeReply& reply = world_->ProcessOf("a")->open_reply();
    for (int i = 0; i < 4; ++i) {
      reply.Token();
      world_->Advance(per_token);
    }
    reply.Finish();
    world_->Run();
  };
  for (int i = 0; i < 4; ++i) answer(milliseconds(100));
  world_->Advance(seconds(21));
  EXPECT_THAT(holder.events, ElementsAre("granted", "contract_broken"));
  EXPECT_NE(holder.reasons.back().find("agreed 100.0"), std::string::npos) << holder.reasons.back();
  for (int i = 0; i < 30; ++i) answer(milliseconds(1));
  world_->Advance(seconds(21));
  EXPECT_THAT(holder.events, ElementsAre("granted", "contract_broken", "contract_kept"));
}

TEST_F(CoreLeaseTest, OnALowBatteryBatchWorkWaitsAndTheRestGoesOn) {
  world_->Start();
  Holder& holder = Lease("a", Priority::kBatch);
  power_.state.on_battery = true;
  power_.state.battery_percent = 15;
  world_->Advance(seconds(11));
  EXPECT_THAT(holder.events, ElementsAre("granted", "contract_broken"));
  CoreWorld::Call batch = AskAs("a", Priority::kBatch);
  CoreWorld::Call chat = AskAs("a", Priority::kInteractive);
  ASSERT_EQ(world_->ProcessOf("a")->open_replies(), 1u);
  world_->Answer3(world_->ProcessOf("a")->open_reply());
  EXPECT_TRUE(chat->status.ok());
  world_->Advance(seconds(60));
  EXPECT_FALSE(batch->ended());
  power_.state.battery_percent = 22;  // hysteresis
  world_->Advance(seconds(11));
  EXPECT_EQ(world_->ProcessOf("a")->open_replies(), 0u);
  power_.state.on_battery = false;
  world_->Advance(seconds(11));
  ASSERT_EQ(world_->ProcessOf("a")->open_replies(), 1u);
  world_->Answer3(world_->ProcessOf("a")->open_reply());
  EXPECT_TRUE(batch->status.ok());
  EXPECT_EQ(holder.events.back(), "contract_kept");
}

TEST_F(CoreLeaseTest, HeatHoldsBatchWorkToo) {
  world_->Start();
  power_.state.hottest_share = 0.97;
  power_.state.hottest = "k10temp at 97 of 100 C";
  world_->Advance(seconds(11));
  CoreWorld::Call batch = AskAs("a", Priority::kBatch);
  EXPECT_EQ(world_->ProcessOf("a")->open_replies(), 0u);
  power_.state.hottest_share = 0.8;
  world_->Advance(seconds(11));
  EXPECT_EQ(world_->ProcessOf("a")->open_replies(), 1u);
}

TEST_F(CoreLeaseTest, OtherProgramsThatTakeTheMemoryMakeTheLeastImportantYield) {
  world_->Start();
  Holder& chat = Lease("a", Priority::kInteractive);
  Holder& batch = Lease("b", Priority::kBatch);
  // Nothing of the promises is taken yet, and the machine has room for one of the two only.
  world_->topology.process_bytes = {{world_->ProcessOf("a")->pid, 0}, {world_->ProcessOf("b")->pid, 0}};
  world_->topology.free["pool-system"] = kSlot + kSlot / 2;
  world_->Advance(seconds(11));
  EXPECT_THAT(batch.events, ElementsAre("granted", "yield_requested"));
  world_->Advance(seconds(8));
  EXPECT_THAT(batch.events, ElementsAre("granted", "yield_requested", "revoked"));
  EXPECT_NE(batch.reasons.back().find("other programs"), std::string::npos);
  world_->Advance(seconds(30));
  EXPECT_THAT(chat.events, ElementsAre("granted"));
  EXPECT_TRUE(Ready("a"));
}

TEST_F(CoreLeaseTest, OtherDaemonsPromisesAreForeignUse) {
  world_->Start();
  promises_.others = {{"pool-system", kSlot}};
  world_->Load("a");
  EXPECT_TRUE(Ready("a"));
  const auto refused = world_->Load("wide");
  world_->Advance(seconds(1));
  ASSERT_TRUE(refused.come());
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kDoesNotFit);
  EXPECT_EQ(promises_.inside, 0);
  promises_.others.clear();
  world_->Advance(seconds(11));
  world_->Load("b");
  EXPECT_TRUE(Ready("b"));
}

TEST_F(CoreLeaseTest, PromisesArePublishedUntilTheyAreTaken) {
  world_->launcher.auto_ready = false;
  world_->Start();
  world_->Load("a");
  EXPECT_EQ(promises_.published, (std::map<std::string, Bytes>{{"pool-system", kSlot}}));
  world_->launcher.last().Started();
  world_->launcher.last().Ready();
  Report(2, 0);
  world_->Advance(seconds(11));
  EXPECT_TRUE(promises_.published.empty());
}

TEST_F(CoreLeaseTest, OptionsChangeWithoutStoppingAnybody) {
  world_->Start();
  world_->Load("a");
  CoreOptions options;
  options.keep_alive = seconds(100);
  world_->core->SetOptions(options);
  world_->Advance(seconds(50));
  EXPECT_TRUE(Ready("a")) << "5 s before";
  EXPECT_EQ(world_->launcher.processes.size(), 1u);
  world_->Advance(seconds(60));
  EXPECT_FALSE(world_->InstanceOf("a"));
}

TEST_F(CoreLeaseTest, RepeatedLoadIsOneLoad) {
  world_->launcher.auto_ready = false;
  world_->Start();
  LoadSpec spec;
  spec.model = "a";
  spec.idempotency_key = "k";
  const auto first = world_->Load(spec), second = world_->Load(spec);
  LoadSpec other = spec;
  other.model = "b";
  const auto clash = world_->Load(other);
  ASSERT_TRUE(clash.come());
  EXPECT_EQ(clash.status().code(), absl::StatusCode::kInvalidArgument);
  world_->launcher.last().Ready();
  world_->Run();
  ASSERT_TRUE(first.come() && second.come());
  EXPECT_EQ(first.get().instance_id, second.get().instance_id);
  EXPECT_EQ(world_->launcher.processes.size(), 1u);
}

// ---- Repeated requests ----

class CoreRepeatTest : public CoreLeaseTest {
 protected:
  CoreWorld::Call AskWithKey(const std::string& prompt = "hello", const std::string& key = "k") {
    InferenceRequest request = world_->Request("a");
    request.generate.input.prompt = prompt;
    request.idempotency_key = key;
    return world_->Ask(std::move(request));
  }
};

TEST_F(CoreRepeatTest, RepeatJoinsTheAnswerUnderWayFromItsBeginning) {
  world_->Start();
  CoreWorld::Call first = AskWithKey();
  FakeReply& reply = world_->ProcessOf("a")->open_reply();
  reply.Token();
  reply.Token();
  first.handle.reset();  // the connection broke
  world_->Run();
  EXPECT_EQ(first->status.code(), absl::StatusCode::kCancelled);
  CoreWorld::Call again = AskWithKey();
  EXPECT_EQ(again->tokens, 2u);
  EXPECT_EQ(world_->ProcessOf("a")->replies.size(), 1u) << "it must not run twice";
  reply.Token();
  reply.Finish();
  world_->Run();
  EXPECT_EQ(again->tokens, 3u);
  EXPECT_TRUE(again->in_order && again->finished);
  EXPECT_EQ(again->ends, 1);
  EXPECT_EQ(first->ends, 1);
}

TEST_F(CoreRepeatTest, RepeatOfAnEndedAnswerGetsItAndOneOfAnotherRequestIsRefused) {
  world_->Start();
  CoreWorld::Call first = AskWithKey();
  world_->Answer3(world_->ProcessOf("a")->open_reply());
  CoreWorld::Call again = AskWithKey(), other = AskWithKey("good night");
  EXPECT_EQ(again->tokens, 3u);
  EXPECT_TRUE(again->finished && again->placement);
  EXPECT_EQ(other->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(world_->ProcessOf("a")->replies.size(), 1u);
  world_->Advance(std::chrono::minutes(11));
  CoreWorld::Call late = AskWithKey();
  world_->Run();
  EXPECT_EQ(world_->ProcessOf("a")->open_replies(), 1u) << "after ten minutes the key is free again";
}

TEST_F(CoreRepeatTest, AnswerThatNobodyComesBackForEnds) {
  world_->Start();
  CoreWorld::Call first = AskWithKey();
  FakeReply& reply = world_->ProcessOf("a")->open_reply();
  reply.Token();
  first.handle.reset();
  world_->Advance(seconds(20));
  EXPECT_FALSE(reply.cancelled());
  world_->Advance(seconds(20));
  EXPECT_TRUE(reply.cancelled());
}

TEST_F(CoreRepeatTest, FailedAnswerMayBeTriedAgain) {
  world_->Start();
  CoreWorld::Call first = AskWithKey();
  world_->ProcessOf("a")->open_reply().End(Error(absl::StatusCode::kUnavailable, Reason::kInternal, "no"));
  world_->Run();
  EXPECT_FALSE(first->status.ok());
  CoreWorld::Call again = AskWithKey();
  world_->Answer3(world_->ProcessOf("a")->open_reply());
  EXPECT_TRUE(again->status.ok());
}

TEST_F(CoreRepeatTest, SlowListenerHoldsUpNobody) {
  world_->Start();
  CoreWorld::Call slow = AskWithKey();
  slow->pause = true;
  CoreWorld::Call fast = AskWithKey();
  world_->Answer3(world_->ProcessOf("a")->open_reply());
  EXPECT_EQ(fast->tokens, 3u);
  EXPECT_TRUE(fast->ended());
  EXPECT_EQ(slow->tokens, 1u);
  EXPECT_FALSE(slow->ended());
  slow->pause = false;
  slow.handle->Resume();
  world_->Run();
  EXPECT_EQ(slow->tokens, 3u);
  EXPECT_TRUE(slow->ended());
}

}  // namespace
}  // namespace rumbo
