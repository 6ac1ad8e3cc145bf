#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

#include "base/status.h"
#include "daemon/http/anthropic_in.h"
#include "daemon/http/anthropic_out.h"
#include "daemon/http/base64.h"
#include "daemon/http/errors.h"
#include "daemon/http/json_in.h"
#include "daemon/http/json_out.h"
#include "daemon/http/ollama_in.h"
#include "daemon/http/ollama_out.h"
#include "daemon/http/openai_in.h"
#include "daemon/http/openai_out.h"
#include "daemon/http/responses_in.h"
#include "daemon/http/responses_out.h"
#include "daemon/http/token_in.h"
#include "engines/api/sampling_limits.h"

namespace rumbo {
namespace {

// Everything of a request that reaches an engine, as text that two requests can be compared by.
std::string Shown(const GenerateRequest& r) {
  std::string out;
  const auto add = [&](const char* name, const auto& value) {
    out += std::string(name) + "=";
    if constexpr (requires { value.has_value(); }) {
      out += value ? std::to_string(*value) : "-";
    } else if constexpr (requires { std::to_string(value); }) {
      out += std::to_string(value);
    } else {
      out += value;
    }
    out += "\n";
  };
  const SamplingParams& s = r.sampling;
  add("max_tokens", s.max_tokens);
  add("temperature", s.temperature);
  add("top_p", s.top_p);
  add("top_k", s.top_k);
  add("min_p", s.min_p);
  add("repeat_penalty", s.repeat_penalty);
  add("presence", s.presence_penalty);
  add("frequency", s.frequency_penalty);
  add("seed", s.seed);
  add("logprobs", s.logprobs);
  add("ignore_eos", s.ignore_eos);
  add("schema", s.json_schema);
  add("grammar", s.grammar);
  for (const auto& stop : s.stop) add("stop", stop);
  add("kind", static_cast<int>(r.input.kind));
  add("prompt", r.input.prompt);
  const ChatInput& chat = r.input.chat;
  for (const auto& m : chat.messages) {
    add("message", m.role + "/" + m.tool_call_id + "/" + m.name + "/" + m.reasoning);
    for (const auto& p : m.content)
      add("part", std::to_string(static_cast<int>(p.kind)) + p.text + p.data + p.mime_type);
    for (const auto& c : m.tool_calls) add("call", c.id + "/" + c.name + "/" + c.arguments_json);
  }
  for (const auto& t : chat.tools) add("tool", t.name + "/" + t.description + "/" + t.parameters_json_schema);
  add("tool_choice", chat.tool_choice);
  add("parallel", chat.parallel_tool_calls);
  add("thinking", chat.thinking);
  add("continue", chat.continue_final_message);
  for (const auto& [key, value] : chat.template_args) add("arg", key + value);
  return out;
}

std::string Field(const absl::Status& status) { return FieldOf(status); }

constexpr char kSchema[] =
    R"({ "type":"object",  "properties":{"zeta":{"type":"number","minimum":1.0},"alpha":{}}})";

TEST(DialectsTest, OneRequestIsTheSameInEveryDialect) {
  const std::string schema = kSchema;
  const auto openai = DecodeChatCompletion(
      R"({"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"add 1 é 𠮷"},
         {"role":"assistant","content":"ok","tool_calls":[{"id":"","type":"function","function":
           {"name":"add","arguments":"{\"b\": 1.0, \"a\":2}"}}]}],
         "tools":[{"type":"function","function":{"name":"add","description":"adds","parameters":)" +
      schema +
      R"(}}],"max_completion_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"seed":7,
         "presence_penalty":0.25,"stop":["END","\n"],"reasoning_effort":"low",
         "response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":)" +
      schema + "}}}");
  const auto ollama = DecodeOllamaChat(
      R"({"model":"m:latest","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"add 1 é 𠮷"},
         {"role":"assistant","content":"ok","tool_calls":[{"function":{"name":"add","arguments":{"b": 1.0, "a":2}}}]}],
         "tools":[{"type":"function","function":{"name":"add","description":"adds","parameters":)" +
      schema +
      R"(}}],"options":{"num_predict":9,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"seed":7,
         "presence_penalty":0.25,"stop":["END","\n"]},"think":"low","format":)" +
      schema + "}");
  const auto anthropic = DecodeMessages(
      R"({"model":"m","system":[{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":"add 1 é 𠮷"},
         {"role":"assistant","content":[{"type":"text","text":"ok"},{"type":"tool_use","id":"","name":"add",
           "input":{"b": 1.0, "a":2}}]}],
         "tools":[{"name":"add","description":"adds","input_schema":)" +
          schema +
          R"(}],"max_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"seed":7,
         "presence_penalty":0.25,"stop_sequences":["END","\n"],"thinking":{"type":"adaptive"},
         "output_config":{"effort":"low","format":{"type":"json_schema","schema":)" +
          schema + "}}}",
      false);
  const auto responses = DecodeResponses(
      R"({"model":"m","instructions":"be brief","input":[{"role":"user","content":[{"type":"input_text","text":"add 1 é 𠮷"}]},
         {"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]},
         {"type":"function_call","call_id":"","name":"add","arguments":"{\"b\": 1.0, \"a\":2}"}],
         "tools":[{"type":"function","name":"add","description":"adds","parameters":)" +
      schema +
      R"(}],"max_output_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"seed":7,
         "presence_penalty":0.25,"stop":["END","\n"],"reasoning":{"effort":"low"},
         "text":{"format":{"type":"json_schema","name":"x","schema":)" +
      schema + "}}}");
  ASSERT_TRUE(openai.ok()) << MessageOf(openai.status());
  ASSERT_TRUE(ollama.ok()) << MessageOf(ollama.status());
  ASSERT_TRUE(anthropic.ok()) << MessageOf(anthropic.status());
  ASSERT_TRUE(responses.ok()) << MessageOf(responses.status());
  EXPECT_EQ(Shown(openai->generate), Shown(ollama->request.generate));
  EXPECT_EQ(Shown(openai->generate), Shown(anthropic->generate));
  EXPECT_EQ(Shown(openai->generate), Shown(responses->generate));
  EXPECT_EQ(openai->model, ollama->request.model);
  EXPECT_EQ(openai->generate.sampling.json_schema, schema);
  EXPECT_EQ(openai->generate.input.chat.tools[0].parameters_json_schema, schema);
  EXPECT_TRUE(ValidateGenerateRequest(openai->generate).ok());
}

TEST(DialectsTest, ToolResultsAreTheSameInOpenAiAndAnthropic) {
  const auto openai = DecodeChatCompletion(
      R"({"model":"m","max_tokens":1,"messages":[{"role":"tool","tool_call_id":"c1","content":"3"},
         {"role":"tool","tool_call_id":"c2","content":"4"},{"role":"user","content":[{"type":"text","text":"go on"}]}]})");
  const auto anthropic = DecodeMessages(
      R"({"model":"m","max_tokens":1,"messages":[{"role":"user","content":[
         {"type":"tool_result","tool_use_id":"c1","content":"3"},
         {"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"4"}]},
         {"type":"text","text":"go on"}]}]})",
      false);
  ASSERT_TRUE(openai.ok() && anthropic.ok());
  EXPECT_EQ(Shown(openai->generate), Shown(anthropic->generate));
}

