#include <atomic>

#include "base/status.h"
#include "daemon/core/core_impl.h"
#include "daemon/rpc/message_stream.h"
#include "daemon/rpc/services.h"
#include "daemon/wire/convert.h"
#include "engines/worker_kit/grpc_status.h"
#include "rumbo/v1/plan.grpc.pb.h"

namespace rumbo {
namespace {

using grpc::CallbackServerContext;

class PlanService final : public v1::PlanService::CallbackService {
 public:
  explicit PlanService(const ServiceContext& context) : core_(context.core) {}

  grpc::ServerUnaryReactor* MakePlan(CallbackServerContext* call, const v1::MakePlanRequest* request,
                                     v1::MakePlanResponse* response) override {
    auto* reactor = call->DefaultReactor();
    PlanQuery query{request->model(),
                    FromProto(request->workload()),
                    FromProto(request->contract()),
                    FromProto(request->overrides()),
                    request->hardware(),
                    request->system()};
    if (!request->together().empty()) {
      std::vector<PlanQuery> queries = {query};
      query.overrides.variant.clear();  // names a variant of the first model
      for (const std::string& model : request->together()) {
        query.model = model;
        queries.push_back(query);
      }
      core_->MakePlans(std::move(queries), [reactor, response, strict = request->strict()](
                                               absl::StatusOr<std::vector<Plan>> plans) {
        if (!plans.ok()) return reactor->Finish(ToGrpcStatus(plans.status()));
        for (const Plan& plan : *plans) {
          if (strict && !plan.chosen) return reactor->Finish(ToGrpcStatus(RefusalStatus(plan)));
          ToProto(plan, response->has_plan() ? response->add_together() : response->mutable_plan());
        }
        reactor->Finish(grpc::Status::OK);
      });
      return reactor;
    }
    core_->MakePlan(std::move(query),
                    [reactor, response, strict = request->strict()](absl::StatusOr<Plan> plan) {
                      if (!plan.ok()) return reactor->Finish(ToGrpcStatus(plan.status()));
                      if (strict && !plan->chosen) return reactor->Finish(ToGrpcStatus(RefusalStatus(*plan)));
                      ToProto(*plan, response->mutable_plan());
                      reactor->Finish(grpc::Status::OK);
                    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::TuneModelResponse>* TuneModel(CallbackServerContext*,
                                                             const v1::TuneModelRequest* request) override {
    auto cancelled = std::make_shared<std::atomic<bool>>(false);
    auto stream = MessageStream<v1::TuneModelResponse>::Create([cancelled] { *cancelled = true; });
    TuneSpec spec;
    spec.model = request->name();
    if (!request->sessions().empty())
      spec.sessions.assign(request->sessions().begin(), request->sessions().end());
    if (request->has_limit_s()) spec.limit = std::chrono::seconds(request->limit_s());
    spec.overrides = FromProto(request->overrides());
    core_->TuneModel(
        std::move(spec), cancelled,
        [stream](const TuneEvent& event) {
          v1::TuneModelResponse message;
          if (event.progress) ToProto(*event.progress, message.mutable_progress());
          if (event.trial) ToProto(*event.trial, message.mutable_trial());
          stream->Push(std::move(message), event.progress.has_value());
        },
        [stream](absl::StatusOr<TuneResult> result) {
          if (result.ok()) {
            v1::TuneModelResponse message;
            ToProto(*result, message.mutable_result());
            stream->Push(std::move(message));
          }
          stream->End(result.status());
        });
    return stream.get();
  }

  grpc::ServerUnaryReactor* Explain(CallbackServerContext* call, const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override {
    auto* reactor = call->DefaultReactor();
    core_->Explain(request->id(), [reactor, response](absl::StatusOr<Explanation> explanation) {
      if (!explanation.ok()) return reactor->Finish(ToGrpcStatus(explanation.status()));
      ToProto(explanation->plan, response->mutable_plan());
      ToProto(explanation->measured, response->mutable_measured());
      response->set_instance_id(explanation->instance_id);
      response->set_model(explanation->model);
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Advise(CallbackServerContext* call, const v1::AdviseRequest* request,
                                   v1::AdviseResponse* response) override {
    auto* reactor = call->DefaultReactor();
    AdviceQuery query;
    query.models.assign(request->models().begin(), request->models().end());
    query.workload = FromProto(request->workload());
    query.contract = FromProto(request->contract());
    query.currency = request->currency();
    if (request->has_budget()) query.budget = request->budget();
    query.system = request->system();
    core_->Advise(std::move(query), [reactor, response](absl::StatusOr<std::vector<AdviceRow>> rows) {
      if (!rows.ok()) return reactor->Finish(ToGrpcStatus(rows.status()));
      for (const AdviceRow& row : *rows) {
        v1::Advice* out = response->add_rows();
        out->set_hardware(row.hardware);
        out->set_title(row.title);
        out->set_model(row.model);
        ToProto(row.plan, out->mutable_plan());
        if (row.price) {
          out->set_price(row.price->amount);
          out->set_currency(row.price->currency);
          out->set_price_date(row.price->date);
        }
        if (row.price_per_gb) out->set_price_per_gb(*row.price_per_gb);
        if (row.price_per_tok_s) out->set_price_per_tok_s(*row.price_per_tok_s);
      }
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

 private:
  Core* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewPlanService(const ServiceContext& context) {
  return std::make_unique<PlanService>(context);
}

}  // namespace rumbo
