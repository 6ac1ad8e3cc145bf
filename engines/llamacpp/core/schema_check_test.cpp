#include "engines/llamacpp/core/schema_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace rumbo {
namespace {

using testing::HasSubstr;

absl::Status Check(std::string_view schema) {
  return CheckSchema(schema, [](std::string_view pattern) { return pattern == "^[a-z]{3}$"; });
}

TEST(SchemaCheckTest, SchemasThatAreKeptAreFine) {
  for (
      const char* schema : {
          R"({"type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]{3}$"}}, "required": ["id"]})",
          R"({"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1, "$defs": {"x": {"enum": [1, 2]}}})",
          R"({"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 3}], "title": "t"})",
          R"({"type": "string", "format": "email", "maxLength": 100})",
          R"({"type": ["string", "null"], "maxLength": 9})",
          R"({})",
      }) {
    EXPECT_TRUE(Check(schema).ok()) << schema << ": " << Check(schema);
  }
}

TEST(SchemaCheckTest, NamesTheConstructThatWouldBeIgnored) {
  const auto pointer = [](std::string_view schema) {
    const absl::Status status = Check(schema);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << schema;
    return MessageOf(status);
  };
  EXPECT_THAT(pointer(R"({"type":"object","properties":{"id":{"type":"string","pattern":"^\\d+$"}}})"),
              HasSubstr("/properties/id/pattern"));
  EXPECT_THAT(pointer(R"({"type":"array","items":{"type":"string","pattern":"(?i)abc"}})"),
              HasSubstr("/items/pattern"));
  EXPECT_THAT(pointer(R"({"type":"number","minimum":3})"), HasSubstr("/minimum"));
  EXPECT_THAT(pointer(R"({"type":"array","uniqueItems":true})"), HasSubstr("/uniqueItems"));
  EXPECT_THAT(pointer(R"({"type":"object","properties":{"a~/b":{"not":{}}}})"),
              HasSubstr("/properties/a~0~1b/not"));
  EXPECT_THAT(pointer(R"({"anyOf":[{"type":"string"}],"minLength":3})"), HasSubstr("/minLength"));
  EXPECT_THAT(pointer(R"({"type":"string","minLength":5000})"), HasSubstr("5000"));
  EXPECT_THAT(pointer(R"({"type":["integer","number"],"minimum":3})"), HasSubstr("/minimum"));
  EXPECT_THAT(pointer(R"([1])"), HasSubstr("no schema"));
  EXPECT_THAT(pointer("{"), HasSubstr("no JSON"));
}

TEST(SchemaCheckTest, DeepSchemasAreRefusedQuickly) {
  std::string deep;
  for (int i = 0; i < 60000; ++i) deep += R"({"type":"array","items":)";
  EXPECT_FALSE(Check(deep).ok());
  deep += "{}" + std::string(60000, '}');
  EXPECT_FALSE(Check(deep).ok());
}

}  // namespace
}  // namespace rumbo
