#include "daemon/http/ollama_out.h"

#include <chrono>
#include <ctime>

#include "daemon/http/errors.h"
#include "daemon/http/gathered.h"
#include "daemon/http/json_in.h"
#include "daemon/http/json_out.h"

namespace rumbo {
namespace {

const char* DoneReason(std::string_view reason) {
  return reason == "length" || reason == "context" ? "length" : "stop";
}

void AppendStats(JsonWriter& w, const FinishedEvent& f) {
  const auto ns = [](double ms) { return static_cast<int64_t>(ms * 1e6); };
  w.Key("total_duration").Int(ns(f.total_ms)).Key("load_duration").Int(ns(f.queue_ms));
  w.Key("prompt_eval_count").Uint(f.prompt_tokens).Key("prompt_eval_duration").Int(ns(f.prompt_ms));
  w.Key("eval_count").Uint(f.completion_tokens).Key("eval_duration").Int(ns(f.decode_ms));
}

class OllamaEncoder final : public AnswerEncoder {
 public:
  explicit OllamaEncoder(OllamaAnswerOptions options) : options_(std::move(options)) {
    head_ = "{\"model\":";
    json_out::AppendString(head_, options_.model);
    head_ += ",\"created_at\":\"";
  }

  bool streaming() const override { return options_.stream; }
  const char* content_type() const override {
    return options_.stream ? "application/x-ndjson" : "application/json; charset=utf-8";
  }
  void Placed(const Placement&) override {}
  void Started(const StartedEvent&, std::string&) override {}

  void Chunk(ChunkEvent& chunk, std::string& out) override {
    if (!options_.stream || !chunk.tool_calls.empty()) {
      // Whole tool calls only in this dialect: they wait for the end.
      if (options_.stream) {
        ChunkEvent calls;
        calls.tool_calls = std::move(chunk.tool_calls);
        chunk.tool_calls.clear();
        answer_.Add(calls);
      } else {
        answer_.Add(chunk);
        return;
      }
    }
    if (chunk.text.empty() && chunk.reasoning.empty()) return;
    AppendHead(out);
    AppendContent(out, chunk.text, chunk.reasoning, false);
    out += ",\"done\":false}\n";
  }

  void Finished(const FinishedEvent& finished, std::string& out) override {
    if (options_.stream && !answer_.tool_calls.empty()) {
      AppendHead(out);
      AppendContent(out, "", "", true);
      out += ",\"done\":false}\n";
    }
    AppendHead(out);
    AppendContent(out, answer_.text, answer_.reasoning, !options_.stream);
    out += ",\"done\":true,\"done_reason\":\"";
    out += DoneReason(finished.reason);
    out += "\",";
    JsonWriter w(out);
    AppendStats(w, finished);
    out += options_.stream ? "}\n" : "}";
  }

  void Failed(const absl::Status& status, std::string& out) override {
    AppendOllamaError(out, status);
    out += '\n';
  }

  HttpReply ErrorReply(const absl::Status& status) override {
    return rumbo::ErrorReply(Dialect::kOllama, status);
  }

 private:
  void AppendHead(std::string& out) const {
    out += head_;
    out += Rfc3339Now();
    out += '"';
  }

  void AppendContent(std::string& out, std::string_view text, std::string_view reasoning, bool calls) const {
    out += options_.chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"response":)";
    json_out::AppendString(out, text);
    if (!reasoning.empty()) {
      out += ",\"thinking\":";
      json_out::AppendString(out, reasoning);
    }
    if (calls && options_.chat && !answer_.tool_calls.empty()) {
      out += ",\"tool_calls\":";
      JsonWriter w(out);
      w.Open('[');
      for (const auto& call : answer_.tool_calls) {
        w.Open('{');
        if (!call.id.empty()) w.Key("id").String(call.id);
        w.Key("function").Open('{').Key("name").String(call.name);
        w.Key("arguments").Raw(OneLineJson(ObjectOrEmpty(call.arguments_json))).Close('}').Close('}');
      }
      w.Close(']');
    }
    if (options_.chat) out += '}';
  }

  const OllamaAnswerOptions options_;
  std::string head_;
  GatheredAnswer answer_;
};

std::string Format(time_t second, int64_t nanoseconds) {
  tm parts;
  char text[64];
  const size_t n = ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", ::gmtime_r(&second, &parts));
  std::string out(text, n);
  std::snprintf(text, sizeof text, ".%09lldZ", static_cast<long long>(nanoseconds));
  return out + text;
}

}  // namespace

std::string Rfc3339Now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto second = std::chrono::duration_cast<std::chrono::seconds>(now);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(now - second);
  return Format(static_cast<time_t>(second.count()), rest.count());
}

std::string Rfc3339(int64_t unix_s) { return Format(static_cast<time_t>(unix_s), 0); }

std::string OllamaLoadAnswer(const OllamaAnswerOptions& options, const char* done_reason) {
  std::string out;
  JsonWriter w(out);
  w.Open('{').Key("model").String(options.model).Key("created_at").String(Rfc3339Now());
  if (options.chat) {
    w.Key("message").Open('{').Key("role").String("assistant").Key("content").String("").Close('}');
  } else {
    w.Key("response").String("");
  }
  w.Key("done").Bool(true).Key("done_reason").String(done_reason).Close('}');
  if (options.stream) out += '\n';
  return out;
}

std::unique_ptr<AnswerEncoder> NewOllamaEncoder(OllamaAnswerOptions options) {
  return std::make_unique<OllamaEncoder>(std::move(options));
}

}  // namespace rumbo
