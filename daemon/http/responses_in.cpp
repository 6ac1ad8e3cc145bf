#include "daemon/http/responses_in.h"

#include "base/status.h"
#include "daemon/http/chat_in.h"
#include "daemon/http/json_in.h"
#include "daemon/http/sampling_in.h"

namespace rumbo {
namespace {

constexpr int64_t kInt31 = 2147483647;
constexpr size_t kMaxItems = 10000;

void AddText(std::string_view text, ChatMessage& message) {
  ContentPart part;
  part.text = std::string(text);
  message.content.push_back(std::move(part));
}

class ItemReader {
 public:
  ItemReader(Fields& root, ChatInput& chat) : root_(root), chat_(chat) {}

  void Read(const json::value& value, const std::string& path) {
    if (!value.is_object()) return root_.FailAt(path, "must be an object");
    Fields item(value.get_object(), path, root_.status());
    const std::string type(item.String("type").value_or("message"));
    if (type == "message") {
      ReadMessage(item);
    } else if (type == "function_call") {
      ReadCall(item);
    } else if (type == "function_call_output") {
      ReadOutput(item);
    } else if (type == "reasoning") {
      ReadReasoning(item);
    } else {
      item.Fail("type", "is not an item this server knows; it keeps no state to refer to");
    }
  }

 private:
  // The message form is Chat's but for the names of the parts, which ReadOpenAiMessage knows too.
  void ReadMessage(Fields& item) {
    ChatMessage message;
    if (!ReadOpenAiMessage(item, message)) return;
    if (message.role == "assistant" && !pending_reasoning_.empty()) {
      message.reasoning = std::exchange(pending_reasoning_, "");
    }
    chat_.messages.push_back(std::move(message));
  }

  // Calls are part of the assistant's turn before them.
  void ReadCall(Fields& item) {
    ToolCall call;
    call.id = std::string(item.String("call_id").value_or(""));
    call.name = std::string(item.String("name").value_or(""));
    call.arguments_json = std::string(item.String("arguments").value_or("{}"));
    if (call.name.empty()) return item.Fail("name", "is required");
    if (chat_.messages.empty() || chat_.messages.back().role != "assistant") {
      ChatMessage message;
      message.role = "assistant";
      message.reasoning = std::exchange(pending_reasoning_, "");
      chat_.messages.push_back(std::move(message));
    }
    chat_.messages.back().tool_calls.push_back(std::move(call));
  }

  void ReadOutput(Fields& item) {
    ChatMessage message;
    message.role = "tool";
    message.tool_call_id = std::string(item.String("call_id").value_or(""));
    if (message.tool_call_id.empty()) return item.Fail("call_id", "is required");
    ReadOpenAiContent(item, "output", message);
    chat_.messages.push_back(std::move(message));
  }

  void ReadReasoning(Fields& item) {
    for (const char* key : {"content", "summary"}) {
      const json::array* parts = item.Array(key);
      if (parts == nullptr) continue;
      for (const json::value& part : *parts) {
        if (!part.is_object()) continue;
        Fields fields(part.get_object(), item.Path(key), root_.status());
        pending_reasoning_ += std::string(fields.String("text").value_or(""));
      }
      if (!pending_reasoning_.empty()) return;
    }
  }

  Fields& root_;
  ChatInput& chat_;
  std::string pending_reasoning_;
};

void ReadInput(Fields& fields, ChatInput& chat) {
  if (const auto instructions = fields.String("instructions"); instructions && !instructions->empty()) {
    ChatMessage message;
    message.role = "system";
    AddText(*instructions, message);
    chat.messages.push_back(std::move(message));
  }
  const json::value* input = fields.Find("input");
  if (input == nullptr) return fields.Fail("input", "is required");
  if (input->is_string()) {
    ChatMessage message;
    message.role = "user";
    AddText(View(input->get_string()), message);
    chat.messages.push_back(std::move(message));
    return;
  }
  const json::array* items = fields.Array("input");
  if (items == nullptr) return;
  if (items->empty() || items->size() > kMaxItems) return fields.Fail("input", "must hold 1 to 10000 items");
  ItemReader reader(fields, chat);
  for (size_t i = 0; i < items->size(); ++i) reader.Read((*items)[i], fields.Path("input", i));
}

void ReadTextFormat(Fields& fields, const RawJson& raw, SamplingParams& out) {
  const json::object* text = fields.Object("text");
  if (text == nullptr) return;
  Fields inner(*text, "text", fields.status());
  const json::object* format = inner.Object("format");
  if (format == nullptr) return;
  Fields described(*format, "text.format", fields.status());
  const std::string type(described.String("type").value_or("text"));
  if (type == "text") return;
  if (type == "json_object") {
    out.json_schema = R"({"type":"object"})";
  } else if (type == "json_schema") {
    if (described.Object("schema") == nullptr) return described.Fail("schema", "must be a JSON Schema");
    out.json_schema = std::string(raw.Member("text").Member("format").Member("schema").text());
  } else {
    described.Fail("type", "must be text, json_object or json_schema");
  }
}

void ReadReasoningEffort(Fields& fields, ChatInput& chat) {
  const json::object* reasoning = fields.Object("reasoning");
  if (reasoning == nullptr) return;
  Fields inner(*reasoning, "reasoning", fields.status());
  ReadEffort(inner, "effort", chat);
}

}  // namespace

absl::StatusOr<DecodedRequest> DecodeResponses(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  const RawJson raw(body);
  DecodedRequest out;
  const auto model = fields.String("model");
  if (!model || model->empty()) fields.Fail("model", "must name a model");
  out.model = std::string(model.value_or(""));
  SamplingParams& sampling = out.generate.sampling;
  if (const auto max = fields.Int("max_output_tokens", 1, kInt31))
    sampling.max_tokens = static_cast<uint32_t>(*max);
  ReadCommonSampling(fields, sampling);
  ReadStop(fields, "stop", sampling);  // not in the real service; harmless where it is sent
  if (const auto seed = fields.Uint64("seed")) sampling.seed = *seed;
  if (const auto stream = fields.Bool("stream")) out.stream = *stream;
  ReadTextFormat(fields, raw, sampling);
  ChatInput& chat = out.generate.input.chat;
  out.generate.input.kind = GenerateInput::Kind::kChat;
  ReadInput(fields, chat);
  ReadFunctionTools(fields, raw, chat);
  chat.parallel_tool_calls = !chat.tools.empty() && fields.Bool("parallel_tool_calls").value_or(true);
  ReadToolChoice(fields, chat);
  ReadReasoningEffort(fields, chat);
  for (const char* key : {"previous_response_id", "conversation"}) {
    if (fields.Has(key)) fields.Fail(key, "this server keeps no conversations; send the whole input");
  }
  if (fields.Bool("background").value_or(false)) fields.Fail("background", "is not supported");
  if (!status.ok()) return status;
  return out;
}

}  // namespace rumbo
