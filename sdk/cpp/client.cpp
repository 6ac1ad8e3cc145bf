#include "rumbo/client.h"

#include "sdk/cpp/call.h"
#include "sdk/cpp/convert.h"

namespace rumbo::inline sdk {
namespace {

template <class Message>
Wire WireOf(const std::shared_ptr<Message>& message) {
  return Wire(message);
}

}  // namespace

Result<Topology> Client::Devices(const std::string& hardware, bool refresh,
                                 const CallOptions& options) const {
  v1::ListDevicesRequest request;
  request.set_hardware(hardware);
  request.set_refresh(refresh);
  auto answer = Unary(*channel_, channel_->device, &v1::DeviceService::Stub::ListDevices, request, options);
  if (!answer) return answer.error();
  return From((*answer)->topology());
}

Result<InstanceList> Client::Instances(const CallOptions& options) const {
  auto answer = Unary(*channel_, channel_->instance, &v1::InstanceService::Stub::ListInstances,
                      v1::ListInstancesRequest(), options);
  if (!answer) return answer.error();
  InstanceList out;
  for (const auto& instance : (*answer)->instances()) out.instances.push_back(From(instance));
  out.wire = WireOf(*answer);
  return out;
}

Result<DaemonStatus> Client::Status(const CallOptions& options) const {
  auto answer =
      Unary(*channel_, channel_->admin, &v1::AdminService::Stub::GetStatus, v1::GetStatusRequest(), options);
  if (!answer) return answer.error();
  DaemonStatus out = From(**answer);
  out.wire = WireOf(*answer);
  return out;
}

Result<EngineList> Client::Engines(const std::string& name, const CallOptions& options) const {
  v1::ListEnginesRequest request;
  request.set_name(name);
  auto answer = Unary(*channel_, channel_->admin, &v1::AdminService::Stub::ListEngines, request, options);
  if (!answer) return answer.error();
  EngineList out;
  for (const auto& engine : (*answer)->engines()) out.engines.push_back(From(engine));
  out.wire = WireOf(*answer);
  return out;
}

Result<DoctorReport> Client::Doctor(const CallOptions& options) const {
  auto answer =
      Unary(*channel_, channel_->admin, &v1::AdminService::Stub::Doctor, v1::DoctorRequest(), options);
  if (!answer) return answer.error();
  DoctorReport out;
  for (const auto& finding : (*answer)->findings()) out.findings.push_back(From(finding));
  out.wire = WireOf(*answer);
  return out;
}

Result<ReloadReport> Client::Reload(const CallOptions& options) const {
  auto answer =
      Unary(*channel_, channel_->admin, &v1::AdminService::Stub::Reload, v1::ReloadRequest(), options);
  if (!answer) return answer.error();
  ReloadReport out;
  for (const auto& name : (*answer)->changed()) out.changed.push_back(name);
  for (const auto& name : (*answer)->needs_restart()) out.needs_restart.push_back(name);
  return out;
}

Result<Done> Client::Drain(std::chrono::milliseconds limit, const CallOptions& options) const {
  v1::DrainRequest request;
  request.set_limit_ms(static_cast<uint32_t>(limit.count()));
  auto answer = Unary(*channel_, channel_->admin, &v1::AdminService::Stub::Drain, request, options);
  if (!answer) return answer.error();
  return Done{};
}

Result<ModelList> Client::Models(const CallOptions& options) const {
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::ListModels,
                      v1::ListModelsRequest(), options);
  if (!answer) return answer.error();
  ModelList out;
  for (const auto& model : (*answer)->models()) out.models.push_back(From(model));
  out.wire = WireOf(*answer);
  return out;
}

Result<ModelDetails> Client::GetModel(const std::string& name, const CallOptions& options) const {
  v1::GetModelRequest request;
  request.set_name(name);
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::GetModel, request, options);
  if (!answer) return answer.error();
  const auto& in = **answer;
  return ModelDetails{
      From(in.model()), in.descriptor_json(), {in.metadata().begin(), in.metadata().end()}, WireOf(*answer)};
}

