#include "engines/api/sampling_limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/status.h"

namespace rumbo {
namespace {

GenerateRequest Valid() {
  GenerateRequest request;
  request.input.prompt = "hello";
  return request;
}

void ExpectRefused(const SamplingParams& sampling, const char* field) {
  const absl::Status status = ValidateSampling(sampling);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  EXPECT_NE(MessageOf(status).find(field), std::string::npos) << status;
}

TEST(SamplingLimitsTest, DefaultsAreValid) { EXPECT_TRUE(ValidateGenerateRequest(Valid()).ok()); }

TEST(SamplingLimitsTest, EachFieldRefusesNanInfinityAndBothSides) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const auto each = [&](const char* name, std::optional<float> SamplingParams::*field, float below,
                        float above) {
    for (const float bad : {nan, inf, -inf, below, above}) {
      SamplingParams s;
      s.*field = bad;
      ExpectRefused(s, name);
    }
  };
  each("temperature", &SamplingParams::temperature, -0.1f, 100.5f);
  each("top_p", &SamplingParams::top_p, -0.1f, 1.1f);
  each("min_p", &SamplingParams::min_p, -1, 2);
  each("typical_p", &SamplingParams::typical_p, -1, 2);
  each("repeat_penalty", &SamplingParams::repeat_penalty, 0, 101);
  each("presence_penalty", &SamplingParams::presence_penalty, -101, 101);
  each("frequency_penalty", &SamplingParams::frequency_penalty, -101, 101);
  each("dry_multiplier", &SamplingParams::dry_multiplier, -1, 101);
  each("xtc_probability", &SamplingParams::xtc_probability, -1, 2);
  each("mirostat_tau", &SamplingParams::mirostat_tau, -1, 101);
}

TEST(SamplingLimitsTest, CountsAreBounded) {
  SamplingParams s;
  s.max_tokens = 0;
  ExpectRefused(s, "max_tokens");
  s.max_tokens = 0xFFFFFFFF;
  ExpectRefused(s, "max_tokens");
  s = {};
  s.logprobs = 21;
  ExpectRefused(s, "logprobs");
  s = {};
  s.stop.assign(65, "x");
  ExpectRefused(s, "stop");
  s = {};
  s.stop = {""};
  ExpectRefused(s, "stop");
  s = {};
  s.logit_bias.assign(4097, {1, 0.f});
  ExpectRefused(s, "logit_bias");
  s = {};
  s.logit_bias = {{5, std::nanf("")}};
  ExpectRefused(s, "logit_bias");
  s.logit_bias = {{5, -std::numeric_limits<float>::infinity()}};
  EXPECT_TRUE(ValidateSampling(s).ok());
}

TEST(SamplingLimitsTest, OneConstraintAtMost) {
  SamplingParams s;
  s.grammar = "root ::= \"a\"";
  EXPECT_TRUE(ValidateSampling(s).ok());
  s.regex = "a";
  ExpectRefused(s, "grammar");
}

TEST(SamplingLimitsTest, InputMustBeThereAndUtf8) {
  GenerateRequest request = Valid();
  request.input.prompt = "";
  EXPECT_EQ(ReasonOf(ValidateGenerateRequest(request)), Reason::kInvalidArgument);
  request.input.prompt = "\xFF\xFE";
  EXPECT_EQ(ReasonOf(ValidateGenerateRequest(request)), Reason::kInvalidUtf8);
  request = Valid();
  request.input.kind = GenerateInput::Kind::kChat;
  EXPECT_FALSE(ValidateGenerateRequest(request).ok());
  request.input.chat.messages.push_back({.role = "wizard"});
  EXPECT_FALSE(ValidateGenerateRequest(request).ok());
  request.input.chat.messages[0].role = "user";
  EXPECT_TRUE(ValidateGenerateRequest(request).ok());
}

}  // namespace
}  // namespace rumbo
