#include "engines/api/sampling_limits.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

constexpr uint32_t kMaxCount = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxBiases = 4096;
constexpr size_t kMaxMessages = 10000;
constexpr size_t kMaxTools = 512;
constexpr size_t kMaxGrammarBytes = 1 << 20;

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

absl::Status OutOfRange(const char* field, const std::string& value, const std::string& range) {
  return InvalidArgument(std::string(field) + " is " + value + "; it must be " + range,
                         "Correct " + std::string(field) + " and send the request again.");
}

// lowest <= value <= highest, or value > lowest where `open`.
absl::Status Check(const char* field, const std::optional<float>& value, double lowest, double highest,
                   bool open = false) {
  if (!value) return absl::OkStatus();
  const bool inside =
      std::isfinite(*value) && *value <= highest && (open ? *value > lowest : *value >= lowest);
  if (inside) return absl::OkStatus();
  return OutOfRange(field, Number(*value),
                    (open ? "above " : "from ") + Number(lowest) + " to " + Number(highest));
}

absl::Status Check(const char* field, const std::optional<uint32_t>& value, uint32_t lowest,
                   uint32_t highest) {
  if (!value || (*value >= lowest && *value <= highest)) return absl::OkStatus();
  return OutOfRange(field, std::to_string(*value),
                    "from " + std::to_string(lowest) + " to " + std::to_string(highest));
}

absl::Status CheckText(const char* field, std::string_view text) {
  if (IsValidUtf8(text)) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kInvalidUtf8,
               std::string(field) + " is not valid UTF-8", "Send text encoded as UTF-8.");
}

