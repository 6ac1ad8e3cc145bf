#include "daemon/store/fetch/journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/os/files.h"

namespace rumbo {
namespace {

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rumbo-journal-XXXXXX";
    dir_ = ::mkdtemp(name);
    path_ = dir_ + "/j";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_, path_;
};

TEST(RangeSetTest, MergesAndCounts) {
  RangeSet set;
  set.Add(10, 20);
  set.Add(30, 40);
  set.Add(20, 30);
  EXPECT_EQ(set.ranges().size(), 1u);
  EXPECT_EQ(set.total(), 30u);
  set.Add(0, 5);
  set.Add(2, 12);
  EXPECT_EQ(set.total(), 40u);
  EXPECT_EQ(set.ContiguousFrom(0), 40u);
  EXPECT_EQ(set.ContiguousFrom(41), 41u);
  set.Add(50, 60);
  const std::vector<std::pair<uint64_t, uint64_t>> gaps = {{40, 50}, {60, 70}};
  EXPECT_EQ(set.Gaps(70), gaps);
  set.Add(5, 5);
  EXPECT_EQ(set.total(), 50u);
}

TEST_F(JournalTest, WhatWasSyncedIsReadBack) {
  RangeSet set;
  auto journal = Journal::Begin(path_, {100, std::string(64, 'a'), "\"tag\""}, set);
  ASSERT_TRUE(journal.ok()) << journal.status();
  set.Add(0, 10);
  ASSERT_TRUE(journal->Append(set).ok());
  set.Add(50, 60);
  ASSERT_TRUE(journal->Append(set).ok());
  const auto content = Journal::Read(path_);
  ASSERT_TRUE(content);
  EXPECT_EQ(content->identity.size, 100u);
  EXPECT_EQ(content->identity.etag, "\"tag\"");
  EXPECT_EQ(content->durable.total(), 20u);
}

TEST_F(JournalTest, ATornOrFlippedTailIsIgnored) {
  RangeSet set;
  auto journal = Journal::Begin(path_, {100, "", ""}, set);
  set.Add(0, 10);
  ASSERT_TRUE(journal->Append(set).ok());
  set.Add(20, 30);
  ASSERT_TRUE(journal->Append(set).ok());
  const std::string whole = *ReadFile(path_, 1 << 20);
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << whole.substr(0, cut);
    const auto content = Journal::Read(path_);
    if (!content) continue;
    const uint64_t total = content->durable.total();
    EXPECT_TRUE(total == 0 || total == 10 || total == 20) << cut;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bad;
    const auto content = Journal::Read(path_);
    EXPECT_TRUE(!content || content->durable.total() < 20) << at;
  }
}

}  // namespace
}  // namespace rumbo
