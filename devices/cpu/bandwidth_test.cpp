#include "devices/cpu/bandwidth.h"

#include <gtest/gtest.h>

#include "devices/testing/fake_tree.h"

namespace rumbo {
namespace {

TEST(BandwidthTest, MeasuresSomethingPlausible) {
  const auto m = MeasureReadBandwidth(2, std::nullopt, std::chrono::milliseconds(5));
  ASSERT_TRUE(m.has_value());
  EXPECT_GT(m->bytes_per_s, 1e8);   // slower than any DDR channel
  EXPECT_LT(m->bytes_per_s, 2e13);  // faster than any HBM machine
  EXPECT_EQ(m->threads, 2);
}

TEST(BandwidthTest, DeclinesWhereMemoryIsShort) {
  EXPECT_FALSE(MeasureReadBandwidth(1, 256 * kMiB, std::chrono::milliseconds(5)).has_value());
}

TEST(BandwidthCacheTest, KeepsWhatWasMeasuredOnThisCpuOnly) {
  FakeTree dir;
  EXPECT_FALSE(LoadBandwidth(dir.dir(), "A", 2).has_value());
  ASSERT_TRUE(StoreBandwidth(dir.dir() + "/new", {54e9, 2, 128 * kMiB, "A"}));
  const auto found = LoadBandwidth(dir.dir() + "/new", "A", 2);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->bytes_per_s, 54e9);
  EXPECT_EQ(found->buffer_bytes, 128 * kMiB);
  EXPECT_FALSE(LoadBandwidth(dir.dir() + "/new", "B", 2).has_value());
  EXPECT_FALSE(LoadBandwidth(dir.dir() + "/new", "A", 4).has_value());
}

TEST(BandwidthCacheTest, BrokenFilesAreNoMeasurement) {
  for (const char* text :
       {"", "{", "[]", "{\"cpu\":\"A\"}",
        "{\"cpu\":\"A\",\"threads\":2,\"read_bytes_s\":-1,\"buffer_bytes\":1}",
        "{\"cpu\":\"A\",\"threads\":2,\"read_bytes_s\":999999999999999999,\"buffer_bytes\":1}"}) {
    FakeTree dir;
    dir.File("/cpu-bandwidth.json", text);
    EXPECT_FALSE(LoadBandwidth(dir.dir(), "A", 2).has_value()) << text;
  }
}

}  // namespace
}  // namespace rumbo