TEST(DialectsTest, PromptIsTheSameInOpenAiAndOllamaRaw) {
  const auto openai = DecodeCompletion(R"({"model":"m","prompt":"once","max_tokens":4,"ignore_eos":true})");
  const auto ollama = DecodeOllamaGenerate(
      R"({"model":"m","prompt":"once","raw":true,"options":{"num_predict":4,"ignore_eos":true}})");
  ASSERT_TRUE(openai.ok() && ollama.ok());
  EXPECT_EQ(Shown(openai->generate), Shown(ollama->request.generate));
  EXPECT_TRUE(ollama->request.stream);
  EXPECT_FALSE(openai->stream);
}

// Each sampling parameter at and beyond its ends: what the decoder refuses is what the engines' own check
// refuses.
TEST(DialectsTest, RangesAreThoseOfTheEngines) {
  struct Case {
    const char* field;
    double low, high, step;
  };
  for (const Case& c : {Case{"temperature", 0, 100, 0.1},
                        {"top_p", 0, 1, 0.1},
                        {"min_p", 0, 1, 0.1},
                        {"typical_p", 0, 1, 0.1},
                        {"presence_penalty", -100, 100, 0.1},
                        {"frequency_penalty", -100, 100, 0.1},
                        {"dry_multiplier", 0, 100, 0.1},
                        {"dry_base", 1, 100, 0.1},
                        {"xtc_probability", 0, 1, 0.1},
                        {"xtc_threshold", 0, 1, 0.1},
                        {"mirostat_tau", 0, 100, 0.1},
                        {"mirostat_eta", 0, 1, 0.1},
                        {"top_k", 0, 2147483647, 1},
                        {"max_tokens", 1, 2147483647, 1},
                        {"repeat_last_n", 0, 2147483647, 1},
                        {"mirostat", 0, 2, 1},
                        {"logprobs", 0, 20, 1},
                        {"dry_allowed_length", 0, 2147483647, 1},
                        {"repeat_penalty", 0.01, 100, 0.1}}) {
    const auto with = [&](double value) {
      std::string body = R"({"model":"m","prompt":"x",")" + std::string(c.field) + "\":";
      c.step == 1 ? json_out::AppendInt(body, static_cast<int64_t>(value))
                  : json_out::AppendDouble(body, value);
      return DecodeCompletion(body + "}");
    };
    for (const double inside : {c.low, c.high}) {
      const auto decoded = with(inside);
      ASSERT_TRUE(decoded.ok()) << c.field << inside << MessageOf(decoded.status());
      EXPECT_TRUE(ValidateSampling(decoded->generate.sampling).ok()) << c.field << inside;
    }
    for (const double outside : {c.low - std::max(c.step, 0.02), c.high + c.step, -1e18, 1e18}) {
      const auto decoded = with(outside);
      EXPECT_EQ(Field(decoded.status()), c.field) << outside;
    }
    for (const char* bad : {"\"1\"", "true", "[]", "1e999", "{}"}) {
      const auto decoded =
          DecodeCompletion(R"({"model":"m","prompt":"x",")" + std::string(c.field) + "\":" + bad + "}");
      EXPECT_EQ(Field(decoded.status()), c.field) << bad;
    }
    EXPECT_TRUE(DecodeCompletion(R"({"model":"m","prompt":"x",")" + std::string(c.field) + "\":null}").ok());
  }
}

