#include "rumbo/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace rumbo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Place {
  std::string city;
  double height = 0;
};

struct Person {
  std::string name;
  int32_t age = 0;
  std::optional<std::string> email;
  std::vector<std::string> tags;
  Place home;
  std::vector<Place> visited;
  bool member = false;
};

Shape<Person> PersonShape() {
  const auto place = Shape<Place>().Field("city", &Place::city).Field("height", &Place::height, "metres");
  return Shape<Person>()
      .Field("name", &Person::name)
      .Field("age", &Person::age, "in \"years\"")
      .Field("email", &Person::email)
      .Field("tags", &Person::tags)
      .Field("home", &Person::home, place)
      .Field("visited", &Person::visited, place)
      .Field("member", &Person::member);
}

TEST(ShapeTest, SchemaSaysTypesWhatIsRequiredAndNothingElse) {
  const auto schema = boost::json::parse(PersonShape().JsonSchema());
  const auto& properties = schema.at("properties");
  EXPECT_EQ(properties.at("age").at("type"), "integer");
  EXPECT_EQ(properties.at("age").at("description"), "in \"years\"");
  EXPECT_EQ(properties.at("tags").at("items").at("type"), "string");
  EXPECT_EQ(properties.at("home").at("properties").at("height").at("type"), "number");
  EXPECT_EQ(properties.at("visited").at("items").at("type"), "object");
  EXPECT_EQ(schema.at("additionalProperties"), false);
  const auto& required = schema.at("required").as_array();
  EXPECT_EQ(required.size(), 6u);
  EXPECT_EQ(std::count(required.begin(), required.end(), boost::json::value("email")), 0);
}

TEST(ShapeTest, AnswerBecomesAStruct) {
  const auto person = PersonShape().Parse(
      R"({"name":"Ana","age":41.0,"tags":["a","b"],"home":{"city":"Sóller","height":40},
          "visited":[{"city":"Oslo","height":23.5}],"member":true,"email":null})");
  ASSERT_TRUE(person.ok()) << person.error().message;
  EXPECT_EQ(person->name, "Ana");
  EXPECT_EQ(person->age, 41);
  EXPECT_FALSE(person->email.has_value());
  EXPECT_THAT(person->tags, ElementsAre("a", "b"));
  EXPECT_EQ(person->home.city, "Sóller");
  ASSERT_EQ(person->visited.size(), 1u);
  EXPECT_EQ(person->visited[0].height, 23.5);
  EXPECT_TRUE(person->member);
}

TEST(ShapeTest, WhatDoesNotFitIsNamedByItsPath) {
  const std::string rest = R"(,"tags":[],"visited":[],"member":true)";
  const auto message = [&](const std::string& text) {
    const auto parsed = PersonShape().Parse(text);
    return parsed.ok() ? "" : parsed.error().reason_code + ": " + parsed.error().message;
  };
  EXPECT_THAT(message(R"({"name":"Ana","age":4)"), HasSubstr("no whole JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("name is missing"));
  EXPECT_THAT(message(R"({"name":1,"age":4)" + rest + "}"), HasSubstr("name has another type"));
  EXPECT_THAT(message(R"({"name":"A","age":5000000000)" + rest + "}"),
              HasSubstr("age is no integer of its range"));
  EXPECT_THAT(message(R"({"name":"A","age":1.5)" + rest + "}"), HasSubstr("age is no integer"));
  EXPECT_THAT(message(R"({"name":"A","age":1,"home":{"city":"x"})" + rest + "}"),
              HasSubstr("home.height is missing"));
  EXPECT_THAT(message(R"({"name":"A","age":1,"tags":[1])"
                      "}"),
              HasSubstr("WRONG_SHAPE: "));
}

}  // namespace
}  // namespace rumbo
