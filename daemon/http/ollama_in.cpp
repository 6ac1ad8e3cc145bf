#include "daemon/http/ollama_in.h"

#include <cmath>

#include "base/status.h"
#include "daemon/http/base64.h"
#include "daemon/http/chat_in.h"
#include "daemon/http/json_in.h"
#include "daemon/http/sampling_in.h"

namespace rumbo {
namespace {

constexpr int64_t kInt31 = 2147483647;
constexpr size_t kMaxMessages = 10000;

void ReadModel(Fields& fields, std::string& out) {
  std::string_view name = fields.String("model").value_or("");
  if (name.empty()) name = fields.String("name").value_or("");
  if (name.empty()) fields.Fail("model", "must name a model");
  out = FromOllamaName(name);
}

void ReadKeepAlive(Fields& fields, std::optional<int64_t>& out) {
  const json::value* value = fields.Find("keep_alive");
  if (value == nullptr) return;
  if (value->is_string()) {
    out = ParseDuration(View(value->get_string()));
  } else if (const auto number = AsNumber(*value); number && std::abs(*number) < 1e15) {
    out = static_cast<int64_t>(std::ceil(*number));
  }
  if (!out) fields.Fail("keep_alive", "must be seconds or a duration like \"5m\"");
}

// Ollama's own meanings: -1 and -2 of num_predict are no limit, -1 of seed is random, -1 of repeat_last_n the
// context.
std::optional<int64_t> IntOrNegative(Fields& options, std::string_view key, int64_t low, int64_t lowest) {
  const json::value* value = options.Find(key);
  if (value != nullptr && AsInt(*value, lowest, -1)) return std::nullopt;
  return options.Int(key, low, kInt31);
}

void ReadOptions(Fields& fields, DecodedRequest& out) {
  const json::object* object = fields.Object("options");
  if (object == nullptr) return;
  Fields options(*object, "options", fields.status());
  SamplingParams& sampling = out.generate.sampling;
  // repeat_last_n and seed have other ranges here than elsewhere.
  if (const auto n = IntOrNegative(options, "num_predict", 1, -2))
    sampling.max_tokens = static_cast<uint32_t>(*n);
  const auto last_n = IntOrNegative(options, "repeat_last_n", 0, -1);
  if (options.Has("repeat_last_n")) {
    json::object rest = *object;
    rest.erase("repeat_last_n");
    Fields others(rest, "options", fields.status());
    ReadCommonSampling(others, sampling);
    sampling.repeat_last_n = static_cast<uint32_t>(last_n.value_or(kInt31));
  } else {
    ReadCommonSampling(options, sampling);
  }
  ReadStop(options, "stop", sampling);
  const json::value* seed = options.Find("seed");
  if (seed != nullptr && !AsInt(*seed, -1, -1)) {
    if (const auto value = options.Uint64("seed")) sampling.seed = *value;
  }
  if (const auto context = options.Int("num_ctx", 1, kInt31)) out.context = static_cast<uint32_t>(*context);
}

void ReadFormat(Fields& fields, const RawJson& raw, SamplingParams& out) {
  const json::value* format = fields.Find("format");
  if (format == nullptr) return;
  if (format->is_string()) {
    const std::string_view word = View(format->get_string());
    if (word.empty()) return;
    if (word != "json") return fields.Fail("format", "must be \"json\" or a JSON Schema");
    out.json_schema = R"({"type":"object"})";
  } else if (format->is_object()) {
    out.json_schema = std::string(raw.Member("format").text());
  } else {
    fields.Fail("format", "must be \"json\" or a JSON Schema");
  }
}

void ReadThink(Fields& fields, ChatInput& chat) {
  const json::value* think = fields.Find("think");
  if (think == nullptr) return;
  if (think->is_bool()) {
    chat.thinking = think->get_bool();
  } else if (think->is_string() &&
             (View(think->get_string()) == "low" || View(think->get_string()) == "medium" ||
              View(think->get_string()) == "high")) {
    chat.thinking = true;
    chat.template_args["reasoning_effort"] = "\"" + std::string(View(think->get_string())) + "\"";
  } else {
    fields.Fail("think", "must be true, false, low, medium or high");
  }
}

std::string ImageType(std::string_view data) {
  if (data.substr(0, 4) == "\x89PNG") return "image/png";
  if (data.substr(0, 2) == "\xff\xd8") return "image/jpeg";
  if (data.substr(0, 4) == "RIFF" && data.substr(8, 4) == "WEBP") return "image/webp";
  if (data.substr(0, 4) == "GIF8") return "image/gif";
  return "";
}

void ReadImages(Fields& fields, std::vector<ContentPart>& out) {
  const json::array* images = fields.Array("images");
  if (images == nullptr) return;
  for (size_t i = 0; i < images->size(); ++i) {
    const std::string path = fields.Path("images", i);
    if (!(*images)[i].is_string()) return fields.FailAt(path, "must be base64");
    ContentPart part;
    part.kind = ContentPart::Kind::kImage;
    if (!ReadBase64(fields, path, View((*images)[i].get_string()), part)) return;
    part.mime_type = ImageType(part.data);
    out.push_back(std::move(part));
  }
}

void AddText(std::string_view text, std::vector<ContentPart>& out) {
  ContentPart part;
  part.text = std::string(text);
  out.push_back(std::move(part));
}

void ReadToolCalls(Fields& message, const RawJson& raw, ChatMessage& out) {
  const json::array* calls = message.Array("tool_calls");
  if (calls == nullptr) return;
  const std::vector<RawJson> raws = raw.Member("tool_calls").Elements();
  for (size_t i = 0; i < calls->size() && i < raws.size(); ++i) {
    const std::string path = message.Path("tool_calls", i);
    if (!(*calls)[i].is_object()) return message.FailAt(path, "must be an object");
    Fields call((*calls)[i].get_object(), path, message.status());
    const json::object* function = call.Object("function");
    if (function == nullptr) return call.Fail("function", "is required");
    Fields inner(*function, call.Path("function"), message.status());
    ToolCall read;
    read.id = std::string(call.String("id").value_or(""));
    read.name = std::string(inner.String("name").value_or(""));
    if (read.name.empty()) return inner.Fail("name", "is required");
    const json::object* arguments = inner.Object("arguments");
    read.arguments_json = arguments == nullptr
                              ? std::string("{}")
                              : std::string(raws[i].Member("function").Member("arguments").text());
    out.tool_calls.push_back(std::move(read));
  }
}

void ReadMessage(Fields& fields, const std::string& path, const json::value& value, const RawJson& raw,
                 ChatInput& chat) {
  if (!value.is_object()) return fields.FailAt(path, "must be an object");
  Fields message(value.get_object(), path, fields.status());
  ChatMessage out;
  out.role = std::string(message.String("role").value_or(""));
  if (out.role != "system" && out.role != "user" && out.role != "assistant" && out.role != "tool") {
    return message.Fail("role", "must be system, user, assistant or tool");
  }
  if (const auto text = message.String("content"); text && !(text->empty() && message.Has("tool_calls"))) {
    AddText(*text, out.content);
  }
  ReadImages(message, out.content);
  ReadToolCalls(message, raw, out);
  out.reasoning = std::string(message.String("thinking").value_or(""));
  out.name = std::string(message.String("tool_name").value_or(""));
  out.tool_call_id = std::string(message.String("tool_call_id").value_or(""));
  chat.messages.push_back(std::move(out));
}

void ReadShared(Fields& fields, const RawJson& raw, OllamaRequest& out) {
  ReadModel(fields, out.request.model);
  out.request.stream = fields.Bool("stream").value_or(true);
  ReadKeepAlive(fields, out.request.keep_alive_s);
  ReadOptions(fields, out.request);
  ReadFormat(fields, raw, out.request.generate.sampling);
  ReadThink(fields, out.request.generate.input.chat);
}

}  // namespace

std::string FromOllamaName(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.size() > kLatest.size() && name.substr(name.size() - kLatest.size()) == kLatest) {
    name.remove_suffix(kLatest.size());
  }
  return std::string(name);
}