TEST(DialectsTest, RefusalsNameTheField) {
  const auto completion = [](const std::string& fields) {
    return Field(DecodeCompletion(R"({"model":"m","prompt":"x",)" + fields + "}").status());
  };
  EXPECT_EQ(completion(R"("n":2)"), "n");
  EXPECT_EQ(completion(R"("n":0)"), "n");
  EXPECT_EQ(completion(R"("echo":true)"), "echo");
  EXPECT_EQ(completion(R"("best_of":3)"), "best_of");
  EXPECT_EQ(completion(R"("stop":[""])"), "stop[0]");
  EXPECT_EQ(completion(R"("stop":5)"), "stop");
  EXPECT_EQ(completion(R"("logit_bias":{"a":1})"), "logit_bias");
  EXPECT_EQ(completion(R"("logit_bias":{"1":101})"), "logit_bias");
  EXPECT_EQ(completion(R"("grammar":"root ::= \"a\"","json_schema":{})"), "grammar");
  EXPECT_EQ(completion(R"("response_format":{"type":"xml"})"), "response_format.type");
  EXPECT_EQ(completion(R"("response_format":{"type":"json_schema","json_schema":{}})"),
            "response_format.json_schema.schema");
  EXPECT_EQ(completion(R"("seed":1.5)"), "seed");
  EXPECT_EQ(Field(DecodeCompletion(R"({"prompt":"x"})").status()), "model");
  EXPECT_EQ(Field(DecodeCompletion(R"({"model":"m"})").status()), "prompt");
  EXPECT_EQ(Field(DecodeCompletion(R"({"model":"m","prompt":["a","b"]})").status()), "prompt");
  const auto chat = [](const std::string& messages, const std::string& more = "") {
    return Field(DecodeChatCompletion(R"({"model":"m","messages":)" + messages + more + "}").status());
  };
  EXPECT_EQ(chat("[]"), "messages");
  EXPECT_EQ(chat(R"([{"role":"robot","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(chat(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(
      chat(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://evil/x.png"}}]}])"),
      "messages[0].content[0].image_url");
  EXPECT_EQ(chat(R"([{"role":"user","content":"x"}])",
                 R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"),
            "tool_choice");
  EXPECT_EQ(chat(R"([{"role":"user","content":"x"}])", R"(,"top_logprobs":2)"), "top_logprobs");
  EXPECT_EQ(
      Field(DecodeMessages(R"({"model":"m","messages":[{"role":"user","content":"x"}]})", false).status()),
      "max_tokens");
  EXPECT_TRUE(DecodeMessages(R"({"model":"m","messages":[{"role":"user","content":"x"}]})", true).ok());
  EXPECT_EQ(Field(DecodeOllamaGenerate(R"({"model":"m","prompt":"x","template":"{{ evil }}"})").status()),
            "template");
  EXPECT_EQ(Field(DecodeOllamaGenerate(R"({"model":"m","prompt":"x","keep_alive":"soon"})").status()),
            "keep_alive");
  EXPECT_EQ(Field(DecodeResponses(R"({"model":"m","input":"x","previous_response_id":"r"})").status()),
            "previous_response_id");
  EXPECT_EQ(Field(DecodeEmbeddings(R"({"model":"m","input":[[1,2]]})").status()), "input[0]");
}

TEST(DialectsTest, UnknownFieldsAreTolerated) {
  EXPECT_TRUE(
      DecodeChatCompletion(R"({"model":"m","messages":[{"role":"user","content":"x","zzz":1}],"store":true,
                                       "metadata":{},"user":"u","service_tier":"auto","zzz":[{}]})")
          .ok());
  EXPECT_TRUE(DecodeMessages(R"({"model":"m","max_tokens":1,"metadata":{"user_id":"u"},"zzz":1,
      "messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"}]},
                  {"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}]})",
                             false)
                  .ok());
  EXPECT_TRUE(DecodeOllamaChat(R"({"model":"m","messages":[{"role":"user","content":"x"}],"tools":[],
                                   "options":{"num_gpu":1,"zzz":2}})")
                  .ok());
}

TEST(DialectsTest, ImagesComeInline) {
  const auto openai = DecodeChatCompletion(
      R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw=="}}]}]})");
  const auto anthropic = DecodeMessages(
      R"({"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw=="}}]}]})",
      false);
  const auto ollama = DecodeOllamaChat(R"({"model":"m","messages":[{"role":"user","images":["iVBORw=="]}]})");
  ASSERT_TRUE(openai.ok() && anthropic.ok() && ollama.ok());
  for (const auto* r : {&openai->generate, &anthropic->generate, &ollama->request.generate}) {
    const ContentPart& part = r->input.chat.messages[0].content[0];
    EXPECT_EQ(part.kind, ContentPart::Kind::kImage);
    EXPECT_EQ(part.mime_type, "image/png");
    EXPECT_EQ(part.data, "\x89PNG");
  }
}

TEST(DialectsTest, DurationsAsOllamaWritesThem) {
  EXPECT_EQ(ParseDuration("5m"), 300);
  EXPECT_EQ(ParseDuration("1h30m"), 5400);
  EXPECT_EQ(ParseDuration("300ms"), 1);
  EXPECT_EQ(ParseDuration("0"), 0);
  EXPECT_EQ(ParseDuration("-1"), -1);
  EXPECT_EQ(ParseDuration("-1m"), -60);
  EXPECT_EQ(ParseDuration("1.5h"), 5400);
  for (const char* bad : {"", "m", "5x", "5m3", "1..5s", "-", "99999999999999999999h"}) {
    EXPECT_FALSE(ParseDuration(bad).has_value()) << bad;
  }
}

TEST(JsonOutTest, EscapesWhatJsonMust) {
  std::string out;
  const std::string text("a\"\\\n\x01\0é𠮷", 12);
  json_out::AppendString(out, text);
  const boost::json::value read = boost::json::parse(out);
  EXPECT_EQ(std::string(read.as_string()), text);
  out.clear();
  json_out::AppendString(out, "bad \xff\xfe bytes");
  boost::json::error_code error;
  boost::json::parse(out, error);
  EXPECT_FALSE(error);
}

TEST(RawJsonTest, CutsBytesAsTheyAre) {
  const RawJson raw(
      R"( {"a" : [ {"x":1.0 , "y":"}]"}, 2 ,"s\"" ] , "b":{ "k\u0065y":  -1e5 } , "a2":null} )");
  const auto elements = raw.Member("a").Elements();
  ASSERT_EQ(elements.size(), 3u);
  EXPECT_EQ(elements[0].text(), R"({"x":1.0 , "y":"}]"})");
  EXPECT_EQ(elements[1].text(), "2");
  EXPECT_EQ(elements[2].text(), R"("s\"")");
  EXPECT_EQ(raw.Member("b").Member("key").text(), "-1e5");
  EXPECT_EQ(raw.Member("a2").text(), "null");
  EXPECT_TRUE(raw.Member("zzz").text().empty());
  EXPECT_EQ(RawJson(R"({"a":1,"a":2})").Member("a").text(), "2");
}

