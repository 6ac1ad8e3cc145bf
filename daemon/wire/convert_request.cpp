#include "daemon/wire/convert.h"

namespace rumbo {
namespace {

// Optional scalar fields have one name on both sides.
#define RUMBO_GET(field) \
  if (proto.has_##field()) value.field = proto.field()
#define RUMBO_SET(field) \
  if (value.field) proto->set_##field(*value.field)

ChatMessage FromProto(const v1::Message& proto) {
  ChatMessage value;
  value.role = proto.role();
  for (const auto& part : proto.content()) {
    ContentPart& out = value.content.emplace_back();
    if (part.has_image() || part.has_audio()) {
      const v1::Media& media = part.has_image() ? part.image() : part.audio();
      out.kind = part.has_image() ? ContentPart::Kind::kImage : ContentPart::Kind::kAudio;
      out.data = media.data();
      out.mime_type = media.mime_type();
    } else {
      out.text = part.text();
    }
  }
  for (const auto& call : proto.tool_calls())
    value.tool_calls.push_back({call.id(), call.name(), call.arguments_json()});
  value.tool_call_id = proto.tool_call_id();
  value.name = proto.name();
  value.reasoning = proto.reasoning();
  return value;
}

void ToProto(const ChatMessage& value, v1::Message* proto) {
  proto->set_role(value.role);
  for (const ContentPart& part : value.content) {
    v1::ContentPart* out = proto->add_content();
    if (part.kind == ContentPart::Kind::kText) {
      out->set_text(part.text);
      continue;
    }
    v1::Media* media = part.kind == ContentPart::Kind::kImage ? out->mutable_image() : out->mutable_audio();
    media->set_data(part.data);
    media->set_mime_type(part.mime_type);
  }
  for (const ToolCall& call : value.tool_calls) {
    v1::ToolCall* out = proto->add_tool_calls();
    out->set_id(call.id);
    out->set_name(call.name);
    out->set_arguments_json(call.arguments_json);
  }
  proto->set_tool_call_id(value.tool_call_id);
  proto->set_name(value.name);
  proto->set_reasoning(value.reasoning);
}

const char* PriorityWord(Priority priority) {
  switch (priority) {
    case Priority::kInteractive:
      return "interactive";
    case Priority::kNormal:
      return "normal";
    case Priority::kBatch:
      return "batch";
  }
  return "normal";
}

}  // namespace

SamplingParams FromProto(const v1::Sampling& proto) {
  SamplingParams value;
  RUMBO_GET(max_tokens);
  RUMBO_GET(temperature);
  RUMBO_GET(top_p);
  RUMBO_GET(top_k);
  RUMBO_GET(min_p);
  RUMBO_GET(typical_p);
  RUMBO_GET(repeat_penalty);
  RUMBO_GET(presence_penalty);
  RUMBO_GET(frequency_penalty);
  RUMBO_GET(repeat_last_n);
  RUMBO_GET(seed);
  RUMBO_GET(logprobs);
  RUMBO_GET(min_tokens);
  RUMBO_GET(dry_multiplier);
  RUMBO_GET(dry_base);
  RUMBO_GET(dry_allowed_length);
  RUMBO_GET(xtc_probability);
  RUMBO_GET(xtc_threshold);
  RUMBO_GET(mirostat);
  RUMBO_GET(mirostat_tau);
  RUMBO_GET(mirostat_eta);
  value.stop.assign(proto.stop().begin(), proto.stop().end());
  for (const auto& bias : proto.logit_bias()) value.logit_bias.emplace_back(bias.token(), bias.bias());
  value.ignore_eos = proto.ignore_eos();
  value.json_schema = proto.json_schema();
  value.grammar = proto.grammar();
  value.regex = proto.regex();
  return value;
}

void ToProto(const SamplingParams& value, v1::Sampling* proto) {
  RUMBO_SET(max_tokens);
  RUMBO_SET(temperature);
  RUMBO_SET(top_p);
  RUMBO_SET(top_k);
  RUMBO_SET(min_p);
  RUMBO_SET(typical_p);
  RUMBO_SET(repeat_penalty);
  RUMBO_SET(presence_penalty);
  RUMBO_SET(frequency_penalty);
  RUMBO_SET(repeat_last_n);
  RUMBO_SET(seed);
  RUMBO_SET(logprobs);
  RUMBO_SET(min_tokens);
  RUMBO_SET(dry_multiplier);
  RUMBO_SET(dry_base);
  RUMBO_SET(dry_allowed_length);
  RUMBO_SET(xtc_probability);
  RUMBO_SET(xtc_threshold);
  RUMBO_SET(mirostat);
  RUMBO_SET(mirostat_tau);
  RUMBO_SET(mirostat_eta);
  for (const std::string& stop : value.stop) proto->add_stop(stop);
  for (const auto& [token, bias] : value.logit_bias) {
    v1::LogitBias* out = proto->add_logit_bias();
    out->set_token(token);
    out->set_bias(bias);
  }
  proto->set_ignore_eos(value.ignore_eos);
  if (!value.json_schema.empty()) proto->set_json_schema(value.json_schema);
  if (!value.grammar.empty()) proto->set_grammar(value.grammar);
  if (!value.regex.empty()) proto->set_regex(value.regex);
}

void ToProto(const ChatInput& value, engine::v1::ChatInput* proto) {
  for (const ChatMessage& message : value.messages) ToProto(message, proto->add_messages());
  for (const Tool& tool : value.tools) {
    v1::Tool* out = proto->add_tools();
    out->set_name(tool.name);
    out->set_description(tool.description);
    out->set_parameters_json_schema(tool.parameters_json_schema);
  }
  proto->set_tool_choice(value.tool_choice);
  proto->set_parallel_tool_calls(value.parallel_tool_calls);
  RUMBO_SET(thinking);
  for (const auto& [key, json] : value.template_args) (*proto->mutable_template_args())[key] = json;
  proto->set_continue_final_message(value.continue_final_message);
}

ChatInput FromProto(const v1::ChatRequest& proto) {
  ChatInput value;
  for (const auto& message : proto.messages()) value.messages.push_back(FromProto(message));
  for (const auto& tool : proto.tools()) {
    value.tools.push_back({tool.name(), tool.description(), tool.parameters_json_schema()});
  }
  value.tool_choice = proto.tool_choice();
  value.parallel_tool_calls = proto.parallel_tool_calls();
  RUMBO_GET(thinking);
  for (const auto& [key, json] : proto.template_args()) value.template_args[key] = json;
  value.continue_final_message = proto.continue_final_message();
  return value;
}

void ToProto(const GenerateRequest& value, engine::v1::GenerateRequest* proto) {
  switch (value.input.kind) {
    case GenerateInput::Kind::kPrompt:
      proto->set_prompt(value.input.prompt);
      break;
    case GenerateInput::Kind::kTokens:
      proto->mutable_tokens()->mutable_ids()->Add(value.input.tokens.begin(), value.input.tokens.end());
      break;
    case GenerateInput::Kind::kChat:
      ToProto(value.input.chat, proto->mutable_chat());
      break;
  }
  ToProto(value.sampling, proto->mutable_sampling());
  proto->set_owner(value.owner);
  proto->set_priority(PriorityWord(value.priority));
  for (const auto& [name, scale] : value.adapters) {
    v1::Adapter* out = proto->add_adapters();
    out->set_name(name);
    out->set_scale(scale);
  }
}

StartedEvent FromProto(const v1::Started& proto) { return {proto.prompt_tokens(), proto.cached_tokens()}; }

void MoveFromProto(v1::Chunk* proto, ChunkEvent* value) {
  value->text = std::move(*proto->mutable_text());
  value->reasoning = std::move(*proto->mutable_reasoning());
  value->tokens = proto->tokens();
  value->logprobs.clear();
  for (auto& logprob : *proto->mutable_logprobs()) {
    TokenLogprob& out = value->logprobs.emplace_back();
    out.id = logprob.id();
    out.piece = std::move(*logprob.mutable_piece());
    out.logprob = logprob.logprob();
    for (auto& top : *logprob.mutable_top())
      out.top.push_back({top.id(), std::move(*top.mutable_piece()), top.logprob()});
  }
  value->tool_calls.clear();
  for (const auto& call : proto->tool_calls()) {
    value->tool_calls.push_back({call.index(), call.id(), call.name(), call.arguments_json()});
  }
}

void MoveToProto(ChunkEvent* value, v1::Chunk* proto) {
  proto->Clear();
  proto->set_text(std::move(value->text));
  if (!value->reasoning.empty()) proto->set_reasoning(std::move(value->reasoning));
  proto->set_tokens(value->tokens);
  for (TokenLogprob& logprob : value->logprobs) {
    v1::TokenLogprob* out = proto->add_logprobs();
    out->set_id(logprob.id);
    out->set_piece(std::move(logprob.piece));
    out->set_logprob(logprob.logprob);
    for (TokenAlternative& top : logprob.top) {
      v1::Alternative* alternative = out->add_top();
      alternative->set_id(top.id);
      alternative->set_piece(std::move(top.piece));
      alternative->set_logprob(top.logprob);
    }
  }
  for (const ToolCallDelta& call : value->tool_calls) {
    v1::ToolCallDelta* out = proto->add_tool_calls();
    out->set_index(call.index);
    out->set_id(call.id);
    out->set_name(call.name);
    out->set_arguments_json(call.arguments_json);
  }
}

FinishedEvent FromProto(const v1::Finished& proto) {
  FinishedEvent value;
  value.reason = proto.reason();
  value.stop_string = proto.stop_string();
  value.prompt_tokens = proto.usage().prompt_tokens();
  value.cached_tokens = proto.usage().cached_tokens();
  value.completion_tokens = proto.usage().completion_tokens();
  value.drafted_tokens = proto.usage().drafted_tokens();
  value.accepted_tokens = proto.usage().accepted_tokens();
  value.queue_ms = proto.timings().queue_ms();
  value.ttft_ms = proto.timings().ttft_ms();
  value.prompt_ms = proto.timings().prompt_ms();
  value.decode_ms = proto.timings().decode_ms();
  value.total_ms = proto.timings().total_ms();
  value.decode_tok_s = proto.timings().decode_tok_s();
  return value;
}

void ToProto(const FinishedEvent& value, v1::Finished* proto) {
  proto->set_reason(value.reason);
  proto->set_stop_string(value.stop_string);
  v1::Usage* usage = proto->mutable_usage();
  usage->set_prompt_tokens(value.prompt_tokens);
  usage->set_cached_tokens(value.cached_tokens);
  usage->set_completion_tokens(value.completion_tokens);
  usage->set_drafted_tokens(value.drafted_tokens);
  usage->set_accepted_tokens(value.accepted_tokens);
  v1::Timings* timings = proto->mutable_timings();
  timings->set_queue_ms(value.queue_ms);
  timings->set_ttft_ms(value.ttft_ms);
  timings->set_prompt_ms(value.prompt_ms);
  timings->set_decode_ms(value.decode_ms);
  timings->set_total_ms(value.total_ms);
  timings->set_decode_tok_s(value.decode_tok_s);
}

EngineSettings FromProto(const v1::Settings& proto) {
  EngineSettings value;
  RUMBO_GET(context_total);
  RUMBO_GET(context_per_session);
  RUMBO_GET(sessions);
  RUMBO_GET(threads);
  RUMBO_GET(threads_batch);
  RUMBO_GET(batch);
  RUMBO_GET(ubatch);
  RUMBO_GET(gpu_layers);
  value.kv_type_k = proto.kv_type_k();
  value.kv_type_v = proto.kv_type_v();
  value.flash_attention = proto.flash_attention();
  RUMBO_GET(mmap);
  RUMBO_GET(kv_unified);
  RUMBO_GET(swa_full);
  RUMBO_GET(draft_tokens);
  RUMBO_GET(host_cache_bytes);
  RUMBO_GET(poll);
  for (const auto& [key, text] : proto.extra()) value.extra[key] = text;
  return value;
}

void ToProto(const EngineSettings& value, v1::Settings* proto) {
  RUMBO_SET(context_total);
  RUMBO_SET(context_per_session);
  RUMBO_SET(sessions);
  RUMBO_SET(threads);
  RUMBO_SET(threads_batch);
  RUMBO_SET(batch);
  RUMBO_SET(ubatch);
  RUMBO_SET(gpu_layers);
  proto->set_kv_type_k(value.kv_type_k);
  proto->set_kv_type_v(value.kv_type_v);
  proto->set_flash_attention(value.flash_attention);
  RUMBO_SET(mmap);
  RUMBO_SET(kv_unified);
  RUMBO_SET(swa_full);
  RUMBO_SET(draft_tokens);
  RUMBO_SET(host_cache_bytes);
  RUMBO_SET(poll);
  for (const auto& [key, text] : value.extra) (*proto->mutable_extra())[key] = text;
}

MemoryItem FromProto(const v1::MemoryItem& proto) {
  return {proto.pool(), proto.what(), proto.bytes(), proto.source()};
}

void ToProto(const MemoryItem& value, v1::MemoryItem* proto) {
  proto->set_pool(value.pool);
  proto->set_what(value.what);
  proto->set_bytes(value.bytes);
  proto->set_source(value.source);
}

Workload FromProto(const v1::Workload& proto) {
  Workload value;
  RUMBO_GET(sessions);
  RUMBO_GET(context);
  RUMBO_GET(prompt_tokens);
  RUMBO_GET(answer_tokens);
  RUMBO_GET(shared_prefix_tokens);
  value.objective = proto.objective();
  RUMBO_GET(draft_acceptance);
  return value;
}

void ToProto(const Workload& value, v1::Workload* proto) {
  RUMBO_SET(sessions);
  RUMBO_SET(context);
  RUMBO_SET(prompt_tokens);
  RUMBO_SET(answer_tokens);
  RUMBO_SET(shared_prefix_tokens);
  proto->set_objective(value.objective);
  RUMBO_SET(draft_acceptance);
}

Contract FromProto(const v1::Contract& proto) {
  Contract value;
  value.device_kind = proto.device_kind();
  RUMBO_GET(min_context);
  RUMBO_GET(min_tokens_per_s);
  value.local_only = proto.local_only();
  return value;
}

PlanOverrides FromProto(const v1::PlanOverrides& proto) {
  PlanOverrides value;
  value.engine = proto.engine();
  value.device = proto.device();
  RUMBO_GET(threads);
  value.kv_type = proto.kv_type();
  RUMBO_GET(gpu_layers);
  value.force = proto.force();
  value.variant = proto.variant();
  value.build = proto.build();
  value.pooling = proto.pooling();
  RUMBO_GET(draft_tokens);
  value.draft_model = proto.draft_model();
  return value;
}

#undef RUMBO_GET
#undef RUMBO_SET

}  // namespace rumbo
