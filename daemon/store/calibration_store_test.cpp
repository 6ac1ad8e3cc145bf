#include "daemon/store/calibration_store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/status.h"

namespace rumbo {
namespace {

class CalibrationStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rumbo-calibration-XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ + "/measurements.sqlite";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<CalibrationStore> Open() {
    auto store = OpenCalibrationStore(path_);
    EXPECT_TRUE(store.ok()) << MessageOf(store.status());
    return store.ok() ? *std::move(store) : nullptr;
  }

  static Measurement Sample() {
    Measurement m;
    m.key = {"engine", "1.0", "native", "cpu", "a device", "driver 'x'", "abc", "Q4"};
    m.sessions = 4;
    m.context_total = 16384;
    m.predicted_memory = {{"pool-system", "weights", 1ull << 40, "formula"}};
    m.measured_memory = {{"pool-system", "weights", 123, "measured"}};
    m.predicted_decode_tok_s = 10;
    m.measured_decode_tok_s = 12.5;
    m.prompt_tokens = 512;
    m.unix_s = 1700000000;
    m.tuned = true;
    return m;
  }

  std::string folder_, path_;
};

TEST_F(CalibrationStoreTest, SurvivesARestart) {
  ASSERT_TRUE(Open()->Add({Sample()}).ok());
  const auto back = Open()->Load();
  ASSERT_TRUE(back.ok());
  ASSERT_EQ(back->measurements.size(), 1u);
  const Measurement& m = back->measurements[0];
  EXPECT_EQ(m.key, Sample().key);
  EXPECT_EQ(m.sessions, 4u);
  EXPECT_EQ(m.predicted_memory[0].bytes, 1ull << 40);
  EXPECT_EQ(m.measured_memory[0].bytes, 123u);
  EXPECT_EQ(m.measured_decode_tok_s, 12.5);
  EXPECT_EQ(m.measured_ttft_ms, std::nullopt) << "unknown stays unknown";
  EXPECT_TRUE(m.tuned);
}

TEST_F(CalibrationStoreTest, IsPrivate) {
  Open();
  struct stat info;
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(CalibrationStoreTest, KeepsTheNewestAndNoMoreThanItsShare) {
  auto store = Open();
  std::vector<Measurement> batch;
  for (int i = 0; i < 2010; ++i) {
    batch.push_back(Sample());
    batch.back().unix_s = i;
    batch.back().key.model_sha256 = std::to_string(i);
  }
  ASSERT_TRUE(store->Add(batch).ok());
  const auto all = store->Load();
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->measurements.size(), 2000u);
  EXPECT_EQ(all->measurements.back().unix_s, 2009) << "newest last";
}

TEST_F(CalibrationStoreTest, ABusyModelDoesNotCrowdOutTheOthers) {
  auto store = Open();
  Measurement other = Sample();
  other.key.model_sha256 = "other";
  ASSERT_TRUE(store->Add({other}).ok());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(store->Add(std::vector<Measurement>(60, Sample())).ok());
  const auto all = store->Load();
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->measurements.size(), 11u) << "ten of a kind are all that is looked at";
  EXPECT_EQ(all->measurements.front().key.model_sha256, "other");
}

TEST_F(CalibrationStoreTest, AnOlderLayoutIsBegunAnew) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  sqlite3_exec(db, "CREATE TABLE measurement(id INTEGER PRIMARY KEY, engine TEXT); PRAGMA user_version = 1",
               nullptr, nullptr, nullptr);
  sqlite3_close(db);
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->Add({Sample()}).ok());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".damaged"));
}

TEST_F(CalibrationStoreTest, ADamagedFileIsPutAside) {
  std::ofstream(path_) << std::string(5000, 'x');
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->Add({Sample()}).ok());
  EXPECT_TRUE(std::filesystem::exists(path_ + ".damaged"));
}

TEST_F(CalibrationStoreTest, ForgetsByEngineBackendAndDevice) {
  auto store = Open();
  Measurement m = Sample();
  ASSERT_TRUE(store->Add({m}).ok());
  m.key.backend = "gpu";
  ASSERT_TRUE(store->Add({m}).ok());
  EXPECT_EQ(*store->Forget("engine", "gpu", ""), 1);
  EXPECT_EQ(store->Load()->measurements.size(), 1u);
  EXPECT_EQ(*store->Forget("", "", ""), 1);
}

TEST_F(CalibrationStoreTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(OpenCalibrationStore(folder_ + "/none/x.sqlite").ok());
}

}  // namespace
}  // namespace rumbo