TEST(Base64Test, RoundTripsAndRefuses) {
  for (const char* text : {"", "a", "ab", "abc", "abcd"}) EXPECT_EQ(Base64Decode(Base64Encode(text)), text);
  EXPECT_EQ(Base64Encode("abcd"), "YWJjZA==");
  for (const char* bad : {"a", "a===", "a b=", "YW=J", "ä"})
    EXPECT_FALSE(Base64Decode(bad).has_value()) << bad;
}

// ---- Answers ----

struct Event {
  std::string type;
  boost::json::value data;
};

// Splits a stream of server-sent events; fails where a data line is no JSON.
std::vector<Event> Events(const std::string& text) {
  std::vector<Event> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    Event event;
    std::string block = text.substr(at, end - at);
    if (block.substr(0, 7) == "event: ") {
      event.type = block.substr(7, block.find('\n') - 7);
      block = block.substr(block.find('\n') + 1);
    }
    EXPECT_EQ(block.substr(0, 6), "data: ");
    if (block != "data: [DONE]") event.data = boost::json::parse(block.substr(6));
    out.push_back(std::move(event));
    at = end + 2;
  }
  return out;
}

// Reasoning, text, then two tool calls with their arguments in pieces.
std::string Play(AnswerEncoder& encoder) {
  std::string out;
  Placement placement;
  placement.request_id = "req-00ff";
  encoder.Placed(placement);
  encoder.Started({.prompt_tokens = 12, .cached_tokens = 4}, out);
  const auto chunk = [&](auto fill) {
    ChunkEvent event;
    fill(event);
    encoder.Chunk(event, out);
  };
  chunk([](ChunkEvent& c) { c.reasoning = "hm"; });
  chunk([](ChunkEvent& c) { c.text = "so \"é"; });
  chunk([](ChunkEvent& c) { c.text = "𠮷\n"; });
  chunk([](ChunkEvent& c) { c.tool_calls = {{0, "call_a", "add", ""}}; });
  chunk([](ChunkEvent& c) { c.tool_calls = {{0, "", "", "{\"a\":\n"}}; });
  chunk([](ChunkEvent& c) { c.tool_calls = {{0, "", "", "1}"}}; });
  chunk([](ChunkEvent& c) { c.tool_calls = {{1, "call_b", "sub", "{}"}}; });
  FinishedEvent finished;
  finished.reason = "tool_calls";
  finished.prompt_tokens = 12;
  finished.cached_tokens = 4;
  finished.completion_tokens = 7;
  encoder.Finished(finished, out);
  return out;
}

