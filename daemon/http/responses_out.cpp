#include "daemon/http/responses_out.h"

#include <vector>

#include "base/status.h"
#include "daemon/http/errors.h"
#include "daemon/http/gathered.h"
#include "daemon/http/json_out.h"
#include "daemon/http/openai_out.h"

namespace rumbo {
namespace {

// One item of the output: reasoning, message or function call, in the order in which the model began them.
struct Item {
  enum class Kind { kReasoning, kMessage, kCall };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string text;  // or arguments
  std::string call_id;
  std::string name;
  uint32_t tool_index = 0;
  std::vector<TokenLogprob> logprobs;
};

void AppendTextPart(JsonWriter& w, std::string& out, const Item& item) {
  w.Open('{').Key("type").String("output_text").Key("text").String(item.text);
  w.Key("annotations").Open('[').Close(']').Key("logprobs");
  AppendLogprobContent(out, item.logprobs);
  w.Appended().Close('}');
}

void AppendItem(std::string& out, const Item& item, bool done) {
  JsonWriter w(out);
  w.Open('{').Key("id").String(item.id).Key("type");
  const char* status = done ? "completed" : "in_progress";
  switch (item.kind) {
    case Item::Kind::kReasoning:
      w.String("reasoning").Key("summary").Open('[').Close(']').Key("content").Open('[');
      if (done) w.Open('{').Key("type").String("reasoning_text").Key("text").String(item.text).Close('}');
      w.Close(']');
      break;
    case Item::Kind::kMessage:
      w.String("message").Key("role").String("assistant").Key("content").Open('[');
      if (done) AppendTextPart(w, out, item);
      w.Close(']');
      break;
    case Item::Kind::kCall:
      w.String("function_call").Key("call_id").String(item.call_id).Key("name").String(item.name);
      w.Key("arguments").String(done ? item.text : "");
      break;
  }
  w.Key("status").String(status).Close('}');
}

class ResponsesEncoder final : public AnswerEncoder {
 public:
  explicit ResponsesEncoder(ResponsesAnswerOptions options) : options_(std::move(options)) {}
  bool streaming() const override { return options_.stream; }
  const char* content_type() const override {
    return options_.stream ? "text/event-stream" : "application/json";
  }
  void Placed(const Placement& placement) override { id_ = std::string(IdSuffix(placement.request_id)); }
  HttpReply ErrorReply(const absl::Status& status) override {
    return rumbo::ErrorReply(Dialect::kOpenAi, status);
  }

  void Started(const StartedEvent&, std::string& out) override {
    if (!options_.stream) return;
    for (const char* type : {"response.created", "response.in_progress"}) {
      Event(out, type);
      out += ",\"response\":";
      AppendResponse(out, "in_progress", nullptr);
      End(out);
    }
  }

  void Chunk(ChunkEvent& chunk, std::string& out) override {
    reasoning_tokens_ += ReasoningTokens(chunk);
    if (!chunk.reasoning.empty()) {
      Open(out, Item::Kind::kReasoning, nullptr);
      Delta(out, "response.reasoning_text.delta", chunk.reasoning, true);
    }
    if (!chunk.text.empty() || !chunk.logprobs.empty()) {
      Open(out, Item::Kind::kMessage, nullptr);
      for (auto& logprob : chunk.logprobs) items_.back().logprobs.push_back(std::move(logprob));
      Delta(out, "response.output_text.delta", chunk.text, true);
    }
    for (const auto& delta : chunk.tool_calls) {
      Open(out, Item::Kind::kCall, &delta);
      if (!delta.arguments_json.empty()) {
        Delta(out, "response.function_call_arguments.delta", delta.arguments_json, false);
      }
    }
  }

  void Finished(const FinishedEvent& finished, std::string& out) override {
    const bool cut = finished.reason == "length" || finished.reason == "context";
    const char* status = cut ? "incomplete" : "completed";
    if (!options_.stream) return AppendResponse(out, status, &finished);
    CloseItem(out);
    Event(out, cut ? "response.incomplete" : "response.completed");
    out += ",\"response\":";
    AppendResponse(out, status, &finished);
    End(out);
  }

  void Failed(const absl::Status& status, std::string& out) override {
    Event(out, "error");
    std::string error;
    JsonWriter w(error);
    w.Key("code")
        .String(ReasonCode(ReasonOf(status)))
        .Key("message")
        .String(ErrorText(status))
        .Key("param")
        .Null();
    out += ',';
    out += error;
    End(out);
  }

 private:
  void Event(std::string& out, std::string_view type) {
    out += "event: ";
    out += type;
    out += "\ndata: {\"type\":\"";
    out += type;
    out += "\",\"sequence_number\":";
    json_out::AppendUint(out, sequence_++);
  }
  static void End(std::string& out) { out += "}\n\n"; }

  void AppendPlace(std::string& out, bool part) const {
    out += ",\"item_id\":";
    json_out::AppendString(out, items_.back().id);
    out += ",\"output_index\":";
    json_out::AppendUint(out, items_.size() - 1);
    if (part) out += ",\"content_index\":0";
  }

