#include "daemon/http/anthropic_in.h"

#include "base/status.h"
#include "daemon/http/chat_in.h"
#include "daemon/http/json_in.h"
#include "daemon/http/sampling_in.h"

namespace rumbo {
namespace {

constexpr int64_t kInt31 = 2147483647;
constexpr size_t kMaxMessages = 10000;
constexpr size_t kMaxTools = 512;

// One message of ours for each run of blocks: tool results are messages of their own.
class MessageReader {
 public:
  MessageReader(Fields& root, DecodedRequest& out) : root_(root), out_(out), chat_(out.generate.input.chat) {}

  void Read(const json::value& value, const RawJson& raw, const std::string& path) {
    if (!value.is_object()) return root_.FailAt(path, "must be an object");
    Fields fields(value.get_object(), path, root_.status());
    ChatMessage message;
    message.role = std::string(fields.String("role").value_or(""));
    if (message.role != "user" && message.role != "assistant" && message.role != "system") {
      return fields.Fail("role", "must be user or assistant");
    }
    const json::value* content = fields.Find("content");
    if (content == nullptr) return fields.Fail("content", "is required");
    if (content->is_string()) {
      message.content.push_back(TextPart(View(content->get_string())));
      chat_.messages.push_back(std::move(message));
      return;
    }
    if (!content->is_array()) return fields.Fail("content", "must be a string or a list of blocks");
    const json::array& blocks = content->get_array();
    const std::vector<RawJson> raws = raw.Member("content").Elements();
    for (size_t i = 0; i < blocks.size() && i < raws.size(); ++i) {
      ReadBlock(blocks[i], raws[i], fields.Path("content", i), message);
    }
    if (!message.content.empty() || !message.tool_calls.empty() || !message.reasoning.empty() ||
        blocks.empty()) {
      chat_.messages.push_back(std::move(message));
    }
  }

  // "system": text, or text blocks.
  void ReadSystem() {
    const json::value* system = root_.Find("system");
    if (system == nullptr) return;
    ChatMessage message;
    message.role = "system";
    if (system->is_string()) {
      message.content.push_back(TextPart(View(system->get_string())));
    } else if (system->is_array()) {
      const json::array& blocks = system->get_array();
      for (size_t i = 0; i < blocks.size(); ++i) {
        ReadSimpleBlock(blocks[i], root_.Path("system", i), message.content);
      }
    } else {
      return root_.Fail("system", "must be a string or a list of text blocks");
    }
    if (!message.content.empty()) chat_.messages.push_back(std::move(message));
  }

 private:
  static ContentPart TextPart(std::string_view text) {
    ContentPart part;
    part.text = std::string(text);
    return part;
  }

  void ReadImage(Fields& block, std::vector<ContentPart>& out) {
    const json::object* source = block.Object("source");
    if (source == nullptr) return block.Fail("source", "is required");
    Fields fields(*source, block.Path("source"), root_.status());
    if (fields.String("type").value_or("") != "base64") {
      return fields.Fail("type", "must be base64; this server fetches nothing from addresses");
    }
    ContentPart part;
    part.kind = ContentPart::Kind::kImage;
    part.mime_type = std::string(fields.String("media_type").value_or(""));
    if (ReadBase64(fields, fields.Path("data"), fields.String("data").value_or(""), part)) {
      out.push_back(std::move(part));
    }
  }

  void ReadDocument(Fields& block, std::vector<ContentPart>& out) {
    const json::object* source = block.Object("source");
    if (source == nullptr) return block.Fail("source", "is required");
    Fields fields(*source, block.Path("source"), root_.status());
    if (fields.String("type").value_or("") != "text")
      return fields.Fail("type", "only text documents can be read");
    out.push_back(TextPart(fields.String("data").value_or("")));
  }

  // Blocks that may stand anywhere. False: not one of them.
  bool ReadSimple(Fields& block, std::string_view type, std::vector<ContentPart>& out) {
    if (block.Has("cache_control")) out_.reports_cache = true;
    if (type == "text") {
      const auto text = block.String("text");
      text ? out.push_back(TextPart(*text)) : block.Fail("text", "is required");
    } else if (type == "image") {
      ReadImage(block, out);
    } else if (type == "document") {
      ReadDocument(block, out);
    } else {
      return false;
    }
    return true;
  }

