#include "daemon/supervisor/promises.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace rumbo {
namespace {

using Sums = std::map<std::string, Bytes>;

class PromiseBoardTest : public ::testing::Test {
 protected:
  PromiseBoardTest() {
    char name[] = "/tmp/rumbo-promises-XXXXXX";
    dir_ = std::string(::mkdtemp(name)) + "/board";
  }
  ~PromiseBoardTest() override { std::filesystem::remove_all(dir_.substr(0, dir_.rfind('/'))); }

  // A second daemon: publishes, says so, and stays until told.
  struct Other {
    pid_t pid;
    int tell, said;
    void End() {
      EXPECT_EQ(::write(tell, "x", 1), 1);
      ::close(tell);
      ::waitpid(pid, nullptr, 0);
      ::close(said);
    }
  };
  Other Start(const Sums& promises, bool tidy = true, bool inside = false) {
    int tell[2], said[2];
    EXPECT_EQ(::pipe(tell) + ::pipe(said), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(tell[1]);
      auto board = NewPromiseBoard(dir_);
      if (inside) (*board)->Enter();
      (*board)->Exchange(promises);
      char c = 'x';
      if (::write(said[1], &c, 1) == 1) [[maybe_unused]]
        const ssize_t n = ::read(tell[0], &c, 1);
      if (tidy) board->reset();
      ::_exit(0);
    }
    ::close(tell[0]);
    char c;
    EXPECT_EQ(::read(said[0], &c, 1), 1);
    ::close(said[1]);
    return {pid, tell[1], said[0]};
  }
  std::string dir_;
};

TEST_F(PromiseBoardTest, OthersPromisesAddUpAndGoWithThem) {
  auto board = NewPromiseBoard(dir_);
  ASSERT_TRUE(board.ok()) << board.status();
  EXPECT_EQ((*board)->Exchange({{"pool-system", 5}}), Sums{});
  Other a = Start({{"pool-system", 100}});
  Other b = Start({{"pool-system", 10}, {"pool-gpu0", 7}});
  EXPECT_EQ((*board)->Exchange({}), (Sums{{"pool-gpu0", 7}, {"pool-system", 110}}));
  a.End();
  EXPECT_EQ((*board)->Exchange({}), (Sums{{"pool-gpu0", 7}, {"pool-system", 10}}));
  b.End();
}

TEST_F(PromiseBoardTest, WhatAKilledDaemonLeftDoesNotCount) {
  auto board = NewPromiseBoard(dir_);
  ASSERT_TRUE(board.ok());
  Other gone = Start({{"pool-system", 100}}, /*tidy=*/false);
  EXPECT_EQ((*board)->Exchange({}), (Sums{{"pool-system", 100}}));
  gone.End();
  EXPECT_EQ((*board)->Exchange({}), Sums{});
  // Nor a file that names a process of another start, nor one full of noise.
  std::ofstream(dir_ + "/1-99999999") << "pool-system 5\n";
  std::ofstream(dir_ + "/12x") << "pool-system 5\n";
  EXPECT_EQ((*board)->Exchange({}), Sums{});
}

TEST_F(PromiseBoardTest, DaemonThatHangsInsideHoldsNobodyUpForLong) {
  Other hung = Start({}, true, /*inside=*/true);
  auto board = NewPromiseBoard(dir_);
  ASSERT_TRUE(board.ok());
  const auto begun = std::chrono::steady_clock::now();
  (*board)->Enter();
  (*board)->Leave();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(2));
  hung.End();
}

}  // namespace
}  // namespace rumbo
