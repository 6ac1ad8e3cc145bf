#include "engines/llamacpp/service/convert.h"

namespace rumbo {

EngineSettings FromProto(const v1::Settings& p) {
  EngineSettings s;
  if (p.has_context_total()) s.context_total = p.context_total();
  if (p.has_context_per_session()) s.context_per_session = p.context_per_session();
  if (p.has_sessions()) s.sessions = p.sessions();
  if (p.has_threads()) s.threads = p.threads();
  if (p.has_threads_batch()) s.threads_batch = p.threads_batch();
  if (p.has_batch()) s.batch = p.batch();
  if (p.has_ubatch()) s.ubatch = p.ubatch();
  if (p.has_gpu_layers()) s.gpu_layers = p.gpu_layers();
  s.kv_type_k = p.kv_type_k();
  s.kv_type_v = p.kv_type_v();
  s.flash_attention = p.flash_attention();
  if (p.has_mmap()) s.mmap = p.mmap();
  if (p.has_kv_unified()) s.kv_unified = p.kv_unified();
  if (p.has_swa_full()) s.swa_full = p.swa_full();
  if (p.has_draft_tokens()) s.draft_tokens = p.draft_tokens();
  if (p.has_host_cache_bytes()) s.host_cache_bytes = p.host_cache_bytes();
  if (p.has_poll()) s.poll = p.poll();
  s.extra.insert(p.extra().begin(), p.extra().end());
  return s;
}

v1::Settings ToProto(const EngineSettings& s) {
  v1::Settings p;
  if (s.context_total) p.set_context_total(*s.context_total);
  if (s.context_per_session) p.set_context_per_session(*s.context_per_session);
  if (s.sessions) p.set_sessions(*s.sessions);
  if (s.threads) p.set_threads(*s.threads);
  if (s.threads_batch) p.set_threads_batch(*s.threads_batch);
  if (s.batch) p.set_batch(*s.batch);
  if (s.ubatch) p.set_ubatch(*s.ubatch);
  if (s.gpu_layers) p.set_gpu_layers(*s.gpu_layers);
  p.set_kv_type_k(s.kv_type_k);
  p.set_kv_type_v(s.kv_type_v);
  p.set_flash_attention(s.flash_attention);
  if (s.mmap) p.set_mmap(*s.mmap);
  if (s.kv_unified) p.set_kv_unified(*s.kv_unified);
  if (s.swa_full) p.set_swa_full(*s.swa_full);
  if (s.draft_tokens) p.set_draft_tokens(*s.draft_tokens);
  if (s.host_cache_bytes) p.set_host_cache_bytes(*s.host_cache_bytes);
  if (s.poll) p.set_poll(*s.poll);
  for (const auto& [key, value] : s.extra) (*p.mutable_extra())[key] = value;
  return p;
}

SamplingParams FromProto(const v1::Sampling& p) {
  SamplingParams s;
#define RUMBO_COPY(field) \
  if (p.has_##field()) s.field = p.field()
  RUMBO_COPY(max_tokens);
  RUMBO_COPY(temperature);
  RUMBO_COPY(top_p);
  RUMBO_COPY(top_k);
  RUMBO_COPY(min_p);
  RUMBO_COPY(typical_p);
  RUMBO_COPY(repeat_penalty);
  RUMBO_COPY(presence_penalty);
  RUMBO_COPY(frequency_penalty);
  RUMBO_COPY(repeat_last_n);
  RUMBO_COPY(seed);
  RUMBO_COPY(logprobs);
  RUMBO_COPY(min_tokens);
  RUMBO_COPY(dry_multiplier);
  RUMBO_COPY(dry_base);
  RUMBO_COPY(dry_allowed_length);
  RUMBO_COPY(xtc_probability);
  RUMBO_COPY(xtc_threshold);
  RUMBO_COPY(mirostat);
  RUMBO_COPY(mirostat_tau);
  RUMBO_COPY(mirostat_eta);
#undef RUMBO_COPY
  s.stop.assign(p.stop().begin(), p.stop().end());
  for (const auto& bias : p.logit_bias()) s.logit_bias.emplace_back(bias.token(), bias.bias());
  s.ignore_eos = p.ignore_eos();
  s.json_schema = p.json_schema();
  s.grammar = p.grammar();
  s.regex = p.regex();
  return s;
}

namespace {

ContentPart FromProto(const v1::ContentPart& p) {
  ContentPart part;
  if (p.has_image() || p.has_audio()) {
    part.kind = p.has_image() ? ContentPart::Kind::kImage : ContentPart::Kind::kAudio;
    const v1::Media& media = p.has_image() ? p.image() : p.audio();
    part.data = media.data();
    part.mime_type = media.mime_type();
  } else {
    part.text = p.text();
  }
  return part;
}

}  // namespace

ChatInput FromProto(const engine::v1::ChatInput& p) {
  ChatInput chat;
  for (const auto& m : p.messages()) {
    ChatMessage message;
    message.role = m.role();
    for (const auto& part : m.content()) message.content.push_back(FromProto(part));
    for (const auto& call : m.tool_calls())
      message.tool_calls.push_back({call.id(), call.name(), call.arguments_json()});
    message.tool_call_id = m.tool_call_id();
    message.name = m.name();
    message.reasoning = m.reasoning();
    chat.messages.push_back(std::move(message));
  }
  for (const auto& t : p.tools())
    chat.tools.push_back({t.name(), t.description(), t.parameters_json_schema()});
  chat.tool_choice = p.tool_choice();
  chat.parallel_tool_calls = p.parallel_tool_calls();
  if (p.has_thinking()) chat.thinking = p.thinking();
  chat.template_args.insert(p.template_args().begin(), p.template_args().end());
  chat.continue_final_message = p.continue_final_message();
  return chat;
}

Priority PriorityFromName(const std::string& name) {
  if (name == "interactive") return Priority::kInteractive;
  if (name == "batch") return Priority::kBatch;
  return Priority::kNormal;
}

void ToProto(ChunkEvent&& event, v1::Chunk* chunk) {
  chunk->set_text(std::move(event.text));
  if (!event.reasoning.empty()) chunk->set_reasoning(std::move(event.reasoning));
  chunk->set_tokens(event.tokens);
  for (TokenLogprob& l : event.logprobs) {
    auto* out = chunk->add_logprobs();
    out->set_id(l.id);
    out->set_piece(std::move(l.piece));
    out->set_logprob(l.logprob);
    for (TokenAlternative& t : l.top) {
      auto* top = out->add_top();
      top->set_id(t.id);
      top->set_piece(std::move(t.piece));
      top->set_logprob(t.logprob);
    }
  }
  for (ToolCallDelta& d : event.tool_calls) {
    auto* out = chunk->add_tool_calls();
    out->set_index(d.index);
    out->set_id(std::move(d.id));
    out->set_name(std::move(d.name));
    out->set_arguments_json(std::move(d.arguments_json));
  }
}

v1::Finished ToProto(const FinishedEvent& e) {
  v1::Finished p;
  p.set_reason(e.reason);
  p.set_stop_string(e.stop_string);
  v1::Usage* usage = p.mutable_usage();
  usage->set_prompt_tokens(e.prompt_tokens);
  usage->set_cached_tokens(e.cached_tokens);
  usage->set_completion_tokens(e.completion_tokens);
  usage->set_drafted_tokens(e.drafted_tokens);
  usage->set_accepted_tokens(e.accepted_tokens);
  v1::Timings* timings = p.mutable_timings();
  timings->set_queue_ms(e.queue_ms);
  timings->set_ttft_ms(e.ttft_ms);
  timings->set_prompt_ms(e.prompt_ms);
  timings->set_decode_ms(e.decode_ms);
  timings->set_total_ms(e.total_ms);
  timings->set_decode_tok_s(e.decode_tok_s);
  return p;
}

void ToProto(const EngineStats& s, engine::v1::GetStatsResponse* r) {
  r->set_running(s.running);
  r->set_waiting(s.waiting);
  r->set_kv_used(s.kv_used);
  r->set_kv_total(s.kv_total);
  r->set_prompt_tokens(s.prompt_tokens);
  r->set_cached_tokens(s.cached_tokens);
  r->set_generated_tokens(s.generated_tokens);
  r->set_drafted_tokens(s.drafted_tokens);
  r->set_accepted_tokens(s.accepted_tokens);
  r->set_step_ms(s.step_ms);
  r->set_prompt_tok_s(s.prompt_tok_s);
  r->set_decode_tok_s(s.decode_tok_s);
}

}  // namespace rumbo
