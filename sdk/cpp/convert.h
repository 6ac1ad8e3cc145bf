#pragma once

#include "rumbo/inference.h"
#include "rumbo/types.h"
#include "rumbo/v1/admin.pb.h"
#include "rumbo/v1/device.pb.h"
#include "rumbo/v1/inference.pb.h"
#include "rumbo/v1/instance.pb.h"
#include "rumbo/v1/model.pb.h"
#include "rumbo/v1/plan.pb.h"

// Between the wire's messages and the SDK's own types. Pure.
namespace rumbo::inline sdk {

Finding From(const v1::Finding& in);
Topology From(const v1::Topology& in);
Model From(const v1::Model& in);
Progress From(const v1::Progress& in);
Workload From(const v1::Workload& in);
MemoryItem From(const v1::MemoryItem& in);
Plan From(const v1::Plan& in);
TuneProgress From(const v1::TuneProgress& in);
TuneTrial From(const v1::TuneTrial& in);
TuneResult From(const v1::TuneResult& in);
Measured From(const v1::Measured& in);
Loaded From(const v1::Loaded& in);
Instance From(const v1::Instance& in);
DaemonStatus From(const v1::GetStatusResponse& in);
Engine From(const v1::Engine& in);
Advice From(const v1::Advice& in);
CheckResult From(const v1::CheckResult& in);
PullPlan From(const v1::PullPlan& in);
Started From(const v1::Started& in);
Chunk From(const v1::Chunk& in);
Usage From(const v1::Usage& in);
Finished From(const v1::Finished& in);

void To(const Workload& in, v1::Workload* out);
void To(const Contract& in, v1::Contract* out);
void To(const PlanOverrides& in, v1::PlanOverrides* out);
void To(const Sampling& in, v1::Sampling* out);
void To(const RequestOptions& in, const std::string& app, v1::RequestOptions* out);
void To(const PlanRequest& in, v1::MakePlanRequest* out);
void To(const LoadRequest& in, v1::LoadModelRequest* out);
void To(const ChatRequest& in, const std::string& app, v1::ChatRequest* out);
void To(const GenerateRequest& in, const std::string& app, v1::GenerateRequest* out);

}  // namespace rumbo::inline sdk
