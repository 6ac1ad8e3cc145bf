#include "devices/probe/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <condition_variable>
#include <mutex>

#include "devices/probe/child.h"
#include "devices/testing/fake_tree.h"

namespace rumbo {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Time = std::chrono::steady_clock;

class NamedProbe : public Probe {
 public:
  explicit NamedProbe(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  Apply Read(const Root&, const std::vector<PciFunction>&) const override {
    return [name = name_](Facts& facts) { facts.environment[name] = "read"; };
  }

 private:
  std::string name_;
};

// Blocks until released, like a read of a hung driver.
class StuckProbe final : public NamedProbe {
 public:
  StuckProbe() : NamedProbe("stuck") {}
  ~StuckProbe() override { Release(); }
  Apply Read(const Root& root, const std::vector<PciFunction>& functions) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return released_; });
    left_ = true;
    changed_.notify_all();
    return NamedProbe::Read(root, functions);
  }
  void Release() const {
    std::unique_lock lock(mutex_);
    released_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return left_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool released_ = false;
  mutable bool left_ = false;
};

TEST(GatherTest, AStuckReaderCostsItsOwnFactsOnly) {
  FakeTree tree;
  const NamedProbe pci("pci"), one("one"), two("two");
  static const auto* stuck = new StuckProbe();  // its thread may still return from Read after the test
  GatherOptions options;
  options.deadline = milliseconds(50);
  const Gathered out = GatherWith(tree.root(), options, pci, {&one, stuck, &two});
  EXPECT_TRUE(out.thread_stuck);
  EXPECT_EQ(out.facts.environment.count("one"), 1u);
  EXPECT_EQ(out.facts.environment.count("two"), 1u);
  EXPECT_EQ(out.facts.environment.count("stuck"), 0u);
  ASSERT_EQ(out.facts.findings.size(), 1u);
  EXPECT_EQ(out.facts.findings[0].code, "probe.late");
  EXPECT_THAT(out.facts.findings[0].text, HasSubstr("stuck"));
  stuck->Release();
}

TEST(GatherTest, EnrichingProbesSeeWhatThePciProbeFound) {
  class Finder final : public NamedProbe {
   public:
    Finder() : NamedProbe("pci") {}
    Apply Read(const Root&, const std::vector<PciFunction>&) const override {
      return [](Facts& facts) { facts.pci.emplace_back().key = "x"; };
    }
  };
  class Counter final : public NamedProbe {
   public:
    Counter() : NamedProbe("counter") {}
    Apply Read(const Root&, const std::vector<PciFunction>& functions) const override {
      return [n = functions.size()](Facts& facts) { facts.environment["seen"] = std::to_string(n); };
    }
  };
  FakeTree tree;
  const Finder finder;
  const Counter counter;
  EXPECT_EQ(GatherWith(tree.root(), {}, finder, {&counter}).facts.environment.at("seen"), "1");
}

ProbeChild::Outcome RunShell(const std::string& script, milliseconds limit = milliseconds(20000)) {
  return ProbeChild({"/bin/sh", "-c", script}).Finish(Time::now() + limit);
}

TEST(ChildTest, OutputIsReadToItsEnd) {
  const auto outcome = RunShell("head -c 300000 /dev/zero | tr '\\0' x; echo end");
  EXPECT_TRUE(outcome.ok) << outcome.error;
  EXPECT_EQ(outcome.output.size(), 300004u);
}

TEST(ChildTest, ExitCodesAndLastWordsAreReported) {
  const auto outcome = RunShell("echo first >&2; echo why >&2; exit 3");
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.error, "failed with exit code 3: why");
}

TEST(ChildTest, SignalsAreReported) { EXPECT_THAT(RunShell("kill -SEGV $$").error, HasSubstr("signal 11")); }

TEST(ChildTest, AMissingProgramIsReported) {
  EXPECT_THAT(ProbeChild({"/no/such/program"}).Finish(Time::now() + milliseconds(5000)).error,
              HasSubstr("cannot start"));
}

TEST(ChildTest, TooMuchOutputIsCut) {
  const auto outcome = RunShell("head -c 9000000 /dev/zero");
  EXPECT_TRUE(outcome.ok) << outcome.error;
  EXPECT_EQ(outcome.output.size(), 4u * 1024 * 1024);
}

TEST(ChildTest, AnAnswerThatWasThereInTimeCountsAfterTheDeadline) {
  ProbeChild quick({"/bin/sh", "-c", "echo here"});
  EXPECT_TRUE(RunShell("sleep 60", milliseconds(1000)).timed_out);
  const auto outcome = quick.Finish(Time::now() - milliseconds(1));
  EXPECT_TRUE(outcome.ok) << outcome.error;
  EXPECT_EQ(outcome.output, "here\n");
}

TEST(ChildTest, EndlessOutputEndsAtTheDeadline) { EXPECT_TRUE(RunShell("yes", milliseconds(200)).timed_out); }

TEST(ChildTest, WhatItStartedDiesWithIt) {
  // The child is late and has a child of its own, which ignores everything but SIGKILL.
  const auto start = Time::now();
  const auto outcome =
      RunShell("(trap '' TERM INT HUP; while :; do sleep 1; done) & echo $!; wait", milliseconds(300));
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_LT(Time::now() - start, milliseconds(10000));
  const int grandchild = atoi(outcome.output.c_str());
  ASSERT_GT(grandchild, 0);
  // Its state becomes "gone" or zombie of init; never running.
  for (int i = 0; i < 200 && kill(grandchild, 0) == 0; ++i) {
    const FileText stat = Root().Read("/proc/" + std::to_string(grandchild) + "/stat");
    if (!stat.ok() || stat.text.find(") Z") != std::string::npos) return;
    sched_yield();
  }
  const FileText stat = Root().Read("/proc/" + std::to_string(grandchild) + "/stat");
  EXPECT_TRUE(!stat.ok() || stat.text.find(") Z") != std::string::npos) << stat.text;
}

}  // namespace
}  // namespace rumbo
