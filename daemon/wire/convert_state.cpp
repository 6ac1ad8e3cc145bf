#include <cstdlib>

#include "daemon/wire/convert.h"

namespace rumbo {
namespace {

#define RUMBO_SET(field) \
  if (value.field) proto->set_##field(*value.field)

void ToProto(const Predicted& value, v1::Predicted* proto) {
  RUMBO_SET(ttft_ms);
  RUMBO_SET(decode_tok_s);
  RUMBO_SET(aggregate_tok_s);
  RUMBO_SET(load_s);
  RUMBO_SET(energy_j_per_tok);
  RUMBO_SET(uncertainty);
  proto->set_source(value.source);
}

void ToProto(const Candidate& value, v1::Candidate* proto) {
  proto->set_variant(value.variant);
  proto->set_engine(value.engine);
  proto->set_engine_version(value.engine_version);
  proto->set_backend(value.backend);
  for (const std::string& device : value.devices) proto->add_devices(device);
  ToProto(value.settings, proto->mutable_settings());
  for (const MemoryItem& item : value.memory) ToProto(item, proto->add_memory());
  ToProto(value.predicted, proto->mutable_predicted());
  for (const std::string& reason : value.reasons) proto->add_reasons(reason);
  proto->set_maturity(value.maturity);
  proto->set_engine_build(value.engine_build);
}

void ToProto(const Rejected& value, v1::Rejected* proto) {
  proto->set_variant(value.variant);
  proto->set_engine(value.engine);
  proto->set_engine_build(value.engine_build);
  proto->set_backend(value.backend);
  for (const std::string& device : value.devices) proto->add_devices(device);
  proto->set_reason_code(std::string(ReasonCode(value.reason_code)));
  proto->set_reason(value.reason);
  ToProto(value.predicted, proto->mutable_predicted());
  for (const MemoryItem& item : value.memory) ToProto(item, proto->add_memory());
}

void ToProto(const Refusal& value, v1::Refusal* proto) {
  proto->set_reason_code(std::string(ReasonCode(value.reason_code)));
  proto->set_reason(value.reason);
  proto->set_pool(value.pool);
  RUMBO_SET(missing_bytes);
  if (value.nearest) ToProto(*value.nearest, proto->mutable_nearest());
  proto->set_next_step(value.next_step);
}

void ToProto(const BackendSupport& value, v1::Backend* proto) {
  proto->set_name(value.name);
  proto->set_usable(value.usable);
  proto->set_reason(value.reason);
  proto->set_remedy(value.remedy);
  proto->set_version(value.version);
  proto->set_selector(value.selector);
  for (const std::string& pool : value.pools) proto->add_pools(pool);
  proto->set_may_span_pools(value.may_span_pools);
}

void ToProto(const Device& value, v1::Device* proto) {
  proto->set_id(value.id);
  proto->set_kind(Word(value.kind));
  proto->set_name(value.name);
  proto->set_vendor(value.vendor);
  proto->set_memory_kind(Word(value.memory_kind));
  for (const std::string& pool : value.pools) proto->add_pools(pool);
  for (const BackendSupport& backend : value.backends) ToProto(backend, proto->add_backends());
  proto->set_present(value.present);
  proto->set_accessible(value.accessible);
  proto->set_usable(value.usable);
  proto->set_reason(value.reason);
  proto->set_remedy(value.remedy);
  for (const std::string& line : value.evidence) proto->add_evidence(line);
  proto->set_memory_kind_rule(value.memory_kind_rule);
  proto->set_pci_address(value.pci_address);
  proto->set_pci_id(value.pci_id);
  proto->set_gfx_target(value.gfx_target);
  proto->set_driver(value.driver);
  proto->set_driver_version(value.driver_version);
  proto->set_parent(value.parent);
  proto->set_software(value.software);
  proto->set_secondary(value.secondary);
  if (value.bandwidth_bytes_s.value) proto->set_bandwidth_bytes_s(*value.bandwidth_bytes_s.value);
  proto->set_bandwidth_source(value.bandwidth_bytes_s.source);
  if (value.fp16_flops.value) proto->set_fp16_flops(*value.fp16_flops.value);
  proto->set_fp16_source(value.fp16_flops.source);
  RUMBO_SET(compute_units);
  RUMBO_SET(cores_physical);
  RUMBO_SET(cores_logical);
  RUMBO_SET(threads_allowed);
  proto->set_threads_allowed_source(value.threads_allowed_source);
  for (const std::string& isa : value.isa) proto->add_isa(isa);
  RUMBO_SET(numa_node);
  for (const std::string& format : value.number_formats) proto->add_number_formats(format);
  if (value.power_watts.value) proto->set_power_watts(*value.power_watts.value);
}

void ToProto(const MemoryPool& value, v1::MemoryPool* proto) {
  proto->set_id(value.id);
  proto->set_kind(Word(value.kind));
  RUMBO_SET(total_bytes);
  RUMBO_SET(free_bytes);
  for (const MemoryLimit& limit : value.limits) {
    v1::MemoryLimit* out = proto->add_limits();
    out->set_id(limit.id);
    out->set_kind(Word(limit.kind));
    if (limit.max_bytes) out->set_max_bytes(*limit.max_bytes);
    if (limit.used_bytes) out->set_used_bytes(*limit.used_bytes);
    out->set_source(limit.source);
  }
  proto->set_source(value.source);
}

}  // namespace

void ToProto(const Plan& value, v1::Plan* proto) {
  if (value.chosen) ToProto(*value.chosen, proto->mutable_chosen());
  for (const Rejected& rejected : value.rejected) ToProto(rejected, proto->add_rejected());
  proto->set_model(value.model);
  if (value.refusal) ToProto(*value.refusal, proto->mutable_refusal());
  ToProto(value.workload, proto->mutable_workload());
  for (const std::string& id : value.evictions) proto->add_evictions(id);
  proto->set_forced(value.forced);
  proto->set_hardware(value.hardware);
  proto->set_ledger_generation(value.ledger_generation);
}

void ToProto(const TuneProgress& value, v1::TuneProgress* proto) {
  proto->set_step(value.step);
  proto->set_done(value.done);
  proto->set_total(value.total);
  proto->set_elapsed_s(value.elapsed_s);
  proto->set_limit_s(value.limit_s);
}

void ToProto(const TuneTrial& value, v1::TuneTrial* proto) {
  proto->set_variant(value.variant);
  proto->set_engine(value.engine);
  proto->set_engine_version(value.engine_version);
  proto->set_engine_build(value.engine_build);
  proto->set_backend(value.backend);
  for (const std::string& device : value.devices) proto->add_devices(device);
  proto->set_sessions(value.sessions);
  proto->set_knobs(value.knobs);
  RUMBO_SET(decode_tok_s);
  RUMBO_SET(aggregate_tok_s);
  RUMBO_SET(ttft_ms);
  RUMBO_SET(predicted_decode_tok_s);
  RUMBO_SET(predicted_ttft_ms);
  proto->set_failed(value.failed);
}

void ToProto(const TuneResult& value, v1::TuneResult* proto) {
  for (const TuneWinner& winner : value.winners) {
    v1::TuneWinner* out = proto->add_winners();
    out->set_objective(winner.objective);
    ToProto(winner.trial, out->mutable_trial());
  }
  proto->set_trials(value.trials);
  proto->set_elapsed_s(value.elapsed_s);
  proto->set_cut_short(value.cut_short);
}

void ToProto(const Measured& value, v1::Measured* proto) {
  for (const MemoryItem& item : value.memory) ToProto(item, proto->add_memory());
  RUMBO_SET(load_s);
  RUMBO_SET(ttft_ms);
  RUMBO_SET(decode_tok_s);
  RUMBO_SET(aggregate_tok_s);
  proto->set_requests(value.requests);
}

void ToProto(const Finding& value, v1::Finding* proto) {
  proto->set_severity(Word(value.severity));
  proto->set_code(value.code);
  proto->set_device(value.device);
  proto->set_text(value.text);
  proto->set_remedy(value.remedy);
}

void ToProto(const Topology& value, v1::Topology* proto) {
  for (const Device& device : value.devices) ToProto(device, proto->add_devices());
  for (const MemoryPool& pool : value.pools) ToProto(pool, proto->add_pools());
  for (const Finding& finding : value.findings) ToProto(finding, proto->add_findings());
  proto->set_source(value.source);
  proto->set_system(value.system);
  proto->set_name(value.name);
}

void ToProto(const InstanceInfo& value, v1::Instance* proto) {
  proto->set_id(value.id);
  proto->set_model(value.model);
  proto->set_engine(value.engine);
  proto->set_backend(value.backend);
  for (const std::string& device : value.devices) proto->add_devices(device);
  proto->set_state(Word(value.state));
  RUMBO_SET(pid);
  for (const MemoryItem& item : value.memory) ToProto(item, proto->add_memory());
  proto->set_sessions(value.sessions);
  proto->set_queue(value.queue);
  proto->set_since(value.since_unix_s);
  proto->set_running(value.running);
  proto->set_reason(value.reason);
  proto->set_variant(value.variant);
  proto->set_context_per_session(value.context_per_session);
  proto->set_restarts(value.restarts);
  proto->set_pinned(value.pinned);
  proto->set_requests(value.requests);
  proto->set_generated_tokens(value.generated_tokens);
  proto->set_engine_version(value.engine_version);
  RUMBO_SET(progress);
}

void ToProto(const StoredModel& value, v1::Model* proto) {
  proto->set_name(value.name);
  proto->set_pinned(value.pinned);
  for (const StoredVariant& variant : value.variants) {
    v1::Variant* out = proto->add_variants();
    const ModelDescriptor& descriptor = variant.descriptor;
    out->set_id(variant.id);
    out->set_format(descriptor.format);
    out->set_architecture(descriptor.architecture);
    out->set_quantization(descriptor.quantization);
    out->set_size_bytes(descriptor.file_bytes);
    out->set_sha256(variant.sha256);
    out->set_parameters(descriptor.parameters);
    out->set_context_trained(descriptor.context_trained);
    out->set_has_chat_template(descriptor.has_chat_template);
    out->set_state(variant.state);
    for (const std::string& capability : descriptor.capabilities) out->add_capabilities(capability);
    out->set_added_unix_s(variant.added_unix_s);
    const auto fact = [&](const char* key) {
      const auto it = descriptor.metadata.find(key);
      return it == descriptor.metadata.end() ? std::string() : it->second;
    };
    out->set_source(fact("rumbo.source"));
    if (const std::string done = fact("rumbo.done_bytes"); !done.empty())
      out->set_done_bytes(std::strtoull(done.c_str(), nullptr, 10));
  }
}

void ToProto(const StepProgress& value, v1::Progress* proto) {
  proto->set_step(value.step);
  RUMBO_SET(done_bytes);
  RUMBO_SET(total_bytes);
  RUMBO_SET(fraction);
}

void ToProto(const RequestRecord& value, v1::RequestRecord* proto) {
  proto->set_sequence(value.sequence);
  proto->set_ended_unix_s(value.ended_unix_s);
  proto->set_id(value.id);
  proto->set_model(value.model);
  proto->set_instance_id(value.instance_id);
  proto->set_app(value.app);
  proto->set_uid(value.uid);
  proto->set_priority(value.priority);
  proto->set_outcome(value.outcome);
  proto->set_ok(value.ok);
  proto->set_prompt_tokens(value.prompt_tokens);
  proto->set_cached_tokens(value.cached_tokens);
  proto->set_completion_tokens(value.completion_tokens);
  proto->set_queue_ms(value.queue_ms);
  proto->set_ttft_ms(value.ttft_ms);
  proto->set_total_ms(value.total_ms);
  proto->set_decode_tok_s(value.decode_tok_s);
}

void ToProto(const DeviceLoad& value, v1::DeviceLoad* proto) {
  proto->set_device(value.device);
  RUMBO_SET(busy);
  RUMBO_SET(power_watts);
  RUMBO_SET(temperature_c);
  proto->set_suspended(value.suspended);
}

#undef RUMBO_SET

}  // namespace rumbo
