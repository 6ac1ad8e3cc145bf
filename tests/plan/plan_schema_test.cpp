// The published JSON Schemas against the protos, and plans as they are printed against the schemas.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "daemon/core/testing/plan_fixtures.h"
#include "daemon/wire/convert.h"
#include "sdk/cpp/json.h"
#include "sdk/cpp/json_schema.h"

namespace rumbo {
namespace {

namespace bj = boost::json;

std::string PathOf(const std::string& name) {
  return std::string(RUMBO_SOURCE_DIR) + "/docs/schemas/" + name + ".schema.json";
}

std::string Published(const std::string& name) {
  std::ifstream in(PathOf(name));
  return {std::istreambuf_iterator<char>(in), {}};
}

// As much of JSON Schema as ours use.
class Validator {
 public:
  explicit Validator(const bj::value& root) : root_(root) {}

  // "" or what is wrong, with where.
  std::string Check(const bj::value& value, const bj::value& schema, const std::string& at = "$") const {
    const bj::object& s = schema.as_object();
    if (const auto* ref = s.if_contains("$ref")) {
      const std::string name = std::string(ref->as_string()).substr(std::string("#/$defs/").size());
      return Check(value, root_.at("$defs").at(name), at);
    }
    if (const auto* any = s.if_contains("anyOf")) {
      std::string first;
      for (const bj::value& one : any->as_array()) {
        const std::string wrong = Check(value, one, at);
        if (wrong.empty()) return "";
        if (first.empty()) first = wrong;
      }
      return first;
    }
    if (const auto* words = s.if_contains("enum")) {
      for (const bj::value& word : words->as_array()) {
        if (word == value) return "";
      }
      return at + " is none of the words";
    }
    if (const auto* type = s.if_contains("type"); type != nullptr && !HasType(value, *type))
      return at + " is no " + bj::serialize(*type);
    if (s.contains("minimum") && value.is_int64() && value.get_int64() < 0) return at + " is negative";
    if (value.is_array() && s.contains("items")) {
      size_t i = 0;
      for (const bj::value& item : value.get_array()) {
        const std::string wrong = Check(item, s.at("items"), at + "[" + std::to_string(i++) + "]");
        if (!wrong.empty()) return wrong;
      }
    }
    return value.is_object() ? Object(value.get_object(), s, at) : "";
  }

 private:
  static bool HasType(const bj::value& value, const bj::value& type) {
    if (type.is_array()) {
      for (const bj::value& one : type.get_array()) {
        if (HasType(value, one)) return true;
      }
      return false;
    }
    const std::string word(type.as_string());
    return (word == "object" && value.is_object()) || (word == "array" && value.is_array()) ||
           (word == "string" && value.is_string()) || (word == "boolean" && value.is_bool()) ||
           (word == "null" && value.is_null()) || (word == "number" && value.is_number()) ||
           (word == "integer" && (value.is_int64() || value.is_uint64()));
  }

  std::string Object(const bj::object& value, const bj::object& s, const std::string& at) const {
    if (const auto* required = s.if_contains("required")) {
      for (const bj::value& key : required->as_array()) {
        if (!value.contains(key.as_string())) return at + " lacks " + std::string(key.as_string());
      }
    }
    const auto* properties = s.if_contains("properties");
    const auto* others = s.if_contains("additionalProperties");
    for (const auto& [key, field] : value) {
      const auto* known = properties == nullptr ? nullptr : properties->as_object().if_contains(key);
      if (known == nullptr && others != nullptr && others->is_bool())
        return at + " has the unknown " + std::string(key);
      const bj::value* schema = known != nullptr ? known : others;
      if (schema == nullptr) continue;
      const std::string wrong = Check(field, *schema, at + "." + std::string(key));
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  const bj::value& root_;
};

void ExpectPublished(const google::protobuf::Descriptor& type, const std::string& name,
                     const std::string& title) {
  const std::string schema = JsonSchemaOf(type, title);
  if (std::getenv("RUMBO_WRITE_SCHEMAS") != nullptr) std::ofstream(PathOf(name)) << schema;
  EXPECT_EQ(Published(name), schema) << "RUMBO_WRITE_SCHEMAS=1 writes " << PathOf(name);
}

TEST(PlanSchemaTest, PublishedSchemasAreThoseOfTheProtos) {
  ExpectPublished(*v1::Plan::descriptor(), "plan", "rumbo plan MODEL --json");
  ExpectPublished(*v1::MakePlanResponse::descriptor(), "plan-together", "rumbo plan A B --together --json");
  ExpectPublished(*v1::ExplainResponse::descriptor(), "explain", "rumbo explain ID --json");
  ExpectPublished(*v1::AdviseResponse::descriptor(), "advise", "rumbo advise MODEL... --json");
}

TEST(PlanSchemaTest, PlansAsPrintedValidate) {
  const bj::value schema = bj::parse(Published("plan"));
  const Validator validator(schema);
  Topology machine = testing::CpuMachine(64 * kGiB);
  testing::AddCard(machine, 8 * kGiB);
  PlanRequest fits = testing::RequestFor(testing::DenseModel(4 * kGiB));
  PlanRequest refused = testing::RequestFor(testing::DenseModel(4000 * kGiB));
  for (const PlanRequest& request : {fits, refused}) {
    const auto plan = testing::PlanOn(machine, request);
    ASSERT_TRUE(plan.ok());
    v1::Plan message;
    ToProto(*plan, &message);
    EXPECT_EQ(validator.Check(bj::parse(ToJson(message)), schema), "");
  }
}

TEST(PlanSchemaTest, WhatIsNoPlanDoesNotValidate) {
  const bj::value schema = bj::parse(Published("plan"));
  const Validator validator(schema);
  bj::value plan = bj::parse(ToJson(v1::Plan()));
  ASSERT_EQ(validator.Check(plan, schema), "");
  bj::value lacks = plan, odd = plan, wrong = plan;
  lacks.as_object().erase("rejected");
  odd.as_object()["extra"] = 1;
  wrong.as_object()["model"] = 7;
  EXPECT_NE(validator.Check(lacks, schema), "");
  EXPECT_NE(validator.Check(odd, schema), "");
  EXPECT_NE(validator.Check(wrong, schema), "");
}

}  // namespace
}  // namespace rumbo