Result<CheckReport> Client::CheckModel(const std::string& name, const CallOptions& options,
                                       const std::string& engine) const {
  v1::CheckModelRequest request;
  request.set_name(name);
  request.set_engine(engine);
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::CheckModel, request, options);
  if (!answer) return answer.error();
  CheckReport out;
  for (const auto& result : (*answer)->results()) out.results.push_back(From(result));
  out.wire = WireOf(*answer);
  return out;
}

Result<uint64_t> Client::DeleteModel(const std::string& name, const CallOptions& options) const {
  v1::DeleteModelRequest request;
  request.set_name(name);
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::DeleteModel, request, options);
  if (!answer) return answer.error();
  return (*answer)->freed_bytes();
}

Result<bool> Client::StopPull(const std::string& name, const CallOptions& options) const {
  v1::StopPullRequest request;
  request.set_name(name);
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::StopPull, request, options);
  if (!answer) return answer.error();
  return (*answer)->stopped();
}

Result<SearchHits> Client::Search(const std::string& query, bool hub, const CallOptions& options) const {
  v1::SearchModelsRequest request;
  request.set_query(query);
  request.set_hub(hub);
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::SearchModels, request, options);
  if (!answer) return answer.error();
  SearchHits out;
  for (const auto& hit : (*answer)->hits()) {
    SearchHit& to = out.hits.emplace_back();
    to = {hit.reference(),
          hit.title(),
          hit.licence(),
          hit.origin(),
          {hit.variants().begin(), hit.variants().end()},
          std::nullopt,
          hit.source()};
    if (hit.has_downloads()) to.downloads = hit.downloads();
  }
  out.wire = WireOf(*answer);
  return out;
}

Result<Garbage> Client::CollectGarbage(bool dry_run, const CallOptions& options) const {
  v1::CollectGarbageRequest request;
  request.set_dry_run(dry_run);
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::CollectGarbage, request, options);
  if (!answer) return answer.error();
  Garbage out;
  for (const auto& item : (*answer)->items()) out.items.push_back({item.what(), item.bytes()});
  out.bytes = (*answer)->bytes();
  out.wire = WireOf(*answer);
  return out;
}

Result<CachedModels> Client::Adopt(const std::vector<std::string>& names, bool adopt,
                                   const CallOptions& options) const {
  v1::AdoptModelsRequest request;
  for (const auto& name : names) request.add_names(name);
  request.set_adopt(adopt);
  // Each is hashed once: minutes for large ones.
  auto answer =
      Unary(*channel_, channel_->model, &v1::ModelService::Stub::AdoptModels, request, options, std::nullopt);
  if (!answer) return answer.error();
  CachedModels out;
  for (const auto& model : (*answer)->models())
    out.models.push_back(
        {model.name(), model.cache(), model.path(), model.bytes(), model.state(), model.text()});
  out.wire = WireOf(*answer);
  return out;
}

Result<Done> Client::Pin(const std::string& name, bool pinned, const CallOptions& options) const {
  v1::PinModelRequest request;
  request.set_name(name);
  request.set_pinned(pinned);
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::PinModel, request, options);
  if (!answer) return answer.error();
  return Done{};
}

Result<Plan> Client::MakePlan(const PlanRequest& request, const CallOptions& options) const {
  v1::MakePlanRequest wire;
  To(request, &wire);
  auto answer = Unary(*channel_, channel_->plan, &v1::PlanService::Stub::MakePlan, wire, options);
  if (!answer) return answer.error();
  return From((*answer)->plan());
}

Result<JointPlan> Client::MakePlans(const PlanRequest& request, const CallOptions& options) const {
  v1::MakePlanRequest wire;
  To(request, &wire);
  auto answer = Unary(*channel_, channel_->plan, &v1::PlanService::Stub::MakePlan, wire, options);
  if (!answer) return answer.error();
  JointPlan out;
  out.plans.push_back(From((*answer)->plan()));
  for (const auto& plan : (*answer)->together()) out.plans.push_back(From(plan));
  out.wire = WireOf(*answer);
  return out;
}

Result<Explanation> Client::Explain(const std::string& id, const CallOptions& options) const {
  v1::ExplainRequest request;
  request.set_id(id);
  auto answer = Unary(*channel_, channel_->plan, &v1::PlanService::Stub::Explain, request, options);
  if (!answer) return answer.error();
  const auto& in = **answer;
  Explanation out{From(in.plan()), std::nullopt, in.instance_id(), in.model(), WireOf(*answer)};
  if (in.has_measured()) out.measured = From(in.measured());
  return out;
}

