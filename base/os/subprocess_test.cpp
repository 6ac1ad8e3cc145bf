#include "base/os/subprocess.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "base/status.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;

SpawnSpec Shell(const std::string& script) {
  return {.argv = {"/bin/sh", "-c", script}, .env = CleanEnvironment()};
}

bool Alive(pid_t pid) { return ::kill(pid, 0) == 0; }

TEST(SubprocessTest, ReturnsOutputAndExitCode) {
  const auto result = RunHelper(Shell("echo out; echo err >&2; exit 3"), milliseconds(5000), 1000);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "out\n");
  EXPECT_EQ(result->err, "err\n");
  EXPECT_TRUE(result->exit.exited);
  EXPECT_EQ(result->exit.code, 3);
  EXPECT_FALSE(result->timed_out);
}

TEST(SubprocessTest, MissingProgramIsNotFound) {
  const auto result = RunHelper({.argv = {"/no/such/program"}}, milliseconds(1000), 10);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
}

TEST(SubprocessTest, KillsAtTheDeadlineWithGrandchildren) {
  // The grandchild leaves the session and would live on; it holds our pipe, so returning at all proves its
  // end.
  const auto result = RunHelper(Shell("setsid sleep 60 & sleep 60"), milliseconds(200), 1000);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->timed_out);
}

TEST(SubprocessTest, RefusesEndlessOutput) {
  const auto result = RunHelper(Shell("yes"), milliseconds(10000), 100000);
  EXPECT_FALSE(result.ok());
}

TEST(SubprocessTest, PassesOnlyTheAskedDescriptors) {
  int extra[2];
  ASSERT_EQ(::pipe(extra), 0);  // without close-on-exec on purpose
  const auto result = RunHelper(Shell("ls /proc/self/fd | wc -l"), milliseconds(5000), 1000);
  ::close(extra[0]);
  ::close(extra[1]);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(std::atoi(result->out.c_str()), 4);  // 0, 1, 2 and ls's own
}

TEST(SubprocessTest, IsolatedChildHasNoNetwork) {
  const auto child = Spawn(Shell("exit 0"));
  ASSERT_TRUE(child.ok());
  const bool isolated = child->isolated;
  Reap(*child);
  if (!isolated) GTEST_SKIP() << "this kernel allows no user namespaces";
  const auto result = RunHelper(Shell("grep -c : /proc/net/dev"), milliseconds(5000), 1000);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->out, "1\n");  // loopback alone
}

TEST(SubprocessTest, ChildSurvivesTheThreadThatAskedForIt) {
  Child child;
  std::thread([&] {
    auto spawned = Spawn(Shell("sleep 30"));
    ASSERT_TRUE(spawned.ok());
    child = std::move(*spawned);
  }).join();
  std::this_thread::yield();
  EXPECT_TRUE(Alive(child.pid));
  KillTree(child);
  const ExitStatus exit = Reap(child);
  EXPECT_FALSE(exit.exited);
  EXPECT_EQ(exit.code, SIGKILL);
}

}  // namespace
}  // namespace rumbo
