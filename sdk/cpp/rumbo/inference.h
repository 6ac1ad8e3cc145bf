#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rumbo/error.h"
#include "rumbo/types.h"

// Requests to models and what comes back.
namespace rumbo::inline sdk {

// How the next token is chosen; absent: the engine's documented defaults. A value outside its range is an
// error, never clamped.
struct Sampling {
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> typical_p;
  std::optional<float> repeat_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<uint32_t> repeat_last_n;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::map<int32_t, float> logit_bias;
  std::optional<uint32_t> logprobs;
  std::optional<uint32_t> min_tokens;
  bool ignore_eos = false;
  // At most one of the three.
  std::string json_schema;
  std::string grammar;
  std::string regex;
};

// Who asks and how urgent it is.
struct RequestOptions {
  std::string priority;  // "interactive", "normal", "batch"; "": normal
  std::string app;       // "": the one of ConnectOptions
  Workload workload;
  Contract contract;
  std::optional<int64_t> keep_alive_s;
  std::string idempotency_key;
  std::vector<std::pair<std::string, float>> adapters;  // LoRA adapters by name, with their scale
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments_json;
};

struct Tool {
  std::string name;
  std::string description;
  std::string parameters_json_schema;
};

// A piece of a message: text, or an image or sound with its MIME type.
struct Part {
  enum class Kind { kText, kImage, kAudio };
  Kind kind = Kind::kText;
  std::string data;  // the text, or the bytes
  std::string mime_type;
};

struct Message {
  std::string role;  // "system", "user", "assistant", "tool"
  std::vector<Part> content;
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;
  std::string name;
  std::string reasoning;
};

Message System(std::string text);
Message User(std::string text);
Message Assistant(std::string text);

struct ChatRequest {
  std::string model;
  std::vector<Message> messages;
  std::vector<Tool> tools;
  std::string tool_choice;  // "auto", "none", "required"
  bool parallel_tool_calls = false;
  Sampling sampling;
  RequestOptions options;
  std::optional<bool> thinking;
  std::map<std::string, std::string> template_args;
  bool continue_final_message = false;
};

struct GenerateRequest {
  std::string model;
  std::string prompt;
  std::vector<int32_t> tokens;  // used instead of `prompt` where not empty
  Sampling sampling;
  RequestOptions options;
};

// The prompt was accepted and placed.
struct Started {
  std::string request_id;
  std::string instance_id;
  std::string engine;
  std::string backend;
  std::vector<std::string> devices;
  std::string placement_reason;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  Wire wire;
};

struct TokenLogprob {
  int32_t id = 0;
  std::string piece;  // raw bytes
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct ToolCallDelta {
  uint32_t index = 0;
  std::string id;
  std::string name;
  std::string arguments_json;
};

// A piece of the answer, always whole UTF-8 characters.
struct Chunk {
  std::string text;
  std::string reasoning;
  uint32_t tokens = 0;
  std::vector<TokenLogprob> logprobs;
  std::vector<ToolCallDelta> tool_calls;
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t drafted_tokens = 0;
  uint32_t accepted_tokens = 0;
};

// Milliseconds, by the daemon's clock.
struct Timings {
  double queue_ms = 0;
  double ttft_ms = 0;
  double prompt_ms = 0;
  double decode_ms = 0;
  double total_ms = 0;
  double decode_tok_s = 0;
};

struct Finished {
  std::string reason;  // "stop", "stop_string", "length", "tool_calls", "context"
  Usage usage;
  Timings timings;
  std::string stop_string;
  Wire wire;
};

// A whole answer.
struct Answer {
  std::string text;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  Started started;
  Finished finished;
};

struct EmbedRequest {
  std::string model;
  std::vector<std::string> inputs;
  std::string pooling;
  std::optional<bool> normalize;
  uint32_t dimensions = 0;
  RequestOptions options;
};

struct Embeddings {
  std::vector<std::vector<float>> vectors;
  Usage usage;
  Wire wire;
};

struct RerankRequest {
  std::string model;
  std::string query;
  std::vector<std::string> documents;
  uint32_t top_n = 0;
  RequestOptions options;
};

struct Ranking {
  struct Item {
    uint32_t index = 0;
    float score = 0;
  };
  std::vector<Item> items;  // best first
  Usage usage;
  Wire wire;
};

struct TokenizeRequest {
  std::string model;
  std::string text;
  std::optional<bool> add_special;
  std::optional<bool> parse_special;
};

struct Tokens {
  std::vector<int32_t> ids;
  std::vector<std::string> pieces;  // raw bytes
  Wire wire;
};

}  // namespace rumbo::inline sdk
