#include "engines/llamacpp/llama/chat_format.h"

#include <random>

#include "base/status.h"
#include "base/utf8.h"
#include "chat.h"

namespace rumbo {
namespace {

std::string NewCallId() {
  static constexpr char kLetters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 random(std::random_device{}());
  std::string id = "call_";
  for (int i = 0; i < 24; ++i) id += kLetters[random() % (sizeof(kLetters) - 1)];
  return id;
}

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(common_chat_parser_params params) : params_(std::move(params)) {
    if (params_.is_continuation) message_ = common_chat_parse("", true, params_);
  }

  absl::Status Add(std::string_view text, ChunkEvent* chunk) override {
    if (text.empty()) return absl::OkStatus();
    text_.append(text);
    return Parse(true, chunk);
  }

  absl::Status Finish(ChunkEvent* chunk) override { return Parse(false, chunk); }

  bool called_tools() const override { return !message_.tool_calls.empty(); }

 private:
  absl::Status Parse(bool partial, ChunkEvent* chunk) {
    try {
      common_chat_msg message = ParseText(partial);
      if (message.empty()) return absl::OkStatus();
      message.set_tool_call_ids(call_ids_, NewCallId);
      for (auto& diff : common_chat_msg_diff::compute_diffs(message_, message)) Append(&diff, chunk);
      message_ = std::move(message);
      return absl::OkStatus();
    } catch (const std::exception& e) {
      return Internal(std::string("the answer does not follow the chat template's format: ") +
                      SanitizeUtf8(e.what()));
    }
  }

  common_chat_msg ParseText(bool partial) const {
    if (partial) return common_chat_parse(text_, true, params_);
    try {
      return common_chat_parse(text_, false, params_);
    } catch (const std::exception&) {
      // Cut off in the middle, by its length for instance.
      return common_chat_parse(text_, true, params_);
    }
  }

  void Append(common_chat_msg_diff* diff, ChunkEvent* chunk) {
    chunk->reasoning += diff->reasoning_content_delta;
    chunk->text += diff->content_delta;
    if (diff->tool_call_index == std::string::npos) return;
    ToolCallDelta delta;
    delta.index = static_cast<uint32_t>(diff->tool_call_index);
    // Name and id go out once, in the first delta that has them.
    if (named_calls_ <= diff->tool_call_index && !diff->tool_call_delta.name.empty()) {
      named_calls_ = diff->tool_call_index + 1;
      delta.id = diff->tool_call_delta.id;
      delta.name = diff->tool_call_delta.name;
    }
    delta.arguments_json = diff->tool_call_delta.arguments;
    if (delta.name.empty() && delta.arguments_json.empty()) return;
    chunk->tool_calls.push_back(std::move(delta));
  }

  common_chat_parser_params params_;
  std::string text_;
  common_chat_msg message_;
  std::vector<std::string> call_ids_;
  size_t named_calls_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AnswerFormat>> MakeChatFormat(const common_chat_params& params,
                                                             bool parse_tool_calls, bool continues_message) {
  // Without reasoning and tools the answer is its own content, and nothing has to be parsed again at each
  // token.
  const bool thinks = params.supports_thinking || !params.thinking_end_tags.empty();
  if (params.format == COMMON_CHAT_FORMAT_CONTENT_ONLY) return nullptr;
  if (!parse_tool_calls && !thinks && params.grammar.empty()) return nullptr;
  try {
    common_chat_parser_params parser(params);
    parser.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
    parser.parse_tool_calls = parse_tool_calls;
    parser.is_continuation = continues_message;
    if (!params.parser.empty()) parser.parser.load(params.parser);
    return std::unique_ptr<AnswerFormat>(std::make_unique<ChatFormat>(std::move(parser)));
  } catch (const std::exception& e) {
    return Internal(std::string("the chat template's answer format cannot be read: ") +
                    SanitizeUtf8(e.what()));
  }
}

}  // namespace rumbo
