#include "daemon/http/anthropic_out.h"

#include "daemon/http/errors.h"
#include "daemon/http/gathered.h"
#include "daemon/http/json_out.h"
#include "daemon/http/openai_out.h"

namespace rumbo {
namespace {

const char* StopReason(std::string_view reason) {
  if (reason == "stop_string") return "stop_sequence";
  if (reason == "length") return "max_tokens";
  if (reason == "tool_calls") return "tool_use";
  if (reason == "context") return "model_context_window_exceeded";
  return "end_turn";
}

class AnthropicBase : public AnswerEncoder {
 public:
  explicit AnthropicBase(AnthropicAnswerOptions options) : options_(std::move(options)) {}
  void Placed(const Placement& placement) override {
    id_ = "msg_" + std::string(IdSuffix(placement.request_id));
  }
  HttpReply ErrorReply(const absl::Status& status) override {
    return rumbo::ErrorReply(Dialect::kAnthropic, status);
  }

 protected:
  void AppendUsage(JsonWriter& w, uint32_t prompt, uint32_t cached, uint32_t completion) const {
    if (!options_.reports_cache) cached = 0;
    w.Open('{').Key("input_tokens").Uint(prompt - std::min(prompt, cached));
    w.Key("cache_creation_input_tokens").Uint(0).Key("cache_read_input_tokens").Uint(cached);
    w.Key("output_tokens").Uint(completion).Close('}');
  }
  static void AppendStop(JsonWriter& w, const FinishedEvent* finished) {
    w.Key("stop_reason");
    finished == nullptr ? w.Null() : w.String(StopReason(finished->reason));
    w.Key("stop_sequence");
    finished == nullptr || finished->reason != "stop_string" ? w.Null() : w.String(finished->stop_string);
  }
  void AppendMessageHead(JsonWriter& w) const {
    w.Open('{').Key("id").String(id_).Key("type").String("message").Key("role").String("assistant");
    w.Key("model").String(options_.model);
  }

  const AnthropicAnswerOptions options_;
  std::string id_;
};

// Blocks follow each other, each with its start and its stop; one is open at a time.
class AnthropicStream final : public AnthropicBase {
 public:
  using AnthropicBase::AnthropicBase;
  bool streaming() const override { return true; }
  const char* content_type() const override { return "text/event-stream"; }

  void Started(const StartedEvent& event, std::string& out) override {
    JsonWriter w = Event(out, "message_start");
    w.Key("message");
    AppendMessageHead(w);
    w.Key("content").Open('[').Close(']');
    AppendStop(w, nullptr);
    w.Key("usage");
    AppendUsage(w, event.prompt_tokens, event.cached_tokens, 0);
    w.Close('}');
    End(out);
  }

  void Chunk(ChunkEvent& chunk, std::string& out) override {
    if (!chunk.reasoning.empty()) {
      Open(out, Block::kThinking, R"({"type":"thinking","thinking":"","signature":""})");
      Delta(out, R"({"type":"thinking_delta","thinking":)", chunk.reasoning);
    }
    if (!chunk.text.empty()) {
      Open(out, Block::kText, R"({"type":"text","text":""})");
      Delta(out, R"({"type":"text_delta","text":)", chunk.text);
    }
    for (const auto& delta : chunk.tool_calls) {
      if (block_ != Block::kTool || delta.index != tool_) OpenTool(out, delta);
      if (!delta.arguments_json.empty()) {
        Delta(out, R"({"type":"input_json_delta","partial_json":)", delta.arguments_json);
      }
    }
  }

  void Finished(const FinishedEvent& finished, std::string& out) override {
    CloseBlock(out);
    JsonWriter w = Event(out, "message_delta");
    w.Key("delta").Open('{');
    AppendStop(w, &finished);
    w.Close('}').Key("usage");
    AppendUsage(w, finished.prompt_tokens, finished.cached_tokens, finished.completion_tokens);
    End(out);
    Event(out, "message_stop");
    End(out);
  }

