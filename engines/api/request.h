#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What the daemon's front doors (gRPC, HTTP dialects) decode into and engines run: plain values with no wire
// format in them. Meanings, units and ranges are those of rumbo.v1 (proto/rumbo/v1/inference.proto).
namespace rumbo {

struct SamplingParams {
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
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint32_t> logprobs;
  std::optional<uint32_t> min_tokens;
  bool ignore_eos = false;
  std::string json_schema;  // at most one of the three is set
  std::string grammar;
  std::string regex;
  std::optional<float> dry_multiplier;
  std::optional<float> dry_base;
  std::optional<uint32_t> dry_allowed_length;
  std::optional<float> xtc_probability;
  std::optional<float> xtc_threshold;
  std::optional<uint32_t> mirostat;
  std::optional<float> mirostat_tau;
  std::optional<float> mirostat_eta;
};

struct ContentPart {
  enum class Kind { kText, kImage, kAudio };
  Kind kind = Kind::kText;
  std::string text;  // kText
  std::string data;  // kImage, kAudio: raw bytes
  std::string mime_type;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments_json;  // kept byte for byte
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::vector<ContentPart> content;
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;
  std::string name;
  std::string reasoning;
};

struct Tool {
  std::string name;
  std::string description;
  std::string parameters_json_schema;  // kept byte for byte
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  std::vector<Tool> tools;
  std::string tool_choice;  // "", "auto", "none", "required"
  bool parallel_tool_calls = false;
  std::optional<bool> thinking;
  std::map<std::string, std::string> template_args;
  bool continue_final_message = false;
};

struct GenerateInput {
  enum class Kind { kPrompt, kTokens, kChat };
  Kind kind = Kind::kPrompt;
  std::string prompt;
  std::vector<int32_t> tokens;
  ChatInput chat;
};

enum class Priority { kInteractive, kNormal, kBatch };

struct GenerateRequest {
  GenerateInput input;
  SamplingParams sampling;
  std::string owner;  // requests of different owners never share cached prompts
  Priority priority = Priority::kNormal;
  std::vector<std::pair<std::string, float>> adapters;
};

// ---- Events of one answer, in order: one Started, any number of Chunk, one Finished. ----

struct StartedEvent {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
};

struct TokenAlternative {
  int32_t id = 0;
  std::string piece;  // raw bytes
  float logprob = 0;
};

struct TokenLogprob {
  int32_t id = 0;
  std::string piece;
  float logprob = 0;
  std::vector<TokenAlternative> top;
};

struct ToolCallDelta {
  uint32_t index = 0;
  std::string id;    // set in the first delta of a call
  std::string name;  // likewise
  std::string arguments_json;
};

struct ChunkEvent {
  std::string text;       // complete UTF-8 characters
  std::string reasoning;  // likewise
  uint32_t tokens = 0;
  std::vector<TokenLogprob> logprobs;
  std::vector<ToolCallDelta> tool_calls;
};

struct FinishedEvent {
  std::string reason;  // "stop", "stop_string", "length", "tool_calls", "context"
  std::string stop_string;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t drafted_tokens = 0;
  uint32_t accepted_tokens = 0;
  // Milliseconds.
  double queue_ms = 0;
  double ttft_ms = 0;
  double prompt_ms = 0;
  double decode_ms = 0;
  double total_ms = 0;
  double decode_tok_s = 0;
};

}  // namespace rumbo
