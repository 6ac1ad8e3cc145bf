#include "sdk/cpp/convert.h"
#include "sdk/cpp/json.h"

namespace rumbo::inline sdk {
namespace {

// out.name = in.name(), and the same for what may be absent.
#define RUMBO_COPY(field) out.field = in.field()
#define RUMBO_COPY_OPTIONAL(field) \
  if (in.has_##field()) out.field = in.field()
#define RUMBO_COPY_LIST(field) out.field.assign(in.field().begin(), in.field().end())

template <class Out, class List>
std::vector<Out> FromList(const List& list) {
  std::vector<Out> out;
  out.reserve(list.size());
  for (const auto& element : list) out.push_back(From(element));
  return out;
}

template <class M>
Wire Copy(const M& in) {
  return Wire(std::make_shared<M>(in));
}

}  // namespace

// Parts of other messages; `static` rather than unnamed, to overload From of the header.

static MemoryLimit From(const v1::MemoryLimit& in) {
  MemoryLimit out;
  RUMBO_COPY(id);
  RUMBO_COPY(kind);
  RUMBO_COPY_OPTIONAL(max_bytes);
  RUMBO_COPY_OPTIONAL(used_bytes);
  RUMBO_COPY(source);
  return out;
}

static MemoryPool From(const v1::MemoryPool& in) {
  MemoryPool out;
  RUMBO_COPY(id);
  RUMBO_COPY(kind);
  RUMBO_COPY_OPTIONAL(total_bytes);
  RUMBO_COPY_OPTIONAL(free_bytes);
  RUMBO_COPY_OPTIONAL(reserved_bytes);
  for (const auto& limit : in.limits()) out.limits.push_back(From(limit));
  RUMBO_COPY(source);
  return out;
}

static Backend From(const v1::Backend& in) {
  Backend out;
  RUMBO_COPY(name);
  RUMBO_COPY(usable);
  RUMBO_COPY(reason);
  RUMBO_COPY(remedy);
  RUMBO_COPY(version);
  RUMBO_COPY_LIST(pools);
  RUMBO_COPY(may_span_pools);
  return out;
}

static Device From(const v1::Device& in) {
  Device out;
  RUMBO_COPY(id);
  RUMBO_COPY(kind);
  RUMBO_COPY(name);
  RUMBO_COPY(vendor);
  RUMBO_COPY(memory_kind);
  RUMBO_COPY_LIST(pools);
  for (const auto& backend : in.backends()) out.backends.push_back(From(backend));
  RUMBO_COPY(present);
  RUMBO_COPY(accessible);
  RUMBO_COPY(usable);
  RUMBO_COPY(reason);
  RUMBO_COPY(remedy);
  RUMBO_COPY_LIST(evidence);
  RUMBO_COPY(software);
  RUMBO_COPY_OPTIONAL(bandwidth_bytes_s);
  RUMBO_COPY(bandwidth_source);
  RUMBO_COPY_OPTIONAL(compute_units);
  RUMBO_COPY_OPTIONAL(cores_physical);
  RUMBO_COPY_OPTIONAL(cores_logical);
  RUMBO_COPY_OPTIONAL(threads_allowed);
  RUMBO_COPY(threads_allowed_source);
  RUMBO_COPY(gfx_target);
  RUMBO_COPY(driver);
  return out;
}

static Variant From(const v1::Variant& in) {
  Variant out;
  RUMBO_COPY(id);
  RUMBO_COPY(format);
  RUMBO_COPY(architecture);
  RUMBO_COPY(quantization);
  RUMBO_COPY(size_bytes);
  RUMBO_COPY(sha256);
  RUMBO_COPY(parameters);
  RUMBO_COPY(context_trained);
  RUMBO_COPY(has_chat_template);
  RUMBO_COPY(state);
  RUMBO_COPY_LIST(capabilities);
  RUMBO_COPY(added_unix_s);
  RUMBO_COPY_OPTIONAL(done_bytes);
  RUMBO_COPY(source);
  return out;
}

static Predicted From(const v1::Predicted& in) {
  Predicted out;
  RUMBO_COPY_OPTIONAL(ttft_ms);
  RUMBO_COPY_OPTIONAL(decode_tok_s);
  RUMBO_COPY_OPTIONAL(aggregate_tok_s);
  RUMBO_COPY_OPTIONAL(load_s);
  RUMBO_COPY_OPTIONAL(energy_j_per_tok);
  RUMBO_COPY_OPTIONAL(uncertainty);
  RUMBO_COPY(source);
  return out;
}

static Settings From(const v1::Settings& in) {
  Settings out;
  RUMBO_COPY_OPTIONAL(context_total);
  RUMBO_COPY_OPTIONAL(context_per_session);
  RUMBO_COPY_OPTIONAL(sessions);
  RUMBO_COPY_OPTIONAL(threads);
  RUMBO_COPY_OPTIONAL(threads_batch);
  RUMBO_COPY_OPTIONAL(batch);
  RUMBO_COPY_OPTIONAL(ubatch);
  RUMBO_COPY_OPTIONAL(gpu_layers);
  RUMBO_COPY(kv_type_k);
  RUMBO_COPY(kv_type_v);
  RUMBO_COPY(flash_attention);
  RUMBO_COPY_OPTIONAL(mmap);
  RUMBO_COPY_OPTIONAL(kv_unified);
  RUMBO_COPY_OPTIONAL(swa_full);
  RUMBO_COPY_OPTIONAL(draft_tokens);
  RUMBO_COPY_OPTIONAL(host_cache_bytes);
  RUMBO_COPY_OPTIONAL(poll);
  out.extra.insert(in.extra().begin(), in.extra().end());
  return out;
}

static Candidate From(const v1::Candidate& in) {
  Candidate out;
  RUMBO_COPY(variant);
  RUMBO_COPY(engine);
  RUMBO_COPY(engine_version);
  RUMBO_COPY(backend);
  RUMBO_COPY_LIST(devices);
  out.settings = From(in.settings());
  out.memory = FromList<MemoryItem>(in.memory());
  out.predicted = From(in.predicted());
  RUMBO_COPY_LIST(reasons);
  RUMBO_COPY(maturity);
  RUMBO_COPY(engine_build);
  return out;
}

static Rejected From(const v1::Rejected& in) {
  Rejected out;
  RUMBO_COPY(variant);
  RUMBO_COPY(engine);
  RUMBO_COPY(engine_build);
  RUMBO_COPY(backend);
  RUMBO_COPY_LIST(devices);
  RUMBO_COPY(reason_code);
  RUMBO_COPY(reason);
  out.predicted = From(in.predicted());
  out.memory = FromList<MemoryItem>(in.memory());
  return out;
}

static Refusal From(const v1::Refusal& in) {
  Refusal out;
  RUMBO_COPY(reason_code);
  RUMBO_COPY(reason);
  RUMBO_COPY(pool);
  RUMBO_COPY_OPTIONAL(missing_bytes);
  if (in.has_nearest()) out.nearest = From(in.nearest());
  RUMBO_COPY(next_step);
  return out;
}

static TokenLogprob From(const v1::TokenLogprob& in) {
  TokenLogprob out{in.id(), in.piece(), in.logprob(), {}};
  for (const auto& other : in.top()) out.top.push_back({other.id(), other.piece(), other.logprob(), {}});
  return out;
}

std::string Wire::ToJson(int indent) const { return message_ ? rumbo::ToJson(*message_, indent) : "null"; }

Finding From(const v1::Finding& in) {
  return {in.severity(), in.code(), in.device(), in.text(), in.remedy()};
}

Topology From(const v1::Topology& in) {
  Topology out;
  for (const auto& device : in.devices()) out.devices.push_back(From(device));
  for (const auto& pool : in.pools()) out.pools.push_back(From(pool));
  out.findings = FromList<Finding>(in.findings());
  RUMBO_COPY(source);
  RUMBO_COPY(system);
  RUMBO_COPY(name);
  out.wire = Copy(in);
  return out;
}

Model From(const v1::Model& in) {
  Model out;
  RUMBO_COPY(name);
  for (const auto& variant : in.variants()) out.variants.push_back(From(variant));
  RUMBO_COPY(pinned);
  out.wire = Copy(in);
  return out;
}

Progress From(const v1::Progress& in) {
  Progress out;
  RUMBO_COPY(step);
  RUMBO_COPY_OPTIONAL(done_bytes);
  RUMBO_COPY_OPTIONAL(total_bytes);
  RUMBO_COPY_OPTIONAL(fraction);
  RUMBO_COPY_OPTIONAL(bytes_per_s);
  RUMBO_COPY_OPTIONAL(eta_s);
  return out;
}

Workload From(const v1::Workload& in) {
  Workload out;
  RUMBO_COPY_OPTIONAL(sessions);
  RUMBO_COPY_OPTIONAL(context);
  RUMBO_COPY_OPTIONAL(prompt_tokens);
  RUMBO_COPY_OPTIONAL(answer_tokens);
  RUMBO_COPY_OPTIONAL(shared_prefix_tokens);
  RUMBO_COPY(objective);
  RUMBO_COPY_OPTIONAL(draft_acceptance);
  return out;
}

MemoryItem From(const v1::MemoryItem& in) { return {in.pool(), in.what(), in.bytes(), in.source()}; }

Plan From(const v1::Plan& in) {
  Plan out;
  if (in.has_chosen()) out.chosen = From(in.chosen());
  for (const auto& rejected : in.rejected()) out.rejected.push_back(From(rejected));
  RUMBO_COPY(model);
  if (in.has_refusal()) out.refusal = From(in.refusal());
  out.workload = From(in.workload());
  RUMBO_COPY_LIST(evictions);
  RUMBO_COPY(forced);
  RUMBO_COPY(hardware);
  out.wire = Copy(in);
  return out;
}

TuneProgress From(const v1::TuneProgress& in) {
  TuneProgress out;
  RUMBO_COPY(step);
  RUMBO_COPY(done);
  RUMBO_COPY(total);
  RUMBO_COPY(elapsed_s);
  RUMBO_COPY(limit_s);
  return out;
}

TuneTrial From(const v1::TuneTrial& in) {
  TuneTrial out;
  RUMBO_COPY(variant);
  RUMBO_COPY(engine);
  RUMBO_COPY(engine_build);
  RUMBO_COPY(backend);
  RUMBO_COPY_LIST(devices);
  RUMBO_COPY(sessions);
  RUMBO_COPY(knobs);
  RUMBO_COPY_OPTIONAL(decode_tok_s);
  RUMBO_COPY_OPTIONAL(aggregate_tok_s);
  RUMBO_COPY_OPTIONAL(ttft_ms);
  RUMBO_COPY(failed);
  out.wire = Copy(in);
  return out;
}

TuneResult From(const v1::TuneResult& in) {
  TuneResult out;
  for (const auto& winner : in.winners()) out.winners.push_back({winner.objective(), From(winner.trial())});
  RUMBO_COPY(trials);
  RUMBO_COPY(elapsed_s);
  RUMBO_COPY(cut_short);
  out.wire = Copy(in);
  return out;
}

Measured From(const v1::Measured& in) {
  Measured out;
  out.memory = FromList<MemoryItem>(in.memory());
  RUMBO_COPY_OPTIONAL(load_s);
  RUMBO_COPY_OPTIONAL(ttft_ms);
  RUMBO_COPY_OPTIONAL(decode_tok_s);
  RUMBO_COPY_OPTIONAL(aggregate_tok_s);
  RUMBO_COPY(requests);
  return out;
}

Loaded From(const v1::Loaded& in) {
  Loaded out;
  RUMBO_COPY(instance_id);
  if (in.has_plan()) out.plan = From(in.plan());
  if (in.has_measured()) out.measured = From(in.measured());
  out.wire = Copy(in);
  return out;
}

Instance From(const v1::Instance& in) {
  Instance out;
  RUMBO_COPY(id);
  RUMBO_COPY(model);
  RUMBO_COPY(engine);
  RUMBO_COPY(backend);
  RUMBO_COPY_LIST(devices);
  RUMBO_COPY(state);
  RUMBO_COPY_OPTIONAL(pid);
  out.memory = FromList<MemoryItem>(in.memory());
  RUMBO_COPY(sessions);
  RUMBO_COPY(queue);
  RUMBO_COPY(since);
  RUMBO_COPY(running);
  RUMBO_COPY(reason);
  RUMBO_COPY(variant);
  RUMBO_COPY(context_per_session);
  RUMBO_COPY(restarts);
  RUMBO_COPY(pinned);
  RUMBO_COPY_OPTIONAL(progress);
  RUMBO_COPY(requests);
  RUMBO_COPY(generated_tokens);
  return out;
}

DaemonStatus From(const v1::GetStatusResponse& in) {
  DaemonStatus out;
  RUMBO_COPY(version);
  RUMBO_COPY_LIST(api_versions);
  RUMBO_COPY(pid);
  RUMBO_COPY(started_unix_s);
  RUMBO_COPY(http_address);
  RUMBO_COPY(draining);
  RUMBO_COPY(instances);
  RUMBO_COPY(running_requests);
  RUMBO_COPY(queued_requests);
  RUMBO_COPY(finished_requests);
  RUMBO_COPY_LIST(engines);
  return out;
}

Engine::Support From(const v1::EngineSupport& in) {
  Engine::Support out;
  RUMBO_COPY_LIST(systems);
  RUMBO_COPY_LIST(targets);
  RUMBO_COPY_LIST(vendors);
  RUMBO_COPY_LIST(formats);
  RUMBO_COPY(maturity);
  RUMBO_COPY(note);
  RUMBO_COPY(source);
  return out;
}

Engine::Backend From(const v1::EngineBackend& in) {
  Engine::Backend out;
  RUMBO_COPY(name);
  RUMBO_COPY_LIST(device_kinds);
  for (const auto& support : in.support()) out.support.push_back(From(support));
  return out;
}

Engine::Build From(const v1::EngineBuild& in) {
  Engine::Build out;
  RUMBO_COPY(version);
  RUMBO_COPY(build);
  RUMBO_COPY_LIST(backends);
  return out;
}

Engine From(const v1::Engine& in) {
  Engine out;
  RUMBO_COPY(name);
  RUMBO_COPY(title);
  RUMBO_COPY(kind);
  RUMBO_COPY(version);
  RUMBO_COPY(license);
  RUMBO_COPY(homepage);
  RUMBO_COPY(origin);
  RUMBO_COPY_LIST(formats);
  RUMBO_COPY_LIST(capabilities);
  RUMBO_COPY(max_sessions);
  for (const auto& system : in.systems()) out.systems.push_back({system.system(), system.maturity()});
  for (const auto& backend : in.backends()) out.backends.push_back(From(backend));
  for (const auto& build : in.builds()) out.builds.push_back(From(build));
  RUMBO_COPY(next_step);
  return out;
}

Advice From(const v1::Advice& in) {
  Advice out;
  RUMBO_COPY(hardware);
  RUMBO_COPY(title);
  RUMBO_COPY(model);
  if (in.has_plan()) out.plan = From(in.plan());
  RUMBO_COPY_OPTIONAL(price);
  RUMBO_COPY(currency);
  RUMBO_COPY(price_date);
  RUMBO_COPY_OPTIONAL(price_per_gb);
  RUMBO_COPY_OPTIONAL(price_per_tok_s);
  return out;
}

CheckResult From(const v1::CheckResult& in) {
  return {in.severity(), in.code(), in.text(), in.remedy(), in.file_name(), in.file_content(), in.source()};
}

PullPlan From(const v1::PullPlan& in) {
  PullPlan out;
  RUMBO_COPY(reference);
  RUMBO_COPY(name);
  RUMBO_COPY(licence);
  RUMBO_COPY(gated);
  for (const auto& c : in.candidates()) {
    PullCandidate& to = out.candidates.emplace_back();
    to.id = c.id();
    to.format = c.format();
    if (c.has_size_bytes()) to.size_bytes = c.size_bytes();
    to.files = {c.files().begin(), c.files().end()};
    to.fit = c.fit();
    to.chosen = c.chosen();
    to.reason = c.reason();
    if (c.has_decode_tok_s()) to.decode_tok_s = c.decode_tok_s();
    if (c.has_ttft_ms()) to.ttft_ms = c.ttft_ms();
    to.engine = c.engine();
  }
  out.wire = Copy(in);
  return out;
}

Started From(const v1::Started& in) {
  Started out;
  RUMBO_COPY(request_id);
  RUMBO_COPY(instance_id);
  RUMBO_COPY(engine);
  RUMBO_COPY(backend);
  RUMBO_COPY_LIST(devices);
  RUMBO_COPY(placement_reason);
  RUMBO_COPY(prompt_tokens);
  RUMBO_COPY(cached_tokens);
  out.wire = Copy(in);
  return out;
}

Chunk From(const v1::Chunk& in) {
  Chunk out;
  RUMBO_COPY(text);
  RUMBO_COPY(reasoning);
  RUMBO_COPY(tokens);
  for (const auto& token : in.logprobs()) out.logprobs.push_back(From(token));
  for (const auto& call : in.tool_calls()) {
    out.tool_calls.push_back({call.index(), call.id(), call.name(), call.arguments_json()});
  }
  return out;
}

Usage From(const v1::Usage& in) {
  return {in.prompt_tokens(), in.cached_tokens(), in.completion_tokens(), in.drafted_tokens(),
          in.accepted_tokens()};
}

Finished From(const v1::Finished& in) {
  Finished out;
  RUMBO_COPY(reason);
  out.usage = From(in.usage());
  const auto& t = in.timings();
  out.timings = {t.queue_ms(), t.ttft_ms(), t.prompt_ms(), t.decode_ms(), t.total_ms(), t.decode_tok_s()};
  RUMBO_COPY(stop_string);
  out.wire = Copy(in);
  return out;
}

#undef RUMBO_COPY
#undef RUMBO_COPY_OPTIONAL
#undef RUMBO_COPY_LIST

}  // namespace rumbo::inline sdk
