#pragma once

#include "daemon/http/routes.h"

// One function per route. All run on the io thread and return at once.
namespace rumbo {

void HandleHealth(Api& api, ExchangePtr exchange);
void HandleLive(Api& api, ExchangePtr exchange);
void HandleModels(Api& api, ExchangePtr exchange);
void HandleModel(Api& api, ExchangePtr exchange);
void HandleCompletions(Api& api, ExchangePtr exchange);
void HandleChatCompletions(Api& api, ExchangePtr exchange);

}  // namespace rumbo
