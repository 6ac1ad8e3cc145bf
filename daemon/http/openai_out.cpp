#include "daemon/http/openai_out.h"

#include "daemon/http/errors.h"
#include "daemon/http/gathered.h"

namespace rumbo {
namespace {

void AppendBytes(JsonWriter& w, std::string_view piece) {
  w.Open('[');
  for (const char c : piece) w.Uint(static_cast<unsigned char>(c));
  w.Close(']');
}

void AppendToken(JsonWriter& w, int32_t id, std::string_view piece, float logprob) {
  w.Key("id").Int(id).Key("token").String(piece).Key("logprob").Float(logprob).Key("bytes");
  AppendBytes(w, piece);
}

// Chat's form, and for completions the older parallel lists before it.
void AppendLogprobs(std::string& out, const std::vector<TokenLogprob>& logprobs, bool chat,
                    size_t text_offset) {
  if (logprobs.empty()) {
    out += "null";
    return;
  }
  JsonWriter w(out);
  w.Open('{');
  if (!chat) {
    w.Key("tokens").Open('[');
    for (const auto& token : logprobs) w.String(token.piece);
    w.Close(']').Key("token_logprobs").Open('[');
    for (const auto& token : logprobs) w.Float(token.logprob);
    w.Close(']').Key("top_logprobs").Open('[');
    for (const auto& token : logprobs) {
      w.Open('{');
      for (const auto& top : token.top) w.KeyEscaped(top.piece).Float(top.logprob);
      w.Close('}');
    }
    w.Close(']').Key("text_offset").Open('[');
    for (const auto& token : logprobs) {
      w.Uint(text_offset);
      text_offset += token.piece.size();
    }
    w.Close(']');
  }
  w.Key("content");
  AppendLogprobContent(out, logprobs);
  w.Appended().Close('}');
}

void AppendTimings(std::string& out, const FinishedEvent& f) {
  JsonWriter(out)
      .Open('{')
      .Key("queue_ms")
      .Double(f.queue_ms)
      .Key("ttft_ms")
      .Double(f.ttft_ms)
      .Key("prompt_ms")
      .Double(f.prompt_ms)
      .Key("decode_ms")
      .Double(f.decode_ms)
      .Key("total_ms")
      .Double(f.total_ms)
      .Key("decode_tok_s")
      .Double(f.decode_tok_s)
      .Key("drafted_tokens")
      .Uint(f.drafted_tokens)
      .Key("accepted_tokens")
      .Uint(f.accepted_tokens)
      .Close('}');
}

class OpenAiBase : public AnswerEncoder {
 public:
  explicit OpenAiBase(OpenAiAnswerOptions options) : options_(std::move(options)) {}
  void Placed(const Placement& placement) override { id_ = std::string(IdSuffix(placement.request_id)); }
  HttpReply ErrorReply(const absl::Status& status) override {
    return rumbo::ErrorReply(Dialect::kOpenAi, status);
  }

 protected:
  // {"id":..,"object":..,"created":..,"model":..,"choices":[   without the closing
  void AppendEnvelope(std::string& out, std::string_view object) const {
    out += R"({"id":")";
    out += options_.chat ? "chatcmpl-" : "cmpl-";
    json_out::AppendEscaped(out, id_);
    out += R"(","object":")";
    out += object;
    out += R"(","created":)";
    json_out::AppendInt(out, options_.created_unix_s);
    out += R"(,"model":)";
    json_out::AppendString(out, options_.model);
    out += R"(,"choices":[)";
  }

  const OpenAiAnswerOptions options_;
  std::string id_;
};

class OpenAiStream final : public OpenAiBase {
 public:
  using OpenAiBase::OpenAiBase;
  bool streaming() const override { return true; }
  const char* content_type() const override { return "text/event-stream"; }

  void Started(const StartedEvent&, std::string& out) override {
    envelope_ = "data: ";
    AppendEnvelope(envelope_, options_.chat ? "chat.completion.chunk" : "text_completion");
    head_ = envelope_ + (options_.chat ? R"({"index":0,"delta":{"content":")" : R"({"index":0,"text":")");
    end_ = options_.include_usage ? R"(],"usage":null})" : "]}";
    end_ += "\n\n";
    const std::string tail = R"("logprobs":null,"finish_reason":null})" + end_;
    tail_ = (options_.chat ? R"("},)" : R"(",)") + tail;
    if (options_.chat) {
      out += envelope_;
      out += R"({"index":0,"delta":{"role":"assistant","content":""},)";
      out += tail;
    }
  }

  void Chunk(ChunkEvent& chunk, std::string& out) override {
    if (chunk.logprobs.empty() && chunk.tool_calls.empty() && chunk.reasoning.empty()) {
      if (chunk.text.empty()) return;
      out += head_;
      json_out::AppendEscaped(out, chunk.text);
      out += tail_;
      return;
    }
    reasoning_tokens_ += ReasoningTokens(chunk);
    out += envelope_;
    options_.chat ? AppendDelta(chunk, out) : AppendText(chunk, out);
    out += R"(,"logprobs":)";
    AppendLogprobs(out, chunk.logprobs, options_.chat, text_offset_);
    for (const auto& token : chunk.logprobs) text_offset_ += token.piece.size();
    out += R"(,"finish_reason":null})";
    out += end_;
  }

