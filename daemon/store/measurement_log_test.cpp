#include "daemon/store/measurement_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/manual_executor.h"

namespace rumbo {
namespace {

class MeasurementLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rumbo-log-XXXXXX";
    folder_ = ::mkdtemp(name);
    log_ = NewMeasurementLog(*OpenCalibrationStore(folder_ + "/m.sqlite"), &executor_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What another process would find.
  size_t Kept() { return (*OpenCalibrationStore(folder_ + "/m.sqlite"))->Load()->measurements.size(); }
  void Add(int n) {
    for (int i = 0; i < n; ++i) {
      Measurement m;
      m.key.model_sha256 = std::to_string(next_++);
      log_->Add(m);
    }
  }

  std::string folder_;
  ManualExecutor executor_;
  std::unique_ptr<MeasurementLog> log_;
  int next_ = 0;
};

TEST_F(MeasurementLogTest, WritesInBatchesAndNeverInsideAdd) {
  Add(3);
  executor_.RunReady();
  EXPECT_EQ(Kept(), 0u);
  executor_.Advance(std::chrono::seconds(2));
  EXPECT_EQ(Kept(), 3u);
  Add(1);
  executor_.Advance(std::chrono::seconds(2));
  EXPECT_EQ(Kept(), 4u);
}

TEST_F(MeasurementLogTest, AFullBatchIsWrittenAtOnce) {
  Add(64);
  EXPECT_EQ(Kept(), 0u);
  executor_.RunReady();
  EXPECT_EQ(Kept(), 64u);
}

TEST_F(MeasurementLogTest, WhatWaitsIsWrittenAtTheEnd) {
  Add(5);
  log_.reset();
  EXPECT_EQ(Kept(), 5u);
  executor_.Advance(std::chrono::seconds(5));  // the task that was scheduled finds nothing
  EXPECT_EQ(Kept(), 5u);
}

}  // namespace
}  // namespace rumbo