TEST(AnthropicAnswerTest, EveryBlockHasPlaceholderStartAndStop) {
  const auto events =
      Events(Play(*NewAnthropicEncoder({.stream = true, .reports_cache = false, .model = "m"})));
  ASSERT_EQ(events.front().type, "message_start");
  EXPECT_EQ(events.front().data.at("message").at("usage").at("input_tokens"), 12);
  int open = -1, next = 0;
  std::vector<std::string> kinds;
  std::string arguments;
  for (const auto& event : events) {
    EXPECT_EQ(event.data.at("type").as_string(), event.type);
    if (event.type == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = static_cast<int>(event.data.at("index").as_int64());
      EXPECT_EQ(open, next++);
      const auto& block = event.data.at("content_block");
      kinds.emplace_back(block.at("type").as_string());
      EXPECT_TRUE(kinds.back() != "tool_use" || block.at("input").as_object().empty());
      EXPECT_TRUE(kinds.back() != "text" || block.at("text") == "");
    } else if (event.type == "content_block_delta") {
      EXPECT_EQ(event.data.at("index"), open);
      if (const auto* part = event.data.at("delta").as_object().if_contains("partial_json");
          part && open == 2) {
        arguments += std::string(part->as_string());
      }
    } else if (event.type == "content_block_stop") {
      EXPECT_EQ(event.data.at("index"), open);
      open = -1;
    }
  }
  EXPECT_EQ(open, -1);
  EXPECT_EQ(kinds, (std::vector<std::string>{"thinking", "text", "tool_use", "tool_use"}));
  EXPECT_EQ(arguments, "{\"a\":\n1}");
  EXPECT_EQ(events[events.size() - 2].type, "message_delta");
  EXPECT_EQ(events[events.size() - 2].data.at("delta").at("stop_reason"), "tool_use");
  EXPECT_EQ(events[events.size() - 2].data.at("usage").at("output_tokens"), 7);
  EXPECT_EQ(events.back().type, "message_stop");
}

