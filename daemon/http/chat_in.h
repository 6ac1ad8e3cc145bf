#pragma once

#include "daemon/http/json_in.h"
#include "engines/api/request.h"

namespace rumbo {

// messages, tools, tool_choice, parallel_tool_calls, chat_template_kwargs, reasoning_effort in OpenAI's form.
// `raw` is the text of the same object.
void ReadOpenAiChat(Fields& fields, const RawJson& raw, ChatInput& out);

// One message of Chat or Responses; false where its fault was noted.
bool ReadOpenAiMessage(Fields& message, ChatMessage& out);
// Its text or list of parts, under `key`.
void ReadOpenAiContent(Fields& message, std::string_view key, ChatMessage& out);
void ReadToolChoice(Fields& fields, ChatInput& chat);
// "none" turns thinking off; other efforts turn it on and go to the template.
void ReadEffort(Fields& fields, std::string_view key, ChatInput& chat);

// [{"type":"function","function":{name, description, parameters}}], as OpenAI and Ollama have it. Parameters
// are kept byte for byte: prompts, and so cached prefixes, must not change with our taste in JSON.
void ReadFunctionTools(Fields& fields, const RawJson& raw, ChatInput& out);

// A picture or sound given inline: "data:image/png;base64,...", or plain base64 with its type known. False
// with the field's error where it is anything else; addresses are never fetched.
bool ReadDataUrl(Fields& fields, const std::string& path, std::string_view url, ContentPart& out);
bool ReadBase64(Fields& fields, const std::string& path, std::string_view text, ContentPart& out);

// Keeps only `name` of the tools; fails where there is no such tool.
void ForceTool(Fields& fields, std::string_view key, std::string_view name, ChatInput& out);

}  // namespace rumbo
