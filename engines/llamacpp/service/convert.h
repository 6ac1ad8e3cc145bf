#pragma once

#include "absl/status/statusor.h"
#include "engines/api/engine.h"
#include "engines/api/request.h"
#include "engines/api/settings.h"
#include "rumbo/engine/v1/engine.pb.h"

// The wire's messages as plain values and back. No checking beyond what the types need.
namespace rumbo {

EngineSettings FromProto(const v1::Settings& settings);
v1::Settings ToProto(const EngineSettings& settings);
SamplingParams FromProto(const v1::Sampling& sampling);
ChatInput FromProto(const engine::v1::ChatInput& chat);
Priority PriorityFromName(const std::string& name);

void ToProto(ChunkEvent&& event, v1::Chunk* chunk);
v1::Finished ToProto(const FinishedEvent& event);
void ToProto(const EngineStats& stats, engine::v1::GetStatsResponse* response);

}  // namespace rumbo
