#pragma once

#include <functional>
#include <string>

#include "daemon/http/routes.h"

namespace rumbo {

// For the short calls (embeddings, tokens, templates, ranking): gets the model's engine, loaded if need be,
// and calls `use` on one of the core's threads; errors are answered in the route's dialect. Keep the engine
// until the call has ended.
void WithModel(Api& api, ExchangePtr exchange, std::string model, std::optional<int64_t> keep_alive_s,
               std::function<void(Core::ReadyEngine)> use, InstanceUse wanted_for = InstanceUse::kAny);

// The time such a call may take.
TimePoint ShortCallDeadline();

// The model a request without one means: the only one loaded, else the only one there is; an error otherwise.
void WithDefaultModel(Api& api, ExchangePtr exchange, std::string model,
                      std::function<void(std::string)> use);

// In the dialect of the exchange's route.
void ReplyError(const ExchangePtr& exchange, const absl::Status& status);
// 200 with a JSON body and the placement's headers.
void ReplyJson(const ExchangePtr& exchange, std::string body, const Placement* placement = nullptr);

}  // namespace rumbo