TEST(AnthropicAnswerTest, CachedTokensAreApartOnlyWhereTheClientCaches) {
  const auto events =
      Events(Play(*NewAnthropicEncoder({.stream = true, .reports_cache = true, .model = "m"})));
  const auto& usage = events.front().data.at("message").at("usage");
  EXPECT_EQ(usage.at("input_tokens"), 8);
  EXPECT_EQ(usage.at("cache_read_input_tokens"), 4);
}

TEST(AnthropicAnswerTest, WholeHasTheSameBlocks) {
  const auto body =
      boost::json::parse(Play(*NewAnthropicEncoder({.stream = false, .reports_cache = false, .model = "m"})));
  ASSERT_EQ(body.at("content").as_array().size(), 4u);
  EXPECT_EQ(body.at("content").at(1).at("text"), "so \"é𠮷\n");
  EXPECT_EQ(body.at("content").at(2).at("input").at("a"), 1);
  EXPECT_EQ(body.at("usage").at("input_tokens"), 12);
}

TEST(OllamaAnswerTest, OneLineEachAndWholeToolCalls) {
  const std::string text = Play(*NewOllamaEncoder({.chat = true, .stream = true, .model = "m:latest"}));
  std::string joined;
  size_t calls = 0;
  std::vector<boost::json::value> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(boost::json::parse(text.substr(at, end - at)));
    const auto& message = lines.back().at("message").as_object();
    joined += std::string(message.at("content").as_string());
    if (const auto* found = message.if_contains("tool_calls")) {
      calls += found->as_array().size();
      EXPECT_EQ(found->at(0).at("function").at("arguments").at("a"), 1);
    }
    at = end + 1;
  }
  EXPECT_EQ(joined, "so \"é𠮷\n");
  EXPECT_EQ(calls, 2u);
  EXPECT_EQ(lines.back().at("done"), true);
  EXPECT_EQ(lines.back().at("eval_count"), 7);
}

TEST(OpenAiAnswerTest, ToolCallsAndReasoningStream) {
  OpenAiAnswerOptions options;
  options.stream = true;
  options.model = "m";
  const auto events = Events(Play(*NewOpenAiEncoder(options)));
  std::string text, reasoning, arguments;
  for (const auto& event : events) {
    if (event.data.is_null()) continue;
    const auto& delta = event.data.at("choices").at(0).at("delta").as_object();
    if (const auto* v = delta.if_contains("content")) text += std::string(v->as_string());
    if (const auto* v = delta.if_contains("reasoning_content")) reasoning += std::string(v->as_string());
    if (const auto* v = delta.if_contains("tool_calls"); v && v->at(0).at("index") == 0) {
      arguments += std::string(v->at(0).at("function").at("arguments").as_string());
    }
  }
  EXPECT_EQ(text, "so \"é𠮷\n");
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(arguments, "{\"a\":\n1}");
  EXPECT_EQ(events[events.size() - 2].data.at("choices").at(0).at("finish_reason"), "tool_calls");
}

