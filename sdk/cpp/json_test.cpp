#include "sdk/cpp/json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "rumbo/v1/inference.pb.h"
#include "rumbo/v1/instance.pb.h"
#include "rumbo/v1/plan.pb.h"

namespace rumbo {
namespace {

TEST(JsonTest, EveryFieldIsThereAndUnknownIsNull) {
  EXPECT_EQ(
      ToJson(v1::Predicted(), 0),
      R"({"ttft_ms":null,"decode_tok_s":null,"aggregate_tok_s":null,"load_s":null,"energy_j_per_tok":null,)"
      R"("uncertainty":null,"source":""})");
}

TEST(JsonTest, AbsentMessagesAreNullAndEmptyListsAreLists) {
  const auto value = ToJsonValue(v1::Plan());
  EXPECT_TRUE(value.at("chosen").is_null());
  EXPECT_TRUE(value.at("refusal").is_null());
  EXPECT_TRUE(value.at("rejected").as_array().empty());
  EXPECT_EQ(value.at("forced"), false);
}

TEST(JsonTest, AnOptionalZeroIsZero) {
  v1::Predicted predicted;
  predicted.set_ttft_ms(0);
  EXPECT_EQ(ToJsonValue(predicted).at("ttft_ms"), 0.0);
}

TEST(JsonTest, SixtyFourBitIntegersAreNumbersWithoutLoss) {
  v1::MemoryItem item;
  item.set_bytes(std::numeric_limits<uint64_t>::max());
  EXPECT_NE(ToJson(item, 0).find(R"("bytes":18446744073709551615)"), std::string::npos);
  v1::Instance instance;
  instance.set_since(std::numeric_limits<int64_t>::min());
  EXPECT_NE(ToJson(instance, 0).find(R"("since":-9223372036854775808)"), std::string::npos);
}

TEST(JsonTest, RealsAreTheirShortestDigits) {
  v1::Sampling sampling;
  sampling.set_temperature(0.1f);
  sampling.set_top_p(1);
  v1::Predicted predicted;
  predicted.set_ttft_ms(41.25);
  predicted.set_load_s(1e300);
  EXPECT_NE(ToJson(sampling, 0).find(R"("temperature":0.1,"top_p":1,)"), std::string::npos);
  EXPECT_NE(ToJson(predicted, 0).find(R"("ttft_ms":41.25)"), std::string::npos);
  EXPECT_NE(ToJson(predicted, 0).find(R"("load_s":1e+300)"), std::string::npos);
}

TEST(JsonTest, NotANumberAndInfinityAreNull) {
  v1::Predicted predicted;
  predicted.set_ttft_ms(std::nan(""));
  predicted.set_load_s(std::numeric_limits<double>::infinity());
  v1::TokenLogprob token;
  token.set_logprob(-std::numeric_limits<float>::infinity());
  EXPECT_TRUE(ToJsonValue(predicted).at("ttft_ms").is_null());
  EXPECT_TRUE(ToJsonValue(predicted).at("load_s").is_null());
  EXPECT_TRUE(ToJsonValue(token).at("logprob").is_null());
}

TEST(JsonTest, BytesAreBase64) {
  v1::TokenLogprob token;
  const std::pair<std::string, std::string> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {std::string("\xff\x00\xfe\x01", 4), "/wD+AQ=="}};
  for (const auto& [bytes, text] : cases) {
    token.set_piece(bytes);
    EXPECT_EQ(ToJsonValue(token).at("piece").as_string(), text);
  }
}

TEST(JsonTest, MapsAreObjectsSortedByKey) {
  v1::Settings settings;
  for (const char* key : {"b", "a", "c"}) (*settings.mutable_extra())[key] = key;
  EXPECT_NE(ToJson(settings, 0).find(R"("extra":{"a":"a","b":"b","c":"c"})"), std::string::npos);
}

TEST(JsonTest, UnsetMembersOfAOneofAreNull) {
  v1::ChatResponse response;
  response.mutable_chunk()->set_text("x");
  const auto value = ToJsonValue(response);
  EXPECT_TRUE(value.at("started").is_null());
  EXPECT_EQ(value.at("chunk").at("text"), "x");
}

TEST(JsonTest, HostileTextReadsBackEqual) {
  v1::Plan plan;
  plan.set_model(std::string("\"\\\n\x1b\x00</script>\xf0\x9f\x98\x8a", 18));
  for (const int indent : {0, 2}) {
    EXPECT_EQ(boost::json::parse(ToJson(plan, indent)).at("model").as_string(), plan.model());
  }
}

TEST(JsonTest, IndentedTextIsOneDocument) {
  v1::Plan plan;
  plan.add_evictions("i-1");
  const std::string text = ToJson(plan);
  EXPECT_NE(text.find("\n  \"evictions\": [\n    \"i-1\"\n  ],\n"), std::string::npos) << text;
  EXPECT_EQ(boost::json::parse(text), ToJsonValue(plan));
}

}  // namespace
}  // namespace rumbo
