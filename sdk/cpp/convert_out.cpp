#include "sdk/cpp/convert.h"

namespace rumbo::inline sdk {
#define RUMBO_SET(field) out->set_##field(in.field)
#define RUMBO_SET_OPTIONAL(field) \
  if (in.field) out->set_##field(*in.field)

static void To(const Part& in, v1::ContentPart* out) {
  if (in.kind == Part::Kind::kText) {
    out->set_text(in.data);
    return;
  }
  v1::Media* media = in.kind == Part::Kind::kImage ? out->mutable_image() : out->mutable_audio();
  media->set_data(in.data);
  media->set_mime_type(in.mime_type);
}

static void To(const Message& in, v1::Message* out) {
  RUMBO_SET(role);
  for (const auto& part : in.content) To(part, out->add_content());
  for (const auto& call : in.tool_calls) {
    auto* added = out->add_tool_calls();
    added->set_id(call.id);
    added->set_name(call.name);
    added->set_arguments_json(call.arguments_json);
  }
  RUMBO_SET(tool_call_id);
  RUMBO_SET(name);
  RUMBO_SET(reasoning);
}

static Message Turn(const char* role, std::string text) {
  Message message;
  message.role = role;
  message.content.push_back({Part::Kind::kText, std::move(text), ""});
  return message;
}

Message System(std::string text) { return Turn("system", std::move(text)); }
Message User(std::string text) { return Turn("user", std::move(text)); }
Message Assistant(std::string text) { return Turn("assistant", std::move(text)); }

void To(const Workload& in, v1::Workload* out) {
  RUMBO_SET_OPTIONAL(sessions);
  RUMBO_SET_OPTIONAL(context);
  RUMBO_SET_OPTIONAL(prompt_tokens);
  RUMBO_SET_OPTIONAL(answer_tokens);
  RUMBO_SET_OPTIONAL(shared_prefix_tokens);
  RUMBO_SET(objective);
  RUMBO_SET_OPTIONAL(draft_acceptance);
}

void To(const Contract& in, v1::Contract* out) {
  RUMBO_SET(device_kind);
  RUMBO_SET_OPTIONAL(min_context);
  RUMBO_SET_OPTIONAL(min_tokens_per_s);
  RUMBO_SET(local_only);
}

void To(const PlanOverrides& in, v1::PlanOverrides* out) {
  RUMBO_SET(engine);
  RUMBO_SET(device);
  RUMBO_SET_OPTIONAL(threads);
  RUMBO_SET(kv_type);
  RUMBO_SET_OPTIONAL(gpu_layers);
  RUMBO_SET(force);
  RUMBO_SET(variant);
  RUMBO_SET(build);
  RUMBO_SET(pooling);
  RUMBO_SET_OPTIONAL(draft_tokens);
  RUMBO_SET(draft_model);
}

void To(const Sampling& in, v1::Sampling* out) {
  RUMBO_SET_OPTIONAL(max_tokens);
  RUMBO_SET_OPTIONAL(temperature);
  RUMBO_SET_OPTIONAL(top_p);
  RUMBO_SET_OPTIONAL(top_k);
  RUMBO_SET_OPTIONAL(min_p);
  RUMBO_SET_OPTIONAL(typical_p);
  RUMBO_SET_OPTIONAL(repeat_penalty);
  RUMBO_SET_OPTIONAL(presence_penalty);
  RUMBO_SET_OPTIONAL(frequency_penalty);
  RUMBO_SET_OPTIONAL(repeat_last_n);
  RUMBO_SET_OPTIONAL(seed);
  for (const auto& text : in.stop) out->add_stop(text);
  for (const auto& [token, bias] : in.logit_bias) {
    auto* added = out->add_logit_bias();
    added->set_token(token);
    added->set_bias(bias);
  }
  RUMBO_SET_OPTIONAL(logprobs);
  RUMBO_SET_OPTIONAL(min_tokens);
  RUMBO_SET(ignore_eos);
  if (!in.json_schema.empty()) RUMBO_SET(json_schema);
  if (!in.grammar.empty()) RUMBO_SET(grammar);
  if (!in.regex.empty()) RUMBO_SET(regex);
}

void To(const RequestOptions& in, const std::string& app, v1::RequestOptions* out) {
  RUMBO_SET(priority);
  out->set_app(in.app.empty() ? app : in.app);
  To(in.workload, out->mutable_workload());
  To(in.contract, out->mutable_contract());
  RUMBO_SET_OPTIONAL(keep_alive_s);
  RUMBO_SET(idempotency_key);
  for (const auto& [name, scale] : in.adapters) {
    v1::Adapter* adapter = out->add_adapters();
    adapter->set_name(name);
    adapter->set_scale(scale);
  }
}

void To(const PlanRequest& in, v1::MakePlanRequest* out) {
  RUMBO_SET(model);
  To(in.workload, out->mutable_workload());
  To(in.contract, out->mutable_contract());
  To(in.overrides, out->mutable_overrides());
  RUMBO_SET(hardware);
  RUMBO_SET(system);
  RUMBO_SET(strict);
  for (const auto& model : in.together) out->add_together(model);
}

void To(const LoadRequest& in, v1::LoadModelRequest* out) {
  out->set_name(in.model);
  To(in.workload, out->mutable_workload());
  To(in.contract, out->mutable_contract());
  To(in.overrides, out->mutable_overrides());
  RUMBO_SET_OPTIONAL(keep_alive_s);
  RUMBO_SET(idempotency_key);
}

void To(const ChatRequest& in, const std::string& app, v1::ChatRequest* out) {
  RUMBO_SET(model);
  for (const auto& message : in.messages) To(message, out->add_messages());
  for (const auto& tool : in.tools) {
    auto* added = out->add_tools();
    added->set_name(tool.name);
    added->set_description(tool.description);
    added->set_parameters_json_schema(tool.parameters_json_schema);
  }
  RUMBO_SET(tool_choice);
  RUMBO_SET(parallel_tool_calls);
  To(in.sampling, out->mutable_sampling());
  To(in.options, app, out->mutable_options());
  RUMBO_SET_OPTIONAL(thinking);
  for (const auto& [name, json] : in.template_args) (*out->mutable_template_args())[name] = json;
  RUMBO_SET(continue_final_message);
}

void To(const GenerateRequest& in, const std::string& app, v1::GenerateRequest* out) {
  RUMBO_SET(model);
  if (in.tokens.empty()) {
    RUMBO_SET(prompt);
  } else {
    out->mutable_tokens()->mutable_ids()->Add(in.tokens.begin(), in.tokens.end());
  }
  To(in.sampling, out->mutable_sampling());
  To(in.options, app, out->mutable_options());
}

#undef RUMBO_SET
#undef RUMBO_SET_OPTIONAL

}  // namespace rumbo::inline sdk