  void AppendItemEvent(std::string& out, std::string_view type, bool done) {
    Event(out, type);
    out += ",\"output_index\":";
    json_out::AppendUint(out, items_.size() - 1);
    out += ",\"item\":";
    AppendItem(out, items_.back(), done);
    End(out);
  }

  // Makes the last item one of this kind, ending the one before.
  void Open(std::string& out, Item::Kind kind, const ToolCallDelta* call) {
    if (open_ && items_.back().kind == kind && (call == nullptr || items_.back().tool_index == call->index))
      return;
    CloseItem(out);
    Item item;
    item.kind = kind;
    const char* prefix = kind == Item::Kind::kMessage ? "msg_" : kind == Item::Kind::kCall ? "fc_" : "rs_";
    item.id = prefix + id_ + "_" + std::to_string(items_.size());
    if (call != nullptr) {
      item.call_id = call->id;
      item.name = call->name;
      item.tool_index = call->index;
    }
    items_.push_back(std::move(item));
    open_ = true;
    if (!options_.stream) return;
    AppendItemEvent(out, "response.output_item.added", false);
    if (kind != Item::Kind::kMessage) return;
    Event(out, "response.content_part.added");
    AppendPlace(out, true);
    out += R"(,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]})";
    End(out);
  }

  void Delta(std::string& out, std::string_view type, std::string_view text, bool part) {
    items_.back().text += text;
    if (!options_.stream) return;
    Event(out, type);
    AppendPlace(out, part);
    out += ",\"delta\":";
    json_out::AppendString(out, text);
    if (items_.back().kind == Item::Kind::kMessage) out += ",\"logprobs\":[]";
    End(out);
  }

  void CloseItem(std::string& out) {
    if (!open_) return;
    open_ = false;
    if (!options_.stream) return;
    const Item& item = items_.back();
    const auto text_event = [&](const char* type, const char* key, bool part) {
      Event(out, type);
      AppendPlace(out, part);
      out += ",\"";
      out += key;
      out += "\":";
      json_out::AppendString(out, item.text);
    };
    switch (item.kind) {
      case Item::Kind::kReasoning:
        text_event("response.reasoning_text.done", "text", true);
        End(out);
        break;
      case Item::Kind::kCall:
        text_event("response.function_call_arguments.done", "arguments", false);
        out += ",\"name\":";
        json_out::AppendString(out, item.name);
        End(out);
        break;
      case Item::Kind::kMessage: {
        text_event("response.output_text.done", "text", true);
        out += ",\"logprobs\":[]";
        End(out);
        Event(out, "response.content_part.done");
        AppendPlace(out, true);
        out += ",\"part\":";
        JsonWriter w(out);
        AppendTextPart(w, out, item);
        End(out);
        break;
      }
    }
    AppendItemEvent(out, "response.output_item.done", true);
  }

  void AppendResponse(std::string& out, const char* status, const FinishedEvent* finished) const {
    JsonWriter w(out);
    w.Open('{').Key("id").String("resp_" + id_).Key("object").String("response");
    w.Key("created_at").Int(options_.created_unix_s).Key("status").String(status).Key("error").Null();
    w.Key("incomplete_details");
    if (std::string_view(status) == "incomplete") {
      w.Open('{').Key("reason").String("max_output_tokens").Close('}');
    } else {
      w.Null();
    }
    w.Key("model").String(options_.model).Key("output").Open('[');
    if (finished != nullptr) {
      for (const Item& item : items_) {
        std::string text;
        AppendItem(text, item, true);
        w.Raw(text);
      }
    }
    w.Close(']')
        .Key("parallel_tool_calls")
        .Bool(options_.parallel_tool_calls)
        .Key("previous_response_id")
        .Null();
    w.Key("tool_choice")
        .String(options_.tool_choice)
        .Key("tools")
        .Raw(options_.tools_json)
        .Key("store")
        .Bool(false);
    w.Key("metadata").Open('{').Close('}').Key("usage");
    if (finished == nullptr) {
      w.Null();
    } else {
      w.Open('{').Key("input_tokens").Uint(finished->prompt_tokens).Key("input_tokens_details").Open('{');
      w.Key("cached_tokens").Uint(finished->cached_tokens).Close('}');
      w.Key("output_tokens").Uint(finished->completion_tokens).Key("output_tokens_details").Open('{');
      w.Key("reasoning_tokens").Uint(reasoning_tokens_).Close('}');
      w.Key("total_tokens")
          .Uint(static_cast<uint64_t>(finished->prompt_tokens) + finished->completion_tokens)
          .Close('}');
    }
    w.Close('}');
  }

  const ResponsesAnswerOptions options_;
  std::string id_;
  std::vector<Item> items_;
  bool open_ = false;
  uint64_t sequence_ = 0;
  uint32_t reasoning_tokens_ = 0;
};

}  // namespace

std::unique_ptr<AnswerEncoder> NewResponsesEncoder(ResponsesAnswerOptions options) {
  return std::make_unique<ResponsesEncoder>(std::move(options));
}

}  // namespace rumbo
