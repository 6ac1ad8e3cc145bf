// Workers that outlive their daemon, and who is not to be hit with them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/os/files.h"
#include "daemon/supervisor/cgroup.h"
#include "daemon/supervisor/journal.h"
#include "daemon/supervisor/processes.h"

namespace rumbo {
namespace {

class ReapingTest : public ::testing::Test {
 protected:
  ReapingTest() {
    char name[] = "/tmp/rumbo-reaping-XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  ~ReapingTest() override {
    for (const pid_t pid : started_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    std::filesystem::remove_all(dir_);
  }
  pid_t Sleeper() {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::execl("/bin/sleep", "sleep", "600", nullptr);
      ::_exit(127);
    }
    const std::string before = ExecutableOf(::getpid());
    while (ExecutableOf(pid) == before) ::usleep(1000);
    started_.push_back(pid);
    return pid;
  }
  bool Ended(pid_t pid) const { return !ProcessMark::Of(pid); }

  std::string dir_;
  std::vector<pid_t> started_;
};

TEST_F(ReapingTest, RecordedWorkerOfAKilledDaemonEnds) {
  const pid_t worker = Sleeper(), stranger = Sleeper();
  WorkerRecord(dir_).Add(worker);  // by a daemon that is gone
  WorkerRecord next(dir_);
  EXPECT_EQ(next.Reap(), 1);
  EXPECT_TRUE(Ended(worker));
  EXPECT_FALSE(Ended(stranger));
  EXPECT_EQ(WorkerRecord(dir_).Reap(), 0) << "it was forgotten";
}

TEST_F(ReapingTest, NumberThatPassedToAnotherProcessIsLeftAlone) {
  const pid_t neighbour = Sleeper();
  const auto mark = ProcessMark::Of(neighbour);
  ASSERT_TRUE(mark);
  // Of another start; of the same start, but another program; and text that is none.
  std::ofstream(dir_ + "/workers") << neighbour << " " << mark->start + 1 << " " << ExecutableOf(neighbour)
                                   << "\n"
                                   << neighbour << " " << mark->start << " 1:2\n"
                                   << "1 0 x\n-1 0 x\nnonsense";
  EXPECT_EQ(WorkerRecord(dir_).Reap(), 0);
  EXPECT_FALSE(Ended(neighbour));
}

TEST_F(ReapingTest, RecordNamesWhatRuns) {
  WorkerRecord record(dir_);
  const pid_t a = Sleeper(), b = Sleeper();
  record.Add(a);
  record.Add(b);
  record.Remove(a);
  const auto text = ReadFile(dir_ + "/workers", 4096);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->find(std::to_string(a) + " "), std::string::npos);
  EXPECT_EQ(text->rfind(std::to_string(b) + " ", 0), 0u);
}

TEST_F(ReapingTest, GroupEndsWhatLeftItsProcessGroup) {
  auto group = WorkerGroup::Create("test-" + std::to_string(::getpid()));
  if (!group) GTEST_SKIP() << "no control group of version 2 that this user may make";
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t worker = ::fork();
  if (worker == 0) {
    char go;
    if (::read(pipe[0], &go, 1) != 1) ::_exit(1);
    if (::fork() == 0) {
      ::setsid();
      ::execl("/bin/sleep", "sleep", "600", nullptr);
    }
    ::execl("/bin/sleep", "sleep", "600", nullptr);
    ::_exit(127);
  }
  started_.push_back(worker);
  ASSERT_TRUE(group->Add(worker));
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  const std::string procs = group->path() + "/cgroup.procs";
  const auto count = [&] {
    const auto text = ReadFile(procs, 4096);
    return text.ok() ? std::count(text->begin(), text->end(), '\n') : 0;
  };
  while (count() < 2) ::usleep(1000);
  group->KillAll();
  ::waitpid(worker, nullptr, 0);
  for (int i = 0; i < 2000 && !group->empty(); ++i) ::usleep(1000);
  EXPECT_TRUE(group->empty());
  const std::string path = group->path();
  group.reset();
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(WorkTest, GrowsWhileAProcessComputes) {
  const auto before = WorkOf(::getpid());
  ASSERT_TRUE(before);
  volatile uint64_t x = 0;
  while (WorkOf(::getpid()) == before) x = x + 1;
  EXPECT_GT(*WorkOf(::getpid()), *before);
}

}  // namespace
}  // namespace rumbo