  void ReadSimpleBlock(const json::value& value, const std::string& path, std::vector<ContentPart>& out) {
    if (!value.is_object()) return root_.FailAt(path, "must be an object");
    Fields block(value.get_object(), path, root_.status());
    if (!ReadSimple(block, block.String("type").value_or(""), out)) {
      block.Fail("type", "is not a block this server knows here");
    }
  }

  void ReadToolResult(Fields& block) {
    ChatMessage result;
    result.role = "tool";
    result.tool_call_id = std::string(block.String("tool_use_id").value_or(""));
    if (result.tool_call_id.empty()) return block.Fail("tool_use_id", "is required");
    const json::value* content = block.Find("content");
    if (content != nullptr && content->is_string()) {
      result.content.push_back(TextPart(View(content->get_string())));
    } else if (content != nullptr && content->is_array()) {
      const json::array& parts = content->get_array();
      for (size_t i = 0; i < parts.size(); ++i)
        ReadSimpleBlock(parts[i], block.Path("content", i), result.content);
    } else if (content != nullptr) {
      block.Fail("content", "must be a string or a list of blocks");
    }
    chat_.messages.push_back(std::move(result));
  }

  void ReadBlock(const json::value& value, const RawJson& raw, const std::string& path,
                 ChatMessage& message) {
    if (!value.is_object()) return root_.FailAt(path, "must be an object");
    Fields block(value.get_object(), path, root_.status());
    const std::string type(block.String("type").value_or(""));
    if (ReadSimple(block, type, message.content)) return;
    if (type == "thinking") {
      message.reasoning += std::string(block.String("thinking").value_or(""));
    } else if (type == "redacted_thinking") {
      // Another service's secret; nothing a local model could use.
    } else if (type == "tool_use") {
      ToolCall call;
      call.id = std::string(block.String("id").value_or(""));
      call.name = std::string(block.String("name").value_or(""));
      if (call.name.empty()) return block.Fail("name", "is required");
      if (block.Object("input") == nullptr) return block.Fail("input", "must be an object");
      call.arguments_json = std::string(raw.Member("input").text());
      message.tool_calls.push_back(std::move(call));
    } else if (type == "tool_result") {
      ReadToolResult(block);
    } else {
      block.Fail("type", "is not a block this server knows");
    }
  }

