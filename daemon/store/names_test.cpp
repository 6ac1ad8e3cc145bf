#include "daemon/store/names.h"

#include <gtest/gtest.h>

namespace rumbo {
namespace {

TEST(NamesTest, TheBuiltInListIsSound) {
  const auto names = ParseModelNames(BuiltInModelNamesYaml());
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_GE(names->models.size(), 5u);
  EXPECT_GE(names->problems.size(), 3u);
  for (const KnownProblem& problem : names->problems)
    EXPECT_EQ(problem.source.rfind("https://", 0), 0u) << problem.id;
}

TEST(NamesTest, NamesAreFoundWithAndWithoutTheirSize) {
  const ModelNames& names = BuiltInModelNames();
  ASSERT_NE(names.Find("qwen3:8b"), nullptr);
  ASSERT_NE(names.Find("qwen3"), nullptr);
  EXPECT_EQ(names.Find("qwen"), nullptr);
  EXPECT_EQ(names.Search("THINKING qwen3 8b").size(), 1u);
  EXPECT_TRUE(names.Search("no such thing").empty());
}

TEST(NamesTest, EntriesWithoutSourceAreRefused) {
  const auto parse = [](const std::string& fields) {
    return ParseModelNames("schema: 1\nmodels:\n  - {name: \"a:b\", " + fields + "}\n").status();
  };
  EXPECT_TRUE(parse("licence: MIT, variants: {q: \"hf:a/b\"}, source: x, checked: y").ok());
  EXPECT_FALSE(parse("licence: MIT, variants: {q: \"hf:a/b\"}, checked: y").ok());
  EXPECT_FALSE(parse("licence: MIT, variants: {q: \"hf:../b\"}, source: x, checked: y").ok());
  EXPECT_FALSE(parse("licence: MIT, variants: {q: \"hf:a/b\"}, source: x, checked: y, stars: 5").ok());
}

}  // namespace
}  // namespace rumbo