  void Failed(const absl::Status& status, std::string& out) override {
    out += "event: error\ndata: ";
    AppendAnthropicError(out, status);
    out += "\n\n";
  }

 private:
  enum class Block { kNone, kText, kThinking, kTool };

  // "event: T\ndata: {"type":"T"; the writer goes on with further keys.
  static JsonWriter Event(std::string& out, std::string_view type) {
    out += "event: ";
    out += type;
    out += "\ndata: ";
    JsonWriter w(out);
    w.Open('{').Key("type").String(type);
    return w;
  }
  static void End(std::string& out) { out += "}\n\n"; }

  void Open(std::string& out, Block block, std::string_view placeholder) {
    if (block_ == block && block != Block::kTool) return;
    CloseBlock(out);
    block_ = block;
    Event(out, "content_block_start").Key("index").Uint(index_).Key("content_block").Raw(placeholder);
    End(out);
    delta_head_ = R"(event: content_block_delta)"
                  "\n"
                  R"(data: {"type":"content_block_delta","index":)" +
                  std::to_string(index_) + R"(,"delta":)";
  }

  void OpenTool(std::string& out, const ToolCallDelta& delta) {
    std::string placeholder;
    JsonWriter(placeholder)
        .Open('{')
        .Key("type")
        .String("tool_use")
        .Key("id")
        .String(delta.id)
        .Key("name")
        .String(delta.name)
        .Key("input")
        .Raw("{}")
        .Close('}');
    Open(out, Block::kTool, placeholder);
    tool_ = delta.index;
  }

  void Delta(std::string& out, std::string_view head, std::string_view text) {
    out += delta_head_;
    out += head;
    json_out::AppendString(out, text);
    out += "}}\n\n";
  }

  void CloseBlock(std::string& out) {
    if (block_ == Block::kNone) return;
    Event(out, "content_block_stop").Key("index").Uint(index_);
    End(out);
    block_ = Block::kNone;
    ++index_;
  }

  Block block_ = Block::kNone;
  uint32_t index_ = 0;
  uint32_t tool_ = 0;
  std::string delta_head_;
};

class AnthropicWhole final : public AnthropicBase {
 public:
  using AnthropicBase::AnthropicBase;
  bool streaming() const override { return false; }
  const char* content_type() const override { return "application/json"; }
  void Started(const StartedEvent&, std::string&) override {}
  void Chunk(ChunkEvent& chunk, std::string&) override { answer_.Add(chunk); }
  void Failed(const absl::Status&, std::string&) override {}

  void Finished(const FinishedEvent& finished, std::string& out) override {
    JsonWriter w(out);
    AppendMessageHead(w);
    w.Key("content").Open('[');
    if (!answer_.reasoning.empty()) {
      w.Open('{').Key("type").String("thinking").Key("thinking").String(answer_.reasoning);
      w.Key("signature").String("").Close('}');
    }
    if (!answer_.text.empty()) {
      w.Open('{').Key("type").String("text").Key("text").String(answer_.text).Close('}');
    }
    for (const auto& call : answer_.tool_calls) {
      w.Open('{').Key("type").String("tool_use").Key("id").String(call.id).Key("name").String(call.name);
      w.Key("input").Raw(ObjectOrEmpty(call.arguments_json)).Close('}');
    }
    w.Close(']');
    AppendStop(w, &finished);
    w.Key("usage");
    AppendUsage(w, finished.prompt_tokens, finished.cached_tokens, finished.completion_tokens);
    w.Close('}');
  }

 private:
  GatheredAnswer answer_;
};

}  // namespace

std::unique_ptr<AnswerEncoder> NewAnthropicEncoder(AnthropicAnswerOptions options) {
  if (options.stream) return std::make_unique<AnthropicStream>(std::move(options));
  return std::make_unique<AnthropicWhole>(std::move(options));
}

}  // namespace rumbo
