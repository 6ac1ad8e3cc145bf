#include "engines/llamacpp/llama/chat_template.h"

#include <chrono>

#include "base/status.h"
#include "base/utf8.h"
#include "chat.h"
#include "llama.h"

namespace rumbo {
namespace {

absl::Status BadUtf8(const std::string& field) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kInvalidUtf8, field + " is not valid UTF-8");
}

absl::StatusOr<common_chat_msg> ConvertMessage(const ChatMessage& message, size_t index) {
  const std::string field = "messages[" + std::to_string(index) + "]";
  if (message.role != "system" && message.role != "user" && message.role != "assistant" &&
      message.role != "tool" && message.role != "developer") {
    return InvalidArgument(field + ".role is \"" + EscapeForLog(message.role, 40) +
                           "\", must be system, user, assistant or tool");
  }
  common_chat_msg out;
  out.role = message.role;
  for (const ContentPart& part : message.content) {
    if (part.kind != ContentPart::Kind::kText) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                   "the model takes no images or audio", "Use a model with a projector.");
    }
    if (!IsValidUtf8(part.text)) return BadUtf8(field + ".content");
  }
  if (message.content.size() == 1) {
    out.content = message.content.front().text;
  } else {
    for (const ContentPart& part : message.content) out.content_parts.push_back({"text", part.text});
  }
  if (!IsValidUtf8(message.reasoning)) return BadUtf8(field + ".reasoning");
  out.reasoning_content = message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    if (!IsValidUtf8(call.arguments_json)) return BadUtf8(field + ".tool_calls");
    out.tool_calls.push_back({call.name, call.arguments_json, call.id});
  }
  out.tool_name = message.name;
  out.tool_call_id = message.tool_call_id;
  return out;
}

absl::StatusOr<common_chat_tool_choice> ConvertChoice(const std::string& choice) {
  if (choice.empty() || choice == "auto") return COMMON_CHAT_TOOL_CHOICE_AUTO;
  if (choice == "none") return COMMON_CHAT_TOOL_CHOICE_NONE;
  if (choice == "required") return COMMON_CHAT_TOOL_CHOICE_REQUIRED;
  return InvalidArgument("tool_choice is \"" + EscapeForLog(choice, 40) +
                         "\", must be auto, none or required");
}

absl::StatusOr<common_chat_templates_inputs> Convert(const ChatInput& chat, const SamplingParams& sampling) {
  common_chat_templates_inputs inputs;
  if (chat.messages.empty()) return InvalidArgument("messages is empty");
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    RUMBO_ASSIGN_OR_RETURN(common_chat_msg message, ConvertMessage(chat.messages[i], i));
    inputs.messages.push_back(std::move(message));
  }
  for (const Tool& tool : chat.tools) {
    inputs.tools.push_back({tool.name, tool.description, tool.parameters_json_schema});
  }
  RUMBO_ASSIGN_OR_RETURN(inputs.tool_choice, ConvertChoice(chat.tool_choice));
  inputs.parallel_tool_calls = chat.parallel_tool_calls;
  inputs.json_schema = sampling.json_schema;
  inputs.use_jinja = true;
  inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  inputs.enable_thinking = chat.thinking.value_or(true);
  // Templates that print the date get the day: a clock at the head of a prompt would spoil every cached
  // prefix.
  inputs.now = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  for (const auto& [key, value] : chat.template_args) inputs.chat_template_kwargs[key] = value;
  if (chat.continue_final_message) {
    if (chat.messages.back().role != "assistant") {
      return InvalidArgument("continue_final_message needs a last message of the assistant");
    }
    inputs.continue_final_message = COMMON_CHAT_CONTINUATION_AUTO;
    inputs.add_generation_prompt = false;
  }
  return inputs;
}

}  // namespace

void ChatTemplate::Deleter::operator()(common_chat_templates* templates) const {
  common_chat_templates_free(templates);
}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Make(const llama_model* model,
                                                                 const std::string& override_source) {
  if (override_source.empty() && llama_model_chat_template(model, nullptr) == nullptr) return nullptr;
  std::unique_ptr<ChatTemplate> made(new ChatTemplate);
  try {
    made->templates_.reset(common_chat_templates_init(model, override_source).release());
    auto caps = common_chat_templates_get_caps(made->templates_.get());
    made->supports_tools_ = caps["supports_tools"] && caps["supports_tool_calls"];
    made->supports_thinking_ = common_chat_templates_support_enable_thinking(made->templates_.get());
    made->plain_ = made->AnswersArePlain();
  } catch (const std::exception& e) {
    return InvalidArgument(std::string("the chat template cannot be used: ") + SanitizeUtf8(e.what()));
  }
  return made;
}

// Asked once: libllama-common finds out how a template writes calls and reasoning by rendering it in many
// ways, which takes milliseconds.
bool ChatTemplate::AnswersArePlain() const {
  if (supports_thinking_) return false;
  common_chat_templates_inputs inputs;
  common_chat_msg message;
  message.role = "user";
  message.content = "Hello.";
  inputs.messages.push_back(message);
  inputs.use_jinja = true;
  inputs.now = std::chrono::system_clock::time_point();
  inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  try {
    const common_chat_params full = common_chat_templates_apply(templates_.get(), inputs);
    inputs.force_pure_content = true;
    const common_chat_params pure = common_chat_templates_apply(templates_.get(), inputs);
    return full.prompt == pure.prompt && !full.supports_thinking && full.thinking_end_tags.empty() &&
           full.grammar.empty() && full.grammar_triggers.empty() && full.additional_stops.empty() &&
           full.preserved_tokens.empty();
  } catch (const std::exception&) {
    return false;  // a template that wants more than this; each request is analysed
  }
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const ChatInput& chat,
                                                  const SamplingParams& sampling) const {
  RUMBO_ASSIGN_OR_RETURN(common_chat_templates_inputs inputs, Convert(chat, sampling));
  inputs.force_pure_content = plain_ &&
                              (inputs.tools.empty() || inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_NONE) &&
                              inputs.json_schema.empty() && !chat.continue_final_message;
  if (!inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE && !supports_tools_) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing,
                 "the model's chat template knows no tools",
                 "Use a model with tool support, or drop the tools.");
  }
  try {
    auto params = std::make_shared<common_chat_params>(common_chat_templates_apply(templates_.get(), inputs));
    RenderedChat rendered;
    rendered.prompt = params->prompt;
    rendered.params = std::move(params);
    return rendered;
  } catch (const std::exception& e) {
    return InvalidArgument(std::string("the chat template refuses the conversation: ") +
                           SanitizeUtf8(e.what()));
  }
}

}  // namespace rumbo
