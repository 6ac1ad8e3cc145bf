#include <gtest/gtest.h>

#include <limits>

#include "base/bytes.h"
#include "base/manual_executor.h"
#include "base/reason.h"
#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

TEST(StatusTest, CarriesReasonNextStepAndRetry) {
  const auto status = RetryableError(absl::StatusCode::kResourceExhausted, Reason::kQueueFull, "full", "wait",
                                     std::chrono::milliseconds(250));
  EXPECT_EQ(ReasonOf(status), Reason::kQueueFull);
  EXPECT_EQ(NextStepOf(status), "wait");
  EXPECT_EQ(RetryAfterOf(status), std::chrono::milliseconds(250));
  const auto annotated = Annotate(status, "model m");
  EXPECT_EQ(MessageOf(annotated), "model m: full");
  EXPECT_EQ(ReasonOf(annotated), Reason::kQueueFull);
  EXPECT_EQ(RetryAfterOf(annotated), std::chrono::milliseconds(250));
}

TEST(ReasonTest, CodesRoundTrip) {
  EXPECT_EQ(ReasonCode(Reason::kModelNotFound), "MODEL_NOT_FOUND");
  EXPECT_EQ(ReasonCode(Reason::kInvalidUtf8), "INVALID_UTF8");
  EXPECT_EQ(ReasonFromCode("DOES_NOT_FIT"), Reason::kDoesNotFit);
  EXPECT_EQ(ReasonFromCode("NONSENSE"), std::nullopt);
}

TEST(BytesTest, ArithmeticIsChecked) {
  constexpr Bytes max = std::numeric_limits<Bytes>::max();
  EXPECT_EQ(CheckedAdd(max, 1), std::nullopt);
  EXPECT_EQ(CheckedMul(max / 2, 3), std::nullopt);
  EXPECT_EQ(SaturatingAdd(max, 5), max);
  EXPECT_EQ(SaturatingSub(1, 2), 0u);
  EXPECT_EQ(RoundUp(257, 256), 512u);
  EXPECT_EQ(RoundUp(max, 256), max);
  EXPECT_EQ(FormatBytes(32ull * kGiB), "32.0 GiB");
}

TEST(Utf8Test, KnowsWellFormedFromIllFormed) {
  EXPECT_TRUE(IsValidUtf8("a\xC3\xA9\xF0\xA0\xAE\xB7"));
  EXPECT_FALSE(IsValidUtf8("\xED\xA0\xBD"));      // surrogate
  EXPECT_FALSE(IsValidUtf8("\xC0\x80"));          // overlong
  EXPECT_FALSE(IsValidUtf8("\xF4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(IsValidUtf8("\xF0\x9F"));
}

TEST(Utf8Test, CutsAtCharacterBorders) {
  EXPECT_EQ(CompleteUtf8Prefix("ab\xF0\x9F\x98"), 2u);
  EXPECT_EQ(CompleteUtf8Prefix("ab\xF0\x9F\x98\x8A"), 6u);
  EXPECT_EQ(CompleteUtf8Prefix("\xFF"), 1u);
  EXPECT_EQ(CompleteUtf8Prefix("\x80\x80\x80\x80"), 4u);
  EXPECT_EQ(CompleteUtf8Prefix(""), 0u);
}

TEST(Utf8Test, ReplacesIllFormedSequences) {
  EXPECT_EQ(SanitizeUtf8("a\xFF\xFE"
                         "b"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(SanitizeUtf8("x\xF0\x9F"), "x\xEF\xBF\xBD");
}

TEST(Utf8Test, EscapesControlAndBidiForLogs) {
  EXPECT_EQ(EscapeForLog("a\x1B[31m\n"), "a\\x1b[31m\\x0a");
  EXPECT_EQ(EscapeForLog("\xE2\x80\xAE"
                         "evil"),
            "\\xe2\\x80\\xaeevil");
  EXPECT_EQ(EscapeForLog(std::string(500, 'x'), 10), "xxxxxxxxxx...");
}

TEST(ManualExecutorTest, RunsTimedTasksInTheirOrder) {
  ManualExecutor executor;
  std::string log;
  executor.PostAfter(std::chrono::milliseconds(20), [&] { log += "b"; });
  executor.PostAfter(std::chrono::milliseconds(10), [&] { log += "a"; });
  executor.Post([&] { log += "0"; });
  executor.Advance(std::chrono::milliseconds(15));
  EXPECT_EQ(log, "0a");
  executor.Advance(std::chrono::milliseconds(15));
  EXPECT_EQ(log, "0ab");
}

}  // namespace
}  // namespace rumbo