std::string ToOllamaName(std::string_view name) {
  const bool tagged = name.find(':') != std::string_view::npos;
  return std::string(name) + (tagged ? "" : ":latest");
}

std::optional<int64_t> ParseDuration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const bool negative = text.front() == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double total = 0;
  while (!text.empty()) {
    size_t digits = 0;
    double number = 0;
    double scale = 0;
    for (; digits < text.size() && ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.');
         ++digits) {
      if (text[digits] == '.') {
        if (scale != 0) return std::nullopt;
        scale = 1;
      } else if (scale == 0) {
        number = number * 10 + (text[digits] - '0');
      } else {
        scale /= 10;
        number += (text[digits] - '0') * scale;
      }
    }
    if (digits == 0 || digits > 15) return std::nullopt;
    text.remove_prefix(digits);
    size_t letters = 0;
    while (letters < text.size() && (text[letters] < '0' || text[letters] > '9')) ++letters;
    const std::string_view unit = text.substr(0, letters);
    text.remove_prefix(letters);
    if (unit == "h") {
      total += number * 3600;
    } else if (unit == "m") {
      total += number * 60;
    } else if (unit == "s" || (unit.empty() && text.empty() && total == 0)) {
      total += number;
    } else if (unit == "ms") {
      total += number / 1000;
    } else {
      return std::nullopt;
    }
  }
  if (total > 1e15) return std::nullopt;
  const auto seconds = static_cast<int64_t>(std::ceil(total));
  return negative ? -std::max<int64_t>(seconds, 1) : seconds;
}

