#include "devices/api/topology_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace rumbo {
namespace {

using ::testing::HasSubstr;

Topology Sample() {
  Topology t;
  t.source = "test";
  t.system = "linux";
  t.name = "sample \"quoted\"";
  t.interconnect = "pcie5x16";
  t.price = Price{1299, "USD", "2025-07-23", "launch"};
  MemoryPool pool;
  pool.id = "pool-system";
  pool.total_bytes = 18446744073709551615ull;
  pool.limits.push_back({"limit-gtt-0000:c5:00.0",
                         LimitKind::kGtt,
                         96 * kGiB,
                         std::nullopt,
                         {"gpu-0000:c5:00.0"},
                         {"hip"},
                         "sysfs"});
  t.pools.push_back(pool);
  Device d;
  d.id = "gpu-0000:c5:00.0";
  d.kind = DeviceKind::kGpu;
  d.memory_kind = MemoryKind::kUnified;
  d.backends.push_back({"vulkan", true, "r", "", "1.3", "u", {"pool-system"}, true});
  d.evidence = {"one", "two"};
  d.bandwidth_bytes_s = {256e9, "profile"};
  d.compute_units = 40;
  d.secondary = true;
  t.devices.push_back(d);
  t.findings.push_back({Severity::kWarning, "x.y", d.id, "text", "remedy"});
  return t;
}

TEST(TopologyJsonTest, RoundTripKeepsEverything) {
  const std::string once = TopologyToJson(Sample());
  const auto back = TopologyFromJson(once);
  ASSERT_TRUE(back.ok()) << MessageOf(back.status());
  EXPECT_EQ(TopologyToJson(*back), once);
  EXPECT_EQ(back->pools[0].total_bytes, 18446744073709551615ull);
  EXPECT_EQ(back->pools[0].limits[0].used_bytes, std::nullopt);
  EXPECT_EQ(back->devices[0].bandwidth_bytes_s.value, 256e9);
  EXPECT_EQ(back->devices[0].memory_kind, MemoryKind::kUnified);
  EXPECT_TRUE(back->devices[0].backends[0].may_span_pools);
  EXPECT_EQ(back->price->currency, "USD");
}

TEST(TopologyJsonTest, UnknownNumbersAreNullAndWholeOnesAreWhole) {
  const std::string text = TopologyToJson(Sample());
  EXPECT_THAT(text, HasSubstr("\"free_bytes\":null"));
  EXPECT_THAT(text, HasSubstr("\"value\":256000000000"));
  EXPECT_THAT(text, HasSubstr("\"memory_kind\":\"unified\""));
}

TEST(TopologyJsonTest, IllFormedTextIsReplacedNotPassedOn) {
  Topology t;
  t.name = "bad \xff name";
  const auto back = TopologyFromJson(TopologyToJson(t));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->name, "bad \xEF\xBF\xBD name");
}

TEST(TopologyJsonTest, UnknownKeysAreIgnored) {
  EXPECT_TRUE(TopologyFromJson("{\"future\":{\"a\":[1]},\"devices\":[{\"id\":\"cpu0\",\"new\":1}]}").ok());
}

TEST(TopologyJsonTest, WrongTypesAreNamed) {
  for (const char* text :
       {"", "nonsense", "[]", "{\"devices\":3}", "{\"devices\":[3]}", "{\"pools\":[{\"total_bytes\":-1}]}",
        "{\"pools\":[{\"total_bytes\":1.5}]}", "{\"devices\":[{\"kind\":\"tpu\"}]}",
        "{\"devices\":[{\"bandwidth_bytes_s\":7}]}", "{\"devices\":[{\"compute_units\":4294967296}]}",
        "{\"devices\":[{\"usable\":\"yes\"}]}"}) {
    const auto result = TopologyFromJson(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(NextStepOf(result.status()).empty());
  }
  EXPECT_THAT(MessageOf(TopologyFromJson("{\"devices\":[{},{\"kind\":\"tpu\"}]}").status()),
              HasSubstr("devices[1].kind"));
}

TEST(TopologyJsonTest, DepthIsBounded) {
  EXPECT_FALSE(TopologyFromJson("{\"future\":" + std::string(100, '[') + std::string(100, ']') + "}").ok());
}

}  // namespace
}  // namespace rumbo