TEST(OpenAiAnswerTest, ReasoningTokensAreCounted) {
  OpenAiAnswerOptions options;
  const auto encoder = NewOpenAiEncoder(options);
  std::string out;
  ChunkEvent thought{.reasoning = "hm", .tokens = 3};
  ChunkEvent text{.text = "ok", .tokens = 2};
  encoder->Chunk(thought, out);
  encoder->Chunk(text, out);
  encoder->Finished({}, out);
  EXPECT_EQ(boost::json::parse(out).at("usage").at("completion_tokens_details").at("reasoning_tokens"), 3);
}

TEST(OpenAiAnswerTest, LogprobsKeepRawBytes) {
  for (const bool chat : {true, false}) {
    for (const bool stream : {true, false}) {
      OpenAiAnswerOptions options;
      options.chat = chat;
      options.stream = stream;
      const auto encoder = NewOpenAiEncoder(options);
      std::string out;
      encoder->Started({}, out);
      out.clear();
      ChunkEvent chunk;
      chunk.text = "é";
      chunk.logprobs = {{5, "\xc3", -0.5f, {{5, "\xc3", -0.5f}, {6, "x", -INFINITY}}},
                        {7, "\xa9", -0.25f, {}}};
      encoder->Chunk(chunk, out);
      if (!stream) encoder->Finished({}, out);
      const auto body = stream ? Events(out)[0].data : boost::json::parse(out);
      const auto& content = body.at("choices").at(0).at("logprobs").at("content");
      EXPECT_EQ(content.at(0).at("bytes").at(0), 0xc3);
      EXPECT_EQ(content.at(1).at("bytes").at(0), 0xa9);
      EXPECT_TRUE(content.at(0).at("top_logprobs").at(1).at("logprob").is_null());
    }
  }
}

TEST(ResponsesAnswerTest, EventsAreNumberedAndItemsEnd) {
  const auto events = Events(Play(*NewResponsesEncoder({.stream = true, .model = "m"})));
  int64_t number = 0;
  int added = 0, done = 0;
  for (const auto& event : events) {
    EXPECT_EQ(event.data.at("sequence_number"), number++);
    EXPECT_EQ(event.data.at("type").as_string(), event.type);
    added += event.type == "response.output_item.added";
    done += event.type == "response.output_item.done";
  }
  EXPECT_EQ(added, 4);
  EXPECT_EQ(done, 4);
  const auto& response = events.back().data.at("response");
  EXPECT_EQ(events.back().type, "response.completed");
  EXPECT_EQ(response.at("output").at(1).at("content").at(0).at("text"), "so \"é𠮷\n");
  EXPECT_EQ(response.at("output").at(2).at("arguments"), "{\"a\":\n1}");
  const auto whole = boost::json::parse(Play(*NewResponsesEncoder({.stream = false, .model = "m"})));
  EXPECT_EQ(whole.at("output"), response.at("output"));
}

TEST(ErrorsTest, EachDialectHasItsShape) {
  const auto status = RetryableError(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                                     "busy\n\x1b[31m", "Wait", std::chrono::milliseconds(10));
  const auto openai = ErrorReply(Dialect::kOpenAi, status);
  EXPECT_EQ(openai.status, 429);
  EXPECT_EQ(boost::json::parse(openai.body).at("error").at("code"), "queue_full");
  EXPECT_EQ(boost::json::parse(ErrorReply(Dialect::kAnthropic, status).body).at("error").at("type"),
            "rate_limit_error");
  EXPECT_TRUE(boost::json::parse(ErrorReply(Dialect::kOllama, status).body).at("error").is_string());
  EXPECT_EQ(openai.body.find('\x1b'), std::string::npos);
  const auto field = ErrorReply(Dialect::kOpenAi, FieldError("temperature", "must be a number"));
  EXPECT_EQ(boost::json::parse(field.body).at("error").at("param"), "temperature");
}

}  // namespace
}  // namespace rumbo