absl::StatusOr<OllamaRequest> DecodeOllamaGenerate(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  OllamaRequest out;
  ReadShared(fields, RawJson(body), out);
  const std::string prompt(fields.String("prompt").value_or(""));
  const std::string system(fields.String("system").value_or(""));
  if (!fields.String("template").value_or("").empty()) {
    fields.Fail("template", "templates come with the model, never with a request");
  }
  if (!fields.String("suffix").value_or("").empty()) fields.Fail("suffix", "is not supported");
  if (const json::array* context = fields.Array("context"); context != nullptr && !context->empty()) {
    fields.Fail("context", "is not supported; send the conversation to /api/chat");
  }
  std::vector<ContentPart> content;
  ReadImages(fields, content);
  const bool raw = fields.Bool("raw").value_or(false);
  if (raw && !content.empty()) fields.Fail("images", "cannot be combined with raw");
  out.only_load = prompt.empty() && content.empty();
  GenerateInput& input = out.request.generate.input;
  input.prompt = prompt;
  out.templated_prompt = !raw;
  if (!raw) {
    input.kind = GenerateInput::Kind::kChat;
    if (!system.empty()) {
      ChatMessage message;
      message.role = "system";
      AddText(system, message.content);
      input.chat.messages.push_back(std::move(message));
    }
    ChatMessage message;
    message.role = "user";
    AddText(prompt, message.content);
    for (auto& part : content) message.content.push_back(std::move(part));
    input.chat.messages.push_back(std::move(message));
    input.prompt.clear();
  }
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<OllamaRequest> DecodeOllamaChat(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  const RawJson raw(body);
  OllamaRequest out;
  ReadShared(fields, raw, out);
  GenerateInput& input = out.request.generate.input;
  input.kind = GenerateInput::Kind::kChat;
  const json::array* messages = fields.Array("messages");
  if (messages != nullptr && messages->size() > kMaxMessages) {
    fields.Fail("messages", "must hold at most 10000 messages");
  } else if (messages != nullptr) {
    const std::vector<RawJson> raws = raw.Member("messages").Elements();
    for (size_t i = 0; i < messages->size() && i < raws.size(); ++i) {
      ReadMessage(fields, fields.Path("messages", i), (*messages)[i], raws[i], input.chat);
    }
  }
  out.only_load = input.chat.messages.empty();
  // A last message of the assistant is the beginning of the answer.
  input.chat.continue_final_message = !out.only_load && input.chat.messages.back().role == "assistant" &&
                                      input.chat.messages.back().tool_calls.empty();
  ReadFunctionTools(fields, raw, input.chat);
  input.chat.parallel_tool_calls = !input.chat.tools.empty();
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<OllamaEmbedRequest> DecodeOllamaEmbed(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  OllamaEmbedRequest out;
  ReadModel(fields, out.model);
  ReadKeepAlive(fields, out.keep_alive_s);
  const char* key = fields.Has("input") ? "input" : "prompt";
  const json::value* input = fields.Find(key);
  if (input == nullptr) {
    fields.Fail("input", "is required");
  } else if (input->is_string()) {
    out.inputs.emplace_back(View(input->get_string()));
  } else if (const json::array* list = fields.Array(key)) {
    if (list->size() > 2048) fields.Fail(key, "must have at most 2048 entries");
    for (size_t i = 0; i < list->size() && status.ok(); ++i) {
      if (!(*list)[i].is_string()) {
        fields.FailAt(fields.Path(key, i), "must be a string");
      } else {
        out.inputs.emplace_back(View((*list)[i].get_string()));
      }
    }
  }
  out.dimensions = static_cast<uint32_t>(fields.Int("dimensions", 0, 1 << 20).value_or(0));
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<std::string> DecodeOllamaName(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  std::string name;
  ReadModel(fields, name);
  if (!status.ok()) return status;
  return name;
}

}  // namespace rumbo
