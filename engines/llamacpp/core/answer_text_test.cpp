#include "engines/llamacpp/core/answer_text.h"

#include <gtest/gtest.h>

namespace rumbo {
namespace {

TEST(AnswerTextTest, CharactersSplitOverTokensComeOutWhole) {
  AnswerText text({});
  text.Add("a\xF0\x9F");
  EXPECT_EQ(text.Take(), "a");
  text.Add("\x98");
  EXPECT_EQ(text.Take(), "");
  text.Add("\x8A!");
  EXPECT_EQ(text.Take(), "\xF0\x9F\x98\x8A!");
}

TEST(AnswerTextTest, IncompleteTailBecomesOneReplacementAtTheEnd) {
  AnswerText text({});
  text.Add("ok\xF0\x9F\x98");
  EXPECT_EQ(text.Take() + text.TakeRest(), "ok\xEF\xBF\xBD");
}

TEST(AnswerTextTest, StrayBytesAreReplaced) {
  AnswerText text({});
  text.Add("\xFF\xFEx");
  EXPECT_EQ(text.Take() + text.TakeRest(), "\xEF\xBF\xBD\xEF\xBF\xBDx");
}

TEST(AnswerTextTest, StopStringOverTokenBordersIsCut) {
  AnswerText text({"</end>"});
  std::string out;
  for (const char* piece : {"hello <", "/e", "nd", "> more"}) {
    text.Add(piece);
    out += text.Take();
  }
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.stop_string(), "</end>");
  EXPECT_EQ(out + text.TakeRest(), "hello ");
}

TEST(AnswerTextTest, WhatOnlyLooksLikeAStopStringComesOut) {
  AnswerText text({"</end>"});
  text.Add("a </en");
  EXPECT_EQ(text.Take(), "a ");
  text.Add("try>");
  EXPECT_EQ(text.Take(), "</entry>");
  EXPECT_FALSE(text.stopped());
}

TEST(AnswerTextTest, TheFirstOfSeveralStopStringsWins) {
  AnswerText text({"zz", "b", "abc"});
  text.Add("xabcb");
  EXPECT_EQ(text.stop_string(), "abc");
  EXPECT_EQ(text.TakeRest(), "x");
}

TEST(AnswerTextTest, NothingAfterTheStopStringIsTaken) {
  AnswerText text({"stop"});
  text.Add("go stop");
  text.Add("more");
  EXPECT_EQ(text.TakeRest(), "go ");
}

}  // namespace
}  // namespace rumbo