  Fields& root_;
  DecodedRequest& out_;
  ChatInput& chat_;
};

void ReadMessages(Fields& fields, const RawJson& raw, DecodedRequest& out) {
  MessageReader reader(fields, out);
  reader.ReadSystem();
  const json::array* messages = fields.Array("messages");
  if (messages == nullptr || messages->empty())
    return fields.Fail("messages", "must hold at least one message");
  if (messages->size() > kMaxMessages) return fields.Fail("messages", "must hold at most 10000 messages");
  const std::vector<RawJson> raws = raw.Member("messages").Elements();
  for (size_t i = 0; i < messages->size() && i < raws.size(); ++i) {
    reader.Read((*messages)[i], raws[i], fields.Path("messages", i));
  }
  // A last message of the assistant is the beginning of the answer.
  auto& chat = out.generate.input.chat;
  chat.continue_final_message = !chat.messages.empty() && chat.messages.back().role == "assistant" &&
                                chat.messages.back().tool_calls.empty();
}

void ReadTools(Fields& fields, const RawJson& raw, DecodedRequest& out) {
  const json::array* tools = fields.Array("tools");
  if (tools == nullptr) return;
  if (tools->size() > kMaxTools) return fields.Fail("tools", "must have at most 512 entries");
  const std::vector<RawJson> raws = raw.Member("tools").Elements();
  for (size_t i = 0; i < tools->size() && i < raws.size(); ++i) {
    const std::string path = fields.Path("tools", i);
    if (!(*tools)[i].is_object()) return fields.FailAt(path, "must be an object");
    Fields tool((*tools)[i].get_object(), path, fields.status());
    if (tool.Has("cache_control")) out.reports_cache = true;
    if (tool.String("type").value_or("custom") != "custom") {
      return tool.Fail("type", "only tools of the client can be called on this machine");
    }
    Tool read;
    read.name = std::string(tool.String("name").value_or(""));
    if (read.name.empty() || read.name.size() > 256) return tool.Fail("name", "must have 1 to 256 bytes");
    read.description = std::string(tool.String("description").value_or(""));
    if (tool.Object("input_schema") == nullptr) return tool.Fail("input_schema", "is required");
    read.parameters_json_schema = std::string(raws[i].Member("input_schema").text());
    out.generate.input.chat.tools.push_back(std::move(read));
  }
}

void ReadAnthropicToolChoice(Fields& fields, ChatInput& chat) {
  chat.parallel_tool_calls = !chat.tools.empty();
  const json::object* choice = fields.Object("tool_choice");
  if (choice == nullptr) return;
  Fields inner(*choice, "tool_choice", fields.status());
  const std::string type(inner.String("type").value_or(""));
  if (inner.Bool("disable_parallel_tool_use").value_or(false)) chat.parallel_tool_calls = false;
  if (type == "auto" || type == "none") {
    chat.tool_choice = type;
  } else if (type == "any") {
    chat.tool_choice = "required";
  } else if (type == "tool") {
    ForceTool(fields, "tool_choice", inner.String("name").value_or(""), chat);
  } else {
    inner.Fail("type", "must be auto, any, tool or none");
  }
}

void ReadThinking(Fields& fields, ChatInput& chat) {
  if (const json::object* config = fields.Object("output_config")) {
    Fields inner(*config, "output_config", fields.status());
    ReadEffort(inner, "effort", chat);
  }
  const json::object* thinking = fields.Object("thinking");
  if (thinking == nullptr) return;
  Fields inner(*thinking, "thinking", fields.status());
  const std::string type(inner.String("type").value_or(""));
  if (type == "enabled" || type == "adaptive") {
    chat.thinking = true;
  } else if (type == "disabled") {
    chat.thinking = false;
  } else {
    inner.Fail("type", "must be enabled, adaptive or disabled");
  }
}

// output_config.format, and its older name output_format: {"type":"json_schema","schema":{...}}.
void ReadOutputFormat(Fields& fields, const RawJson& raw, SamplingParams& out) {
  const json::object* format = fields.Object("output_format");
  RawJson format_raw = raw.Member("output_format");
  std::string path = "output_format";
  if (const json::object* config = fields.Object("output_config")) {
    Fields inner(*config, "output_config", fields.status());
    if (const json::object* newer = inner.Object("format")) {
      format = newer;
      format_raw = raw.Member("output_config").Member("format");
      path = "output_config.format";
    }
  }
  if (format == nullptr) return;
  Fields inner(*format, path, fields.status());
  if (inner.String("type").value_or("") != "json_schema") return inner.Fail("type", "must be json_schema");
  if (inner.Object("schema") == nullptr) return inner.Fail("schema", "must be a JSON Schema");
  out.json_schema = std::string(format_raw.Member("schema").text());
}

}  // namespace

absl::StatusOr<DecodedRequest> DecodeMessages(std::string_view body, bool counting, size_t max_depth) {
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
  const auto max_tokens = fields.Int("max_tokens", 1, kInt31);
  if (max_tokens) sampling.max_tokens = static_cast<uint32_t>(*max_tokens);
  if (!max_tokens && !counting) fields.Fail("max_tokens", "is required");
  ReadCommonSampling(fields, sampling);
  ReadStop(fields, "stop_sequences", sampling);
  if (const auto seed = fields.Uint64("seed")) sampling.seed = *seed;
  if (const auto stream = fields.Bool("stream")) out.stream = *stream;
  out.generate.input.kind = GenerateInput::Kind::kChat;
  ReadMessages(fields, raw, out);
  ReadTools(fields, raw, out);
  ReadAnthropicToolChoice(fields, out.generate.input.chat);
  ReadThinking(fields, out.generate.input.chat);
  ReadOutputFormat(fields, raw, sampling);
  if (!status.ok()) return status;
  return out;
}

}  // namespace rumbo
