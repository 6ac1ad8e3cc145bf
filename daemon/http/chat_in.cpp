#include "daemon/http/chat_in.h"

#include <algorithm>

#include "daemon/http/base64.h"

namespace rumbo {
namespace {

constexpr size_t kMaxMessages = 10000;
constexpr size_t kMaxTools = 512;

void ReadPart(Fields& fields, const std::string& path, const json::value& value, ChatMessage& message) {
  if (!value.is_object()) return fields.FailAt(path, "must be an object");
  Fields part(value.get_object(), path, fields.status());
  const std::string type(part.String("type").value_or(""));
  ContentPart out;
  if (type == "text" || type == "input_text" || type == "output_text" || type == "refusal") {
    const char* key = type == "refusal" ? "refusal" : "text";
    const auto text = part.String(key);
    if (!text) return part.Fail(key, "is required");
    out.text = std::string(*text);
  } else if (type == "image_url" || type == "input_image") {
    const json::value* url = part.Find("image_url");
    if (url != nullptr && url->is_object()) url = url->get_object().if_contains("url");
    if (url == nullptr || !url->is_string()) return part.Fail("image_url", "must hold a data: URL");
    out.kind = ContentPart::Kind::kImage;
    if (!ReadDataUrl(fields, part.Path("image_url"), View(url->get_string()), out)) return;
  } else if (type == "input_audio") {
    const json::object* audio = part.Object("input_audio");
    if (audio == nullptr) return part.Fail("input_audio", "is required");
    Fields inner(*audio, part.Path("input_audio"), fields.status());
    out.kind = ContentPart::Kind::kAudio;
    out.mime_type = "audio/" + std::string(inner.String("format").value_or("wav"));
    if (!ReadBase64(fields, inner.Path("data"), inner.String("data").value_or(""), out)) return;
  } else {
    return part.Fail("type", "is not a content type this server knows");
  }
  message.content.push_back(std::move(out));
}

}  // namespace

void ReadOpenAiContent(Fields& message, std::string_view key, ChatMessage& out) {
  const json::value* content = message.Find(key);
  if (content == nullptr) return;
  if (content->is_string()) {
    ContentPart part;
    part.text = std::string(View(content->get_string()));
    out.content.push_back(std::move(part));
    return;
  }
  if (!content->is_array()) return message.Fail(key, "must be a string or a list of parts");
  const json::array& parts = content->get_array();
  for (size_t i = 0; i < parts.size(); ++i) ReadPart(message, message.Path(key, i), parts[i], out);
}

namespace {

void ReadToolCalls(Fields& message, ChatMessage& out) {
  const json::array* calls = message.Array("tool_calls");
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string path = message.Path("tool_calls", i);
    if (!(*calls)[i].is_object()) return message.FailAt(path, "must be an object");
    Fields call((*calls)[i].get_object(), path, message.status());
    const json::object* function = call.Object("function");
    if (function == nullptr) return call.Fail("function", "is required");
    Fields inner(*function, call.Path("function"), message.status());
    ToolCall tool_call;
    tool_call.id = std::string(call.String("id").value_or(""));
    tool_call.name = std::string(inner.String("name").value_or(""));
    tool_call.arguments_json = std::string(inner.String("arguments").value_or("{}"));
    if (tool_call.name.empty()) return inner.Fail("name", "is required");
    out.tool_calls.push_back(std::move(tool_call));
  }
}

}  // namespace

bool ReadOpenAiMessage(Fields& message, ChatMessage& out) {
  out.role = std::string(message.String("role").value_or(""));
  if (out.role == "developer") out.role = "system";
  if (out.role == "function") out.role = "tool";
  if (out.role != "system" && out.role != "user" && out.role != "assistant" && out.role != "tool") {
    message.Fail("role", "must be system, developer, user, assistant or tool");
    return false;
  }
  ReadOpenAiContent(message, "content", out);
  ReadToolCalls(message, out);
  if (message.Find("content") == nullptr && out.role != "assistant") {
    message.Fail("content", "is required");
    return false;
  }
  out.tool_call_id = std::string(message.String("tool_call_id").value_or(""));
  out.name = std::string(message.String("name").value_or(""));
  for (const char* key : {"reasoning", "reasoning_content"}) {
    if (const auto text = message.String(key)) out.reasoning = std::string(*text);
  }
  return true;
}

void ReadToolChoice(Fields& fields, ChatInput& chat) {
  const json::value* choice = fields.Find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    chat.tool_choice = std::string(View(choice->get_string()));
    if (chat.tool_choice != "auto" && chat.tool_choice != "none" && chat.tool_choice != "required") {
      fields.Fail("tool_choice", "must be auto, none, required or a function");
    }
    return;
  }
  const json::object* object = fields.Object("tool_choice");
  if (object == nullptr) return;
  Fields inner(*object, fields.Path("tool_choice"), fields.status());
  std::string name(inner.String("name").value_or(""));  // the Responses form
  if (const json::object* function = inner.Object("function")) {
    name =
        std::string(Fields(*function, inner.Path("function"), fields.status()).String("name").value_or(""));
  }
  ForceTool(fields, "tool_choice", name, chat);
}

