#include "daemon/core/calibration.h"

#include <gtest/gtest.h>

#include "daemon/core/testing/plan_fixtures.h"

namespace rumbo {
namespace {

Measurement Ran(const CalibrationKey& key, uint32_t sessions, double predicted, double measured) {
  Measurement m;
  m.key = key;
  m.sessions = sessions;
  m.predicted_decode_tok_s = predicted;
  m.measured_decode_tok_s = measured;
  return m;
}

CalibrationKey Key(const std::string& sha, const std::string& version = "1") {
  return {"e", version, "", "cpu", "dev", "", sha, "Q4"};
}

TEST(CalibrationTest, NothingMeasuredCorrectsNothing) {
  EXPECT_FALSE(Corrections(Calibration{}, Key("a")).Decode(1));
  EXPECT_FALSE(Corrections(Calibration{}, Key("a")).Memory("compute"));
}

TEST(CalibrationTest, TheClosestMeasurementWins) {
  Calibration c;
  c.measurements = {Ran(Key("other"), 1, 10, 20), Ran(Key("a"), 16, 10, 5), Ran(Key("a"), 1, 10, 8)};
  EXPECT_DOUBLE_EQ(Corrections(c, Key("a")).Decode(1)->factor, 0.8);
  EXPECT_DOUBLE_EQ(Corrections(c, Key("a")).Decode(16)->factor, 0.5);
  EXPECT_LT(Corrections(c, Key("a")).Decode(1)->uncertainty,
            Corrections(c, Key("new")).Decode(1)->uncertainty);
  EXPECT_NE(Corrections(c, Key("a")).Decode(1)->source.find("this model"), std::string::npos);
}

TEST(CalibrationTest, ANewVersionOrDriverMakesItStale) {
  Calibration c;
  c.measurements = {Ran(Key("a", "1"), 1, 10, 8)};
  EXPECT_FALSE(Corrections(c, Key("a", "2")).Decode(1));
  CalibrationKey driver = Key("a");
  driver.driver_version = "new";
  EXPECT_FALSE(Corrections(c, driver).Decode(1));
}

TEST(CalibrationTest, OneOutlierDoesNotMoveTheMedian) {
  Calibration c;
  for (const double measured : {9.0, 9.1, 0.5, 9.2, 9.0})
    c.measurements.push_back(Ran(Key("a"), 1, 10, measured));
  EXPECT_NEAR(Corrections(c, Key("a")).Decode(1)->factor, 0.9, 0.02);
}

TEST(CalibrationTest, ATuningRunOutranksWhatWasSeenUnderOtherLoad) {
  Calibration c;
  c.measurements = {Ran(Key("a"), 1, 10, 10), Ran(Key("a"), 1, 10, 4), Ran(Key("a"), 1, 10, 5)};
  c.measurements[0].tuned = true;
  EXPECT_DOUBLE_EQ(Corrections(c, Key("a")).Decode(1)->factor, 1);
}

TEST(CalibrationTest, TheNearestNumberOfSessionsStandsIn) {
  Calibration c;
  c.measurements = {Ran(Key("a"), 1, 10, 10), Ran(Key("a"), 16, 10, 5)};
  EXPECT_DOUBLE_EQ(Corrections(c, Key("a")).Decode(12)->factor, 0.5) << "12 is as good as 16";
  EXPECT_DOUBLE_EQ(Corrections(c, Key("a")).Decode(64)->factor, 0.5);
  EXPECT_DOUBLE_EQ(Corrections(c, Key("a")).Decode(2)->factor, 1);
  EXPECT_EQ(CalibrationBucket(0), 0u);
  EXPECT_EQ(CalibrationBucket(5), 4u);
  EXPECT_EQ(CalibrationBucket(6), 8u);
  EXPECT_EQ(CalibrationBucket(UINT32_MAX), 1u << 31);
}

TEST(CalibrationTest, AnEngineIsNotPreferredBecauseItAloneWasNeverMeasured) {
  Calibration c;
  CalibrationKey other = Key("a");
  other.engine_build = "other";
  c.measurements = {Ran(Key("a"), 1, 10, 4)};
  ASSERT_TRUE(Corrections(c, other).Decode(1));
  EXPECT_DOUBLE_EQ(Corrections(c, other).Decode(1)->factor, 0.4);
  EXPECT_GT(Corrections(c, other).Decode(1)->uncertainty, 0.3);
  other.device = "another";
  EXPECT_FALSE(Corrections(c, other).Decode(1));
}

TEST(CalibrationTest, StaleTuningIsSaid) {
  Calibration c;
  c.measurements = {Ran(Key("a", "1"), 1, 10, 8)};
  c.measurements[0].tuned = true;
  EXPECT_EQ(Corrections(c, Key("a", "1")).StaleTuning(), "");
  EXPECT_EQ(Corrections(c, Key("a", "2")).StaleTuning(), "version 1 of the engine");
  CalibrationKey driver = Key("a", "1");
  driver.driver_version = "new";
  EXPECT_EQ(Corrections(c, driver).StaleTuning(), "driver unknown");
}

TEST(CalibrationTest, SettingsThatTuningFoundFasterAreTaken) {
  const Topology t = testing::CpuMachine(64 * kGiB);
  PlanRequest r = testing::RequestFor(testing::DenseModel(4 * kGiB));
  r.workload.objective = "throughput";
  const auto before = testing::PlanOn(t, r);
  ASSERT_TRUE(before.ok() && before->chosen);
  Measurement own = Ran(before->chosen->key, 4, 10, 5), other = own;
  own.tuned = other.tuned = true;
  other.knobs = "threads=2 ubatch=256";
  other.measured_decode_tok_s = 20;
  Calibration c;
  c.measurements = {own, other};
  const auto after = MakePlan(r, t, BuiltInCatalog(), c);
  ASSERT_TRUE(after.ok() && after->chosen);
  EXPECT_EQ(after->chosen->settings.threads, 2u);
  EXPECT_EQ(after->chosen->settings.ubatch, 256u);
  EXPECT_EQ(after->chosen->knobs.Text(), "threads=2 ubatch=256");
  c.measurements[1].measured_decode_tok_s = 1;
  EXPECT_EQ(MakePlan(r, t, BuiltInCatalog(), c)->chosen->settings.threads, before->chosen->settings.threads);
}

TEST(CalibrationTest, KnobsReadBackAndNonsenseIsLeftOut) {
  TuningKnobs knobs;
  knobs.batch = 2048;
  knobs.threads = 3;
  EXPECT_EQ(TuningKnobs::Parse(knobs.Text()).Text(), knobs.Text());
  EXPECT_EQ(TuningKnobs::Parse("threads=0 x=1 batch ubatch=99999999 =").Text(), "");
}

TEST(CalibrationTest, TheNewestTenOfAKindAreKept) {
  Calibration c;
  for (int i = 0; i < 50; ++i) AddMeasurement(c, Ran(Key(i % 2 ? "a" : "b"), 1, 10, 1 + i));
  ASSERT_EQ(c.measurements.size(), 20u);
  EXPECT_EQ(c.measurements.back().measured_decode_tok_s, 50);
  EXPECT_EQ(c.measurements.front().measured_decode_tok_s, 31);
}

TEST(CalibrationTest, NonsenseIsNoMeasurement) {
  Calibration c;
  c.measurements = {Ran(Key("a"), 1, 0, 5), Ran(Key("a"), 1, 10, -1), Ran(Key("a"), 1, 10, 1e9),
                    Ran(Key("a"), 1, NAN, 5)};
  EXPECT_FALSE(Corrections(c, Key("a")).Decode(1));
}

TEST(CalibrationTest, MemoryThatWasTakenIsReservedNextTime) {
  Measurement m;
  const Topology t = testing::CpuMachine(64 * kGiB);
  PlanRequest r = testing::RequestFor(testing::DenseModel(4 * kGiB));
  const auto before = testing::PlanOn(t, r);
  ASSERT_TRUE(before.ok() && before->chosen);
  m.key = {"llamacpp", "0.5.0", "native", "cpu", "Test CPU", "", "abc", "Q4_K_M"};
  m.predicted_memory = before->chosen->uncorrected_memory;
  m.measured_memory = m.predicted_memory;
  for (MemoryItem& item : m.measured_memory) {
    if (item.what == "compute") item.bytes *= 2;
    if (item.what == "kv_cache") item.bytes /= 2;
  }
  m.predicted_decode_tok_s = before->chosen->uncorrected.decode_tok_s;
  m.measured_decode_tok_s = *m.predicted_decode_tok_s / 2;
  m.sessions = 4;
  Calibration c;
  c.measurements = {m};
  const auto after = MakePlan(r, t, BuiltInCatalog(), c);
  ASSERT_TRUE(after.ok() && after->chosen);
  EXPECT_EQ(testing::SumOf(*after->chosen, "pool-system", "compute"),
            2 * testing::SumOf(*before->chosen, "pool-system", "compute"));
  EXPECT_EQ(testing::SumOf(*after->chosen, "pool-system", "kv_cache"),
            testing::SumOf(*before->chosen, "pool-system", "kv_cache"))
      << "never less than the formula";
  EXPECT_NEAR(*after->chosen->predicted.decode_tok_s, *before->chosen->predicted.decode_tok_s / 2, 1e-6);
  EXPECT_EQ(after->chosen->uncorrected.decode_tok_s, before->chosen->uncorrected.decode_tok_s)
      << "or corrections would compound";
  EXPECT_NE(after->chosen->predicted.source.find("measured here"), std::string::npos);
}

TEST(CalibrationTest, ProfilesOfOtherMachinesAreNotCorrected) {
  Calibration c;
  Measurement m = Ran({"llamacpp", "0.5.0", "", "cpu", "Test CPU", "", "abc", "Q4_K_M"}, 4, 10, 1);
  c.measurements = {m};
  PlanRequest r = testing::RequestFor(testing::DenseModel(4 * kGiB));
  r.assume_installed = true;
  const auto plan = MakePlan(r, testing::CpuMachine(64 * kGiB), BuiltInCatalog(), c);
  ASSERT_TRUE(plan.ok() && plan->chosen);
  EXPECT_EQ(plan->chosen->predicted.source, "formula");
}

}  // namespace
}  // namespace rumbo
