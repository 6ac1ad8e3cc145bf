#pragma once

#include "daemon/core/types.h"
#include "engines/api/engine.h"
#include "engines/api/request.h"
#include "rumbo/engine/v1/engine.pb.h"
#include "rumbo/v1/device.pb.h"
#include "rumbo/v1/inference.pb.h"
#include "rumbo/v1/instance.pb.h"
#include "rumbo/v1/model.pb.h"
#include "rumbo/v1/plan.pb.h"

// Between the core's values and the wire's messages, each pair in one place. No checks: validity is the
// business of daemon/core (requests) and of the worker client (answers).
namespace rumbo {

SamplingParams FromProto(const v1::Sampling& proto);
void ToProto(const SamplingParams& value, v1::Sampling* proto);

void ToProto(const ChatInput& value, engine::v1::ChatInput* proto);
ChatInput FromProto(const v1::ChatRequest& proto);
void ToProto(const GenerateRequest& value, engine::v1::GenerateRequest* proto);

StartedEvent FromProto(const v1::Started& proto);
// Moves the text out of `proto`.
void MoveFromProto(v1::Chunk* proto, ChunkEvent* value);
void MoveToProto(ChunkEvent* value, v1::Chunk* proto);
FinishedEvent FromProto(const v1::Finished& proto);
void ToProto(const FinishedEvent& value, v1::Finished* proto);

EngineSettings FromProto(const v1::Settings& proto);
void ToProto(const EngineSettings& value, v1::Settings* proto);
MemoryItem FromProto(const v1::MemoryItem& proto);
void ToProto(const MemoryItem& value, v1::MemoryItem* proto);

Workload FromProto(const v1::Workload& proto);
void ToProto(const Workload& value, v1::Workload* proto);
Contract FromProto(const v1::Contract& proto);
PlanOverrides FromProto(const v1::PlanOverrides& proto);
void ToProto(const Plan& value, v1::Plan* proto);
void ToProto(const Measured& value, v1::Measured* proto);
void ToProto(const TuneProgress& value, v1::TuneProgress* proto);
void ToProto(const TuneTrial& value, v1::TuneTrial* proto);
void ToProto(const TuneResult& value, v1::TuneResult* proto);
void ToProto(const Topology& value, v1::Topology* proto);
void ToProto(const Finding& value, v1::Finding* proto);
void ToProto(const DeviceLoad& value, v1::DeviceLoad* proto);
void ToProto(const InstanceInfo& value, v1::Instance* proto);
void ToProto(const StoredModel& value, v1::Model* proto);
void ToProto(const StepProgress& value, v1::Progress* proto);
void ToProto(const RequestRecord& value, v1::RequestRecord* proto);

}  // namespace rumbo
