#pragma once

#include <memory>

#include "daemon/http/answer_encoder.h"
#include "daemon/http/decoded.h"
#include "daemon/http/exchange.h"

namespace rumbo {

// Completes a decoded request from its connection and headers (x-rumbo-app, x-rumbo-priority) and runs it.
void RunDecoded(ExchangePtr exchange, DecodedRequest decoded, std::unique_ptr<AnswerEncoder> encoder);

// Wall time, for "created" fields only.
int64_t UnixSeconds();

}  // namespace rumbo