Result<AdviceTable> Client::Advise(const AdviseRequest& in, const CallOptions& options) const {
  v1::AdviseRequest request;
  for (const auto& model : in.models) request.add_models(model);
  To(in.workload, request.mutable_workload());
  To(in.contract, request.mutable_contract());
  request.set_currency(in.currency);
  if (in.budget) request.set_budget(*in.budget);
  request.set_system(in.system);
  auto answer = Unary(*channel_, channel_->plan, &v1::PlanService::Stub::Advise, request, options);
  if (!answer) return answer.error();
  AdviceTable out;
  for (const auto& row : (*answer)->rows()) out.rows.push_back(From(row));
  out.wire = WireOf(*answer);
  return out;
}

Result<std::vector<std::string>> Client::Unload(const std::string& name, const CallOptions& options) const {
  v1::UnloadModelRequest request;
  request.set_name(name);
  auto answer = Unary(*channel_, channel_->model, &v1::ModelService::Stub::UnloadModel, request, options);
  if (!answer) return answer.error();
  return std::vector<std::string>((*answer)->instance_ids().begin(), (*answer)->instance_ids().end());
}

Result<Embeddings> Client::Embed(const EmbedRequest& in, const CallOptions& options) const {
  v1::EmbedRequest request;
  request.set_model(in.model);
  for (const auto& input : in.inputs) request.add_inputs(input);
  request.set_pooling(in.pooling);
  if (in.normalize) request.set_normalize(*in.normalize);
  request.set_dimensions(in.dimensions);
  To(in.options, channel_->app, request.mutable_options());
  auto answer = Unary(*channel_, channel_->inference, &v1::InferenceService::Stub::Embed, request, options,
                      std::nullopt);
  if (!answer) return answer.error();
  Embeddings out;
  for (const auto& e : (*answer)->embeddings())
    out.vectors.emplace_back(e.values().begin(), e.values().end());
  out.usage = From((*answer)->usage());
  out.wire = WireOf(*answer);
  return out;
}

Result<Ranking> Client::Rerank(const RerankRequest& in, const CallOptions& options) const {
  v1::RerankRequest request;
  request.set_model(in.model);
  request.set_query(in.query);
  for (const auto& document : in.documents) request.add_documents(document);
  request.set_top_n(in.top_n);
  To(in.options, channel_->app, request.mutable_options());
  auto answer = Unary(*channel_, channel_->inference, &v1::InferenceService::Stub::Rerank, request, options,
                      std::nullopt);
  if (!answer) return answer.error();
  Ranking out;
  for (const auto& result : (*answer)->results()) out.items.push_back({result.index(), result.score()});
  out.usage = From((*answer)->usage());
  out.wire = WireOf(*answer);
  return out;
}

Result<Tokens> Client::Tokenize(const TokenizeRequest& in, const CallOptions& options) const {
  v1::TokenizeRequest request;
  request.set_model(in.model);
  request.set_text(in.text);
  if (in.add_special) request.set_add_special(*in.add_special);
  if (in.parse_special) request.set_parse_special(*in.parse_special);
  // The model may have to be loaded first.
  auto answer = Unary(*channel_, channel_->inference, &v1::InferenceService::Stub::Tokenize, request, options,
                      std::nullopt);
  if (!answer) return answer.error();
  const auto& out = **answer;
  return Tokens{
      {out.ids().begin(), out.ids().end()}, {out.pieces().begin(), out.pieces().end()}, WireOf(*answer)};
}

Result<std::string> Client::Detokenize(const std::string& model, const std::vector<int32_t>& ids,
                                       const CallOptions& options) const {
  v1::DetokenizeRequest request;
  request.set_model(model);
  request.mutable_ids()->Add(ids.begin(), ids.end());
  auto answer = Unary(*channel_, channel_->inference, &v1::InferenceService::Stub::Detokenize, request,
                      options, std::nullopt);
  if (!answer) return answer.error();
  return (*answer)->text();
}

}  // namespace rumbo::inline sdk
