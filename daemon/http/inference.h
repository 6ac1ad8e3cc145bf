#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/http/answer_encoder.h"
#include "daemon/http/decoded.h"
#include "daemon/http/exchange.h"

namespace rumbo {

// Completes a decoded request from its connection and headers (x-rumbo-app, x-rumbo-priority) and runs it.
void RunDecoded(ExchangePtr exchange, DecodedRequest decoded, std::unique_ptr<AnswerEncoder> encoder);

// x-rumbo-*: which instance, engine, backend and devices answered, and why.
std::vector<std::pair<std::string, std::string>> PlacementHeaders(const Placement& placement);

// Wall time, for "created" fields only.
int64_t UnixSeconds();

}  // namespace rumbo
