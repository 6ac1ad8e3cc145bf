#include "engines/llamacpp/core/regex_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace rumbo {
namespace {

using testing::HasSubstr;

std::string Grammar(std::string_view regex) {
  auto grammar = RegexToGrammar(regex);
  EXPECT_TRUE(grammar.ok()) << regex << ": " << grammar.status();
  return grammar.ok() ? *grammar : "";
}

TEST(RegexGrammarTest, WritesWhatTheExpressionMeans) {
  EXPECT_EQ(Grammar("^a1$"), "root ::= \"a\" \"1\"\n");
  EXPECT_EQ(Grammar("\\d{3}-\\d+"), "root ::= [0-9]{3} \"\\x2D\" [0-9]+\n");
  EXPECT_EQ(Grammar("(yes|no)?"), "root ::= (\"y\" \"e\" \"s\" | \"n\" \"o\")?\n");
  EXPECT_EQ(Grammar("[^a-z\\]]*?"), "root ::= [^a-z\\x5D]*\n");
  EXPECT_EQ(Grammar("a|"), "root ::= \"a\" | \"\"\n");
  EXPECT_EQ(Grammar("(?:x){2,}(?<n>y){1,4}"), "root ::= (\"x\"){2,} (\"y\"){1,4}\n");
  EXPECT_EQ(Grammar("\xC3\xA9."), "root ::= \"\\u00E9\" [^\\n]\n");
  EXPECT_EQ(Grammar("\\u00e9\\.\\W"), "root ::= \"\\u00E9\" \"\\x2E\" [^A-Za-z0-9_]\n");
}

TEST(RegexGrammarTest, RefusesWhatItCannotKeep) {
  for (const char* regex :
       {"(?i)abc",     "^(?=a)b$", "a(?!b)", "(?<=a)b", "(a)\\1",      "\\bword", "a$b",    "a^b",
        "*a",          "a**",      "a++",    "(a",      "a)",          "[a",      "[z-a]",  "a{2,1}",
        "a{1,100000}", "a{x}",     "\\",     "\\x1",    "[[:alpha:]]", "[\\D]",   "\\p{L}", "\\uD83D"}) {
    const auto grammar = RegexToGrammar(regex);
    ASSERT_FALSE(grammar.ok()) << regex << " became " << *grammar;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(grammar.status()), HasSubstr("at character"));
  }
}

TEST(RegexGrammarTest, DeepAndLongExpressionsAreRefusedQuickly) {
  EXPECT_FALSE(RegexToGrammar(std::string(8000, '(')).ok());
  EXPECT_FALSE(RegexToGrammar(std::string(100000, 'a')).ok());
}

}  // namespace
}  // namespace rumbo