absl::Status CheckChat(const ChatInput& chat) {
  if (chat.messages.empty()) return InvalidArgument("messages is empty", "Send at least one message.");
  if (chat.messages.size() > kMaxMessages) return InvalidArgument("more than 10,000 messages");
  if (chat.tools.size() > kMaxTools) return InvalidArgument("more than 512 tools");
  for (const ChatMessage& message : chat.messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant" &&
        message.role != "tool") {
      return InvalidArgument("a message has the role \"" + EscapeForLog(message.role, 40) + "\"",
                             "Roles are system, user, assistant and tool.");
    }
    for (const ContentPart& part : message.content) RUMBO_RETURN_IF_ERROR(CheckText("a message", part.text));
    for (const ToolCall& call : message.tool_calls) {
      RUMBO_RETURN_IF_ERROR(CheckText("a tool call", call.id + call.name + call.arguments_json));
    }
    RUMBO_RETURN_IF_ERROR(CheckText("a message's reasoning", message.reasoning));
    RUMBO_RETURN_IF_ERROR(CheckText("a message's name", message.name + message.tool_call_id));
  }
  for (const Tool& tool : chat.tools) {
    if (tool.name.empty()) return InvalidArgument("a tool has no name");
    RUMBO_RETURN_IF_ERROR(CheckText("a tool", tool.name + tool.description + tool.parameters_json_schema));
  }
  if (!chat.tool_choice.empty() && chat.tool_choice != "auto" && chat.tool_choice != "none" &&
      chat.tool_choice != "required") {
    return InvalidArgument("tool_choice is \"" + EscapeForLog(chat.tool_choice, 40) + "\"",
                           "It is auto, none or required.");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSampling(const SamplingParams& s) {
  RUMBO_RETURN_IF_ERROR(Check("max_tokens", s.max_tokens, 1, kMaxCount));
  RUMBO_RETURN_IF_ERROR(Check("temperature", s.temperature, 0, 100));
  RUMBO_RETURN_IF_ERROR(Check("top_p", s.top_p, 0, 1));
  RUMBO_RETURN_IF_ERROR(Check("top_k", s.top_k, 0, kMaxCount));
  RUMBO_RETURN_IF_ERROR(Check("min_p", s.min_p, 0, 1));
  RUMBO_RETURN_IF_ERROR(Check("typical_p", s.typical_p, 0, 1));
  RUMBO_RETURN_IF_ERROR(Check("repeat_penalty", s.repeat_penalty, 0, 100, true));
  RUMBO_RETURN_IF_ERROR(Check("presence_penalty", s.presence_penalty, -100, 100));
  RUMBO_RETURN_IF_ERROR(Check("frequency_penalty", s.frequency_penalty, -100, 100));
  RUMBO_RETURN_IF_ERROR(Check("repeat_last_n", s.repeat_last_n, 0, kMaxCount));
  RUMBO_RETURN_IF_ERROR(Check("logprobs", s.logprobs, 0, 20));
  RUMBO_RETURN_IF_ERROR(Check("min_tokens", s.min_tokens, 0, kMaxCount));
  RUMBO_RETURN_IF_ERROR(Check("dry_multiplier", s.dry_multiplier, 0, 100));
  RUMBO_RETURN_IF_ERROR(Check("dry_base", s.dry_base, 1, 100));
  RUMBO_RETURN_IF_ERROR(Check("dry_allowed_length", s.dry_allowed_length, 0, kMaxCount));
  RUMBO_RETURN_IF_ERROR(Check("xtc_probability", s.xtc_probability, 0, 1));
  RUMBO_RETURN_IF_ERROR(Check("xtc_threshold", s.xtc_threshold, 0, 1));
  RUMBO_RETURN_IF_ERROR(Check("mirostat", s.mirostat, 0, 2));
  RUMBO_RETURN_IF_ERROR(Check("mirostat_tau", s.mirostat_tau, 0, 100));
  RUMBO_RETURN_IF_ERROR(Check("mirostat_eta", s.mirostat_eta, 0, 1));
  if (s.min_tokens && s.max_tokens && *s.min_tokens > *s.max_tokens) {
    return InvalidArgument("min_tokens is above max_tokens");
  }
  if (s.stop.size() > kMaxStops)
    return OutOfRange("stop", std::to_string(s.stop.size()) + " strings", "at most 64");
  for (const std::string& stop : s.stop) {
    if (stop.empty() || stop.size() > kMaxStopBytes)
      return InvalidArgument("a stop string is empty or longer than 1,024 bytes");
    RUMBO_RETURN_IF_ERROR(CheckText("a stop string", stop));
  }
  if (s.logit_bias.size() > kMaxBiases) {
    return OutOfRange("logit_bias", std::to_string(s.logit_bias.size()) + " entries", "at most 4096");
  }
  for (const auto& [token, bias] : s.logit_bias) {
    const bool ban = std::isinf(bias) && bias < 0;
    if (token < 0 || (!ban && !(bias >= -100 && bias <= 100))) {
      return OutOfRange("logit_bias", Number(bias) + " for token " + std::to_string(token),
                        "from -100 to 100 for a token of the model");
    }
  }
  const int constraints = !s.json_schema.empty() + !s.grammar.empty() + !s.regex.empty();
  if (constraints > 1)
    return InvalidArgument("more than one of json_schema, grammar and regex is set", "Keep one of them.");
  for (const std::string* text : {&s.json_schema, &s.grammar, &s.regex}) {
    if (text->size() > kMaxGrammarBytes) return InvalidArgument("a schema or grammar is larger than 1 MiB");
    RUMBO_RETURN_IF_ERROR(CheckText("a schema or grammar", *text));
  }
  return absl::OkStatus();
}

absl::Status ValidateGenerateRequest(const GenerateRequest& request) {
  const GenerateInput& input = request.input;
  switch (input.kind) {
    case GenerateInput::Kind::kPrompt:
      if (input.prompt.empty()) return InvalidArgument("prompt is empty", "Send some text.");
      RUMBO_RETURN_IF_ERROR(CheckText("prompt", input.prompt));
      break;
    case GenerateInput::Kind::kTokens:
      if (input.tokens.empty()) return InvalidArgument("tokens is empty", "Send at least one token id.");
      for (const int32_t id : input.tokens) {
        if (id < 0) return InvalidArgument("tokens holds the negative id " + std::to_string(id));
      }
      break;
    case GenerateInput::Kind::kChat:
      RUMBO_RETURN_IF_ERROR(CheckChat(input.chat));
      break;
  }
  for (const auto& [name, scale] : request.adapters) {
    if (!std::isfinite(scale))
      return InvalidArgument("adapter " + EscapeForLog(name, 80) + " has a scale that is no number");
  }
  return ValidateSampling(request.sampling);
}

}  // namespace rumbo
