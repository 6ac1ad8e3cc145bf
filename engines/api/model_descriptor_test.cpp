#include "engines/api/model_descriptor.h"

#include <gtest/gtest.h>

namespace rumbo {
namespace {

ModelDescriptor Sample() {
  ModelDescriptor d;
  d.format = "gguf";
  d.architecture = "arch";
  d.files = {"a.gguf", "b.gguf"};
  d.file_bytes = 1ull << 40;
  d.parameters = 123;
  d.context_trained = 4096;
  d.layers.resize(2);
  d.layers[1].kv_heads = 3;
  d.layers[1].recurrent = true;
  d.layers[1].recurrent_state_bytes = ~0ull;
  d.chat_template = "{{ \"x\" }}\n\x01";
  d.capabilities = {"generate"};
  d.bytes_by_type["Q4_K"] = 7;
  d.metadata["general.license"] = "apache-2.0";
  d.mla = true;
  return d;
}

TEST(ModelDescriptorTest, SurvivesTheRoundTrip) {
  const ModelDescriptor d = Sample();
  const auto back = DescriptorFromJson(DescriptorToJson(d));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(DescriptorToJson(*back), DescriptorToJson(d));
  EXPECT_EQ(back->layers[1].recurrent_state_bytes, ~0ull);
  EXPECT_EQ(back->chat_template, d.chat_template);
  EXPECT_EQ(back->files, d.files);
}

TEST(ModelDescriptorTest, RefusesWhatIsNoDescriptor) {
  for (const std::string text :
       {"", "[]", "{", "null", R"({"file_bytes":-1})", R"({"file_bytes":"1"})", R"({"experts":4294967296})",
        R"({"layers":{}})", R"({"layers":[{"window":1.5}]})", R"({"files":[1]})"}) {
    EXPECT_FALSE(DescriptorFromJson(text).ok()) << text;
  }
  EXPECT_FALSE(DescriptorFromJson(std::string(40, '[') + std::string(40, ']')).ok());
  EXPECT_FALSE(DescriptorFromJson("\"" + std::string(9 * kMiB, 'a') + "\"").ok());
  std::string layers = "{\"layers\":[{}";
  for (int i = 0; i < 4096; ++i) layers += ",{}";
  EXPECT_FALSE(DescriptorFromJson(layers + "]}").ok());
}

TEST(ModelDescriptorTest, InvalidUtf8NeverReachesTheJson) {
  ModelDescriptor d;
  d.name = "a\xff";
  EXPECT_TRUE(DescriptorFromJson(DescriptorToJson(d)).ok());
}

}  // namespace
}  // namespace rumbo
