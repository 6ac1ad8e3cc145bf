#include "daemon/core/ledger.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace rumbo {
namespace {

// One system pool of 1000 with a limit of 600 on it, of which 100 are used, and one card of 500.
Topology Machine() {
  Topology t;
  MemoryPool system;
  system.id = "sys";
  system.total_bytes = 1000;
  system.free_bytes = 900;
  MemoryLimit limit;
  limit.id = "gtt";
  limit.max_bytes = 600;
  limit.used_bytes = 100;
  system.limits.push_back(limit);
  t.pools.push_back(system);
  MemoryPool card;
  card.id = "card";
  card.kind = PoolKind::kVram;
  card.total_bytes = card.free_bytes = 500;
  t.pools.push_back(card);
  return t;
}

Ledger NewLedger(Bytes reserve = 0) {
  Ledger ledger(reserve);
  ledger.SetTopology(Machine());
  return ledger;
}

TEST(LedgerTest, ReserveOfTheOperatingSystemIsKeptBackFromSystemMemoryOnly) {
  Ledger ledger = NewLedger(200);
  EXPECT_EQ(ledger.Snapshot().pool_free.at("sys"), 700u);
  EXPECT_EQ(ledger.Snapshot().pool_free.at("card"), 500u);
}

TEST(LedgerTest, PromiseCountsOnceBeforeAndAfterItIsTaken) {
  Ledger ledger = NewLedger();
  ASSERT_TRUE(ledger.Reserve("a", {{{"sys", 300}}, {}}).ok());
  EXPECT_EQ(ledger.Snapshot().pool_free.at("sys"), 600u);
  // The process takes it: the machine reports less free, the ledger the same.
  Topology t = Machine();
  t.pools[0].free_bytes = 600;
  ledger.SetTopology(t);
  EXPECT_EQ(ledger.Snapshot().pool_free.at("sys"), 300u)
      << "not known to be taken: counted as foreign use beside the promise";
  ledger.SetTaken("a", {{"sys", 300}});
  EXPECT_EQ(ledger.Snapshot().pool_free.at("sys"), 600u);
}

TEST(LedgerTest, WhatAProcessTakesBeyondItsPromiseIsGoneForOthers) {
  Ledger ledger = NewLedger();
  ASSERT_TRUE(ledger.Reserve("a", {{{"sys", 300}}, {}}).ok());
  Topology t = Machine();
  t.pools[0].free_bytes = 400;
  ledger.SetTopology(t);
  ledger.SetTaken("a", {{"sys", 500}});
  EXPECT_EQ(ledger.Snapshot().pool_free.at("sys"), 400u);
}

TEST(LedgerTest, NeverPromisesMoreThanThePoolHasWhateverIsReportedFree) {
  Ledger ledger = NewLedger();
  Topology t = Machine();
  t.pools[1].free_bytes = 5000;  // nonsense of a driver
  ledger.SetTopology(t);
  EXPECT_EQ(ledger.Snapshot().pool_free.at("card"), 500u);
  ASSERT_TRUE(ledger.Reserve("a", {{{"card", 400}}, {}}).ok());
  EXPECT_EQ(ledger.Reserve("b", {{{"card", 101}}, {}}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ledger.Reserve("b", {{{"card", 100}}, {}}).ok());
}

TEST(LedgerTest, ReservationHoldsInAllPoolsAndLimitsOrInNone) {
  Ledger ledger = NewLedger();
  const absl::Status refused = ledger.Reserve("a", {{{"card", 100}, {"sys", 901}}, {}});
  EXPECT_EQ(ReasonOf(refused), Reason::kDoesNotFit);
  EXPECT_NE(MessageOf(refused).find("sys lacks 1 B"), std::string::npos) << refused;
  EXPECT_EQ(ledger.Promised("card"), 0u);
  EXPECT_EQ(ledger.Find("a"), nullptr);
  // Room in the pool, none under the limit that lies on it.
  EXPECT_FALSE(ledger.Reserve("a", {{{"sys", 501}}, {{"gtt", 501}}}).ok());
  EXPECT_TRUE(ledger.Reserve("a", {{{"sys", 500}}, {{"gtt", 500}}}).ok());
  EXPECT_EQ(ledger.Snapshot().limit_free.at("gtt"), 0u);
  EXPECT_EQ(ledger.Snapshot().pool_free.at("sys"), 400u);
}

TEST(LedgerTest, UnknownPoolsAndUnknownSizesArePromisedToNobody) {
  Ledger ledger = NewLedger();
  EXPECT_FALSE(ledger.Reserve("a", {{{"nowhere", 1}}, {}}).ok());
  Topology t = Machine();
  t.pools[1].total_bytes.reset();
  t.pools[1].free_bytes.reset();
  ledger.SetTopology(t);
  EXPECT_FALSE(ledger.Reserve("a", {{{"card", 1}}, {}}).ok());
}

TEST(LedgerTest, ForceIsRecordedAndLeavesNothingForOthers) {
  Ledger ledger = NewLedger();
  ASSERT_TRUE(ledger.Reserve("a", {{{"card", 9000}}, {}}, true).ok());
  EXPECT_EQ(ledger.Promised("card"), 9000u);
  EXPECT_EQ(ledger.Snapshot().pool_free.at("card"), 0u);
  ledger.Release("a");
  EXPECT_EQ(ledger.Snapshot().pool_free.at("card"), 500u);
}

TEST(LedgerTest, ConfirmKeepsTheLargerOfPromiseAndReport) {
  Ledger ledger = NewLedger();
  ASSERT_TRUE(ledger.Reserve("a", {{{"sys", 300}, {"card", 100}}, {}}).ok());
  ledger.Confirm("a", {{{"sys", 200}, {"card", 150}}, {}});
  EXPECT_EQ(ledger.Promised("sys"), 300u);
  EXPECT_EQ(ledger.Promised("card"), 150u);
  ledger.Confirm("nobody", {{{"sys", 200}}, {}});
  EXPECT_EQ(ledger.Promised("sys"), 300u);
}

TEST(LedgerTest, GenerationMovesWithEveryChangeOfWhatIsFree) {
  Ledger ledger = NewLedger();
  uint64_t last = ledger.Snapshot().generation;
  const auto moved = [&] {
    return std::exchange(last, ledger.Snapshot().generation) != ledger.Snapshot().generation;
  };
  ASSERT_TRUE(ledger.Reserve("a", {{{"sys", 1}}, {}}).ok());
  EXPECT_TRUE(moved());
  EXPECT_FALSE(ledger.Reserve("b", {{{"sys", 9999}}, {}}).ok());
  EXPECT_FALSE(moved());
  ledger.Confirm("a", {{{"sys", 5}}, {}});
  EXPECT_TRUE(moved());
  ledger.Release("a");
  EXPECT_TRUE(moved());
  ledger.Release("a");
  EXPECT_FALSE(moved());
  ledger.SetTopology(Machine());
  EXPECT_TRUE(moved());
}

TEST(LedgerTest, SecondReservationOfAnOwnerReplacesTheFirst) {
  Ledger ledger = NewLedger();
  ASSERT_TRUE(ledger.Reserve("a", {{{"card", 400}}, {}}).ok());
  EXPECT_TRUE(ledger.Reserve("a", {{{"card", 100}}, {}}).ok());
  EXPECT_EQ(ledger.Promised("card"), 100u);
}

TEST(LedgerTest, LimitOfTheUserHoldsWhateverTheMachineHas) {
  Ledger ledger(0, 100);
  Topology machine;
  MemoryPool pool;
  pool.id = "pool-system";
  pool.kind = PoolKind::kSystem;
  pool.total_bytes = pool.free_bytes = 1000;
  machine.pools = {pool};
  ledger.SetTopology(machine);
  EXPECT_EQ(ledger.Snapshot().pool_free.at("pool-system"), 100u);
  EXPECT_TRUE(ledger.Reserve("a", {{{"pool-system", 60}}, {}}).ok());
  EXPECT_FALSE(ledger.Reserve("b", {{{"pool-system", 60}}, {}}).ok());
  ledger.SetForeign({{"pool-system", 990}});
  EXPECT_EQ(ledger.Snapshot().pool_free.at("pool-system"), 0u) << "promises of other daemons count too";
}

}  // namespace
}  // namespace rumbo
