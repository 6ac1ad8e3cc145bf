#include "daemon/core/admission.h"

#include <gtest/gtest.h>

#include <map>

namespace rumbo {
namespace {

using std::chrono::seconds;

TimePoint At(int s) { return TimePoint{} + seconds(s); }

AdmissionQueue::Item Item(const std::string& id, const std::string& client = "a",
                          Priority priority = Priority::kNormal, int at = 0, double cost = 1) {
  return {id, client, priority, At(at), cost};
}

std::string Next(AdmissionQueue& queue, int at = 0) {
  const auto item = queue.Pop(At(at));
  return item ? item->id : "";
}

TEST(AdmissionQueueTest, HigherClassFirstThenOlder) {
  AdmissionQueue queue;
  queue.Push(Item("batch", "a", Priority::kBatch));
  queue.Push(Item("normal-1", "a", Priority::kNormal));
  queue.Push(Item("normal-2", "a", Priority::kNormal, 1));
  queue.Push(Item("interactive", "a", Priority::kInteractive, 2));
  EXPECT_EQ(Next(queue, 2), "interactive");
  EXPECT_EQ(Next(queue, 2), "normal-1");
  EXPECT_EQ(Next(queue, 2), "normal-2");
  EXPECT_EQ(Next(queue, 2), "batch");
  EXPECT_EQ(Next(queue, 2), "");
  EXPECT_TRUE(queue.empty());
}

TEST(AdmissionQueueTest, WaitingRaisesTheClass) {
  AdmissionQueue queue(seconds(10));
  queue.Push(Item("batch", "a", Priority::kBatch, 0));
  queue.Push(Item("normal", "b", Priority::kNormal, 15));
  EXPECT_EQ(Next(queue, 15), "batch") << "in the same class by now, and served less";
}

// A client must not starve its own batch work by a stream of interactive requests.
TEST(AdmissionQueueTest, AgedRequestIsNotStarvedByItsOwnClient) {
  AdmissionQueue queue(seconds(10));
  queue.Push(Item("batch", "a", Priority::kBatch, 0));
  for (int i = 0; i < 30; ++i) {
    queue.Push(Item("i" + std::to_string(i), "a", Priority::kInteractive, i));
    if (Next(queue, i) == "batch") {
      EXPECT_GE(i, 20);
      return;
    }
  }
  FAIL() << "never served";
}

TEST(AdmissionQueueTest, ClientsShareByWorkNotByNumberOfRequests) {
  AdmissionQueue queue;
  for (int i = 0; i < 100; ++i) {
    queue.Push(Item("big", "big", Priority::kNormal, 0, 10));
    queue.Push(Item("small", "small", Priority::kNormal, 0, 1));
  }
  std::map<std::string, int> served;
  for (int i = 0; i < 55; ++i) ++served[Next(queue)];
  EXPECT_EQ(served["small"], 50);
  EXPECT_EQ(served["big"], 5);
}

TEST(AdmissionQueueTest, NewcomerIsServedSoonAndAbsenceEarnsNoCredit) {
  AdmissionQueue queue;
  for (int i = 0; i < 100; ++i) queue.Push(Item("old", "old"));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Next(queue), "old");
  for (int i = 0; i < 50; ++i) queue.Push(Item("new", "new"));
  std::map<std::string, int> served;
  for (int i = 0; i < 20; ++i) ++served[Next(queue)];
  EXPECT_GE(served["new"], 9);
  EXPECT_LE(served["new"], 11);
}

TEST(AdmissionQueueTest, PutBackStandsWhereItsArrivalPutsItAndIsNotPaidTwice) {
  AdmissionQueue queue;
  for (int i = 0; i < 4; ++i) queue.Push(Item("r" + std::to_string(i), "a", Priority::kNormal, i, 10));
  std::vector<AdmissionQueue::Item> popped;
  for (int i = 0; i < 3; ++i) popped.push_back(*queue.Pop(At(4)));
  for (const auto& item : popped) queue.PutBack(item);  // a crash returns them in any order
  queue.Push(Item("other", "b", Priority::kNormal, 4, 1));
  std::vector<std::string> order;
  for (int i = 0; i < 5; ++i) order.push_back(Next(queue, 4));
  EXPECT_EQ(order, (std::vector<std::string>{"r0", "r1", "r2", "other", "r3"}))
      << "as if they had never been popped";
}

TEST(AdmissionQueueTest, RemoveTakesOutExactlyThatOne) {
  AdmissionQueue queue;
  queue.Push(Item("1"));
  queue.Push(Item("2"));
  queue.Push(Item("3", "b"));
  EXPECT_TRUE(queue.Remove("2"));
  EXPECT_FALSE(queue.Remove("2"));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(Next(queue), "1");
  EXPECT_EQ(queue.RemoveAll(), std::vector<std::string>{"3"});
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(Next(queue), "");
}

TEST(AdmissionQueueTest, ManyClientNamesDoNotPileUpNorMixUpShares) {
  AdmissionQueue queue;
  for (int i = 0; i < 5000; ++i) {
    queue.Push(Item("x" + std::to_string(i), "client" + std::to_string(i)));
    EXPECT_EQ(Next(queue), "x" + std::to_string(i));
  }
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace rumbo