void ReadEffort(Fields& fields, std::string_view key, ChatInput& chat) {
  const auto effort = fields.String(key);
  if (!effort) return;
  if (*effort == "none") {
    chat.thinking = false;
  } else if (*effort == "minimal" || *effort == "low" || *effort == "medium" || *effort == "high" ||
             *effort == "xhigh") {
    chat.thinking = true;
    chat.template_args["reasoning_effort"] = "\"" + std::string(*effort) + "\"";
  } else {
    fields.Fail(key, "must be none, minimal, low, medium, high or xhigh");
  }
}

namespace {

void ReadThinking(Fields& fields, const RawJson& raw, ChatInput& chat) {
  ReadEffort(fields, "reasoning_effort", chat);
  const json::object* args = fields.Object("chat_template_kwargs");
  if (args == nullptr) return;
  const RawJson args_raw = raw.Member("chat_template_kwargs");
  for (const auto& [key, value] : *args) {
    const std::string name(View(key));
    if (name == "enable_thinking" && value.is_bool()) {
      chat.thinking = value.get_bool();
    } else {
      chat.template_args[name] = std::string(args_raw.Member(name).text());
    }
  }
}

}  // namespace

bool ReadBase64(Fields& fields, const std::string& path, std::string_view text, ContentPart& out) {
  auto data = Base64Decode(text);
  if (!data || data->empty()) {
    fields.FailAt(path, "must be base64");
    return false;
  }
  out.data = std::move(*data);
  return true;
}

bool ReadDataUrl(Fields& fields, const std::string& path, std::string_view url, ContentPart& out) {
  constexpr std::string_view kScheme = "data:";
  constexpr std::string_view kBase64 = ";base64";
  const size_t comma = url.find(',');
  const std::string_view head = url.substr(0, comma);
  if (comma == std::string_view::npos || head.substr(0, kScheme.size()) != kScheme ||
      head.size() < kScheme.size() + kBase64.size() || head.substr(head.size() - kBase64.size()) != kBase64) {
    fields.FailAt(path, "must be a data: URL with base64; this server fetches nothing from addresses");
    return false;
  }
  out.mime_type = std::string(head.substr(kScheme.size(), head.size() - kScheme.size() - kBase64.size()));
  return ReadBase64(fields, path, url.substr(comma + 1), out);
}

void ForceTool(Fields& fields, std::string_view key, std::string_view name, ChatInput& out) {
  const auto it =
      std::find_if(out.tools.begin(), out.tools.end(), [&](const Tool& t) { return t.name == name; });
  if (name.empty() || it == out.tools.end()) return fields.Fail(key, "names no tool of this request");
  Tool kept = std::move(*it);
  out.tools.clear();
  out.tools.push_back(std::move(kept));
  out.tool_choice = "required";
}

void ReadFunctionTools(Fields& fields, const RawJson& raw, ChatInput& out) {
  const json::array* tools = fields.Array("tools");
  if (tools == nullptr) return;
  if (tools->size() > kMaxTools) return fields.Fail("tools", "must have at most 512 entries");
  const std::vector<RawJson> raws = raw.Member("tools").Elements();
  for (size_t i = 0; i < tools->size() && i < raws.size() && fields.ok(); ++i) {
    const RawJson& tool_raw = raws[i];
    const std::string path = fields.Path("tools", i);
    const json::value& value = (*tools)[i];
    if (!value.is_object()) return fields.FailAt(path, "must be an object");
    Fields tool(value.get_object(), path, fields.status());
    if (tool.String("type").value_or("function") != "function") {
      return tool.Fail("type", "only function tools can be called on this machine");
    }
    // {"function": {...}} in Chat, the fields themselves in Responses.
    const json::object* wrapped = tool.Object("function");
    Fields inner(wrapped != nullptr ? *wrapped : value.get_object(),
                 wrapped != nullptr ? tool.Path("function") : path, fields.status());
    const RawJson inner_raw = wrapped != nullptr ? tool_raw.Member("function") : tool_raw;
    Tool read;
    read.name = std::string(inner.String("name").value_or(""));
    if (read.name.empty() || read.name.size() > 256) return inner.Fail("name", "must have 1 to 256 bytes");
    read.description = std::string(inner.String("description").value_or(""));
    const json::object* parameters = inner.Object("parameters");
    read.parameters_json_schema =
        parameters != nullptr ? std::string(inner_raw.Member("parameters").text()) : std::string("{}");
    out.tools.push_back(std::move(read));
  }
}

void ReadOpenAiChat(Fields& fields, const RawJson& raw, ChatInput& out) {
  const json::array* messages = fields.Array("messages");
  if (messages == nullptr || messages->empty()) {
    fields.Fail("messages", "must hold at least one message");
  } else if (messages->size() > kMaxMessages) {
    fields.Fail("messages", "must hold at most 10000 messages");
  } else {
    for (size_t i = 0; i < messages->size(); ++i) {
      const std::string path = fields.Path("messages", i);
      if (!(*messages)[i].is_object()) return fields.FailAt(path, "must be an object");
      Fields message((*messages)[i].get_object(), path, fields.status());
      ChatMessage read;
      if (ReadOpenAiMessage(message, read)) out.messages.push_back(std::move(read));
    }
  }
  ReadFunctionTools(fields, raw, out);
  out.parallel_tool_calls = !out.tools.empty() && fields.Bool("parallel_tool_calls").value_or(true);
  ReadToolChoice(fields, out);
  ReadThinking(fields, raw, out);
}

}  // namespace rumbo