  void Finished(const FinishedEvent& finished, std::string& out) override {
    out += envelope_;
    out += options_.chat ? R"({"index":0,"delta":{},)" : R"({"index":0,"text":"",)";
    out += R"("logprobs":null,"finish_reason":")";
    out += OpenAiFinishReason(finished.reason);
    out += "\"}";
    out += end_;
    if (options_.include_usage) {
      out += envelope_;
      out += R"(],"usage":)";
      AppendOpenAiUsage(out, finished, reasoning_tokens_);
      out += R"(,"timings":)";
      AppendTimings(out, finished);
      out += "}\n\n";
    }
    out += "data: [DONE]\n\n";
  }

  void Failed(const absl::Status& status, std::string& out) override {
    out += "data: ";
    AppendOpenAiError(out, status);
    out += "\n\n";
  }

 private:
  static void AppendText(const ChunkEvent& chunk, std::string& out) {
    out += R"({"index":0,"text":)";
    json_out::AppendString(out, chunk.text);
  }

  static void AppendDelta(const ChunkEvent& chunk, std::string& out) {
    out += R"({"index":0,"delta":)";
    JsonWriter w(out);
    w.Open('{');
    if (!chunk.reasoning.empty()) w.Key("reasoning_content").String(chunk.reasoning);
    if (!chunk.text.empty()) w.Key("content").String(chunk.text);
    if (!chunk.tool_calls.empty()) {
      w.Key("tool_calls").Open('[');
      for (const auto& delta : chunk.tool_calls) {
        w.Open('{').Key("index").Uint(delta.index);
        if (!delta.id.empty()) w.Key("id").String(delta.id).Key("type").String("function");
        w.Key("function").Open('{');
        if (!delta.name.empty()) w.Key("name").String(delta.name);
        w.Key("arguments").String(delta.arguments_json).Close('}').Close('}');
      }
      w.Close(']');
    }
    w.Close('}');
  }

  std::string envelope_;  // up to the choice
  std::string head_;      // up to the text of a plain chunk
  std::string tail_;      // after it
  std::string end_;       // after the choice
  size_t text_offset_ = 0;
  uint32_t reasoning_tokens_ = 0;
};

class OpenAiWhole final : public OpenAiBase {
 public:
  using OpenAiBase::OpenAiBase;
  bool streaming() const override { return false; }
  const char* content_type() const override { return "application/json"; }
  void Started(const StartedEvent&, std::string&) override {}
  void Chunk(ChunkEvent& chunk, std::string&) override { answer_.Add(chunk); }
  void Failed(const absl::Status&, std::string&) override {}

  void Finished(const FinishedEvent& finished, std::string& out) override {
    AppendEnvelope(out, options_.chat ? "chat.completion" : "text_completion");
    JsonWriter w(out);
    w.Open('{').Key("index").Uint(0);
    options_.chat ? AppendMessage(w) : static_cast<void>(w.Key("text").String(answer_.text));
    w.Key("logprobs");
    AppendLogprobs(out, answer_.logprobs, options_.chat, 0);
    w.Appended().Key("finish_reason").String(OpenAiFinishReason(finished.reason)).Close('}');
    out += R"(],"usage":)";
    AppendOpenAiUsage(out, finished, answer_.reasoning_tokens);
    out += R"(,"timings":)";
    AppendTimings(out, finished);
    out += '}';
  }

 private:
  void AppendMessage(JsonWriter& w) const {
    w.Key("message").Open('{').Key("role").String("assistant").Key("content");
    answer_.text.empty() && !answer_.tool_calls.empty() ? w.Null() : w.String(answer_.text);
    w.Key("refusal").Null();
    if (!answer_.reasoning.empty()) w.Key("reasoning_content").String(answer_.reasoning);
    if (!answer_.tool_calls.empty()) {
      w.Key("tool_calls").Open('[');
      for (const auto& call : answer_.tool_calls) {
        w.Open('{').Key("id").String(call.id).Key("type").String("function").Key("function").Open('{');
        w.Key("name").String(call.name).Key("arguments").String(call.arguments_json).Close('}').Close('}');
      }
      w.Close(']');
    }
    w.Close('}');
  }

  GatheredAnswer answer_;
};

}  // namespace

void AppendLogprobContent(std::string& out, const std::vector<TokenLogprob>& logprobs) {
  JsonWriter w(out);
  w.Open('[');
  for (const auto& token : logprobs) {
    w.Open('{');
    AppendToken(w, token.id, token.piece, token.logprob);
    w.Key("top_logprobs").Open('[');
    for (const auto& top : token.top) {
      w.Open('{');
      AppendToken(w, top.id, top.piece, top.logprob);
      w.Close('}');
    }
    w.Close(']').Close('}');
  }
  w.Close(']');
}

void AppendOpenAiUsage(std::string& out, const FinishedEvent& f, uint32_t reasoning_tokens) {
  JsonWriter w(out);
  w.Open('{')
      .Key("prompt_tokens")
      .Uint(f.prompt_tokens)
      .Key("completion_tokens")
      .Uint(f.completion_tokens)
      .Key("total_tokens")
      .Uint(static_cast<uint64_t>(f.prompt_tokens) + f.completion_tokens)
      .Key("prompt_tokens_details")
      .Open('{')
      .Key("cached_tokens")
      .Uint(f.cached_tokens)
      .Close('}');
  if (reasoning_tokens > 0) {
    w.Key("completion_tokens_details").Open('{').Key("reasoning_tokens").Uint(reasoning_tokens).Close('}');
  }
  w.Close('}');
}

const char* OpenAiFinishReason(std::string_view reason) {
  if (reason == "length" || reason == "context") return "length";
  if (reason == "tool_calls") return "tool_calls";
  return "stop";
}

std::string_view IdSuffix(std::string_view request_id) {
  return request_id.substr(0, 4) == "req-" ? request_id.substr(4) : request_id;
}

std::unique_ptr<AnswerEncoder> NewOpenAiEncoder(OpenAiAnswerOptions options) {
  if (options.stream) return std::make_unique<OpenAiStream>(std::move(options));
  return std::make_unique<OpenAiWhole>(std::move(options));
}

}  // namespace rumbo
