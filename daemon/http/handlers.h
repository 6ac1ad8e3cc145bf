#pragma once

#include "daemon/http/routes.h"

// One function per route. All run on the io thread and return at once.
namespace rumbo {

void HandleRoot(Api& api, ExchangePtr exchange);
void HandleHealth(Api& api, ExchangePtr exchange);
void HandleLive(Api& api, ExchangePtr exchange);
void HandleMetrics(Api& api, ExchangePtr exchange);
void HandleModels(Api& api, ExchangePtr exchange);
void HandleModel(Api& api, ExchangePtr exchange);
void HandleCompletions(Api& api, ExchangePtr exchange);
void HandleChatCompletions(Api& api, ExchangePtr exchange);
void HandleResponses(Api& api, ExchangePtr exchange);
void HandleEmbeddings(Api& api, ExchangePtr exchange);
void HandleRerank(Api& api, ExchangePtr exchange);
void HandleMessages(Api& api, ExchangePtr exchange);
void HandleCountTokens(Api& api, ExchangePtr exchange);
void HandleOllamaGenerate(Api& api, ExchangePtr exchange);
void HandleOllamaChat(Api& api, ExchangePtr exchange);
void HandleOllamaEmbed(Api& api, ExchangePtr exchange);
void HandleOllamaEmbeddings(Api& api, ExchangePtr exchange);
void HandleOllamaTags(Api& api, ExchangePtr exchange);
void HandleOllamaShow(Api& api, ExchangePtr exchange);
void HandleOllamaPs(Api& api, ExchangePtr exchange);
void HandleOllamaVersion(Api& api, ExchangePtr exchange);
void HandleOllamaPull(Api& api, ExchangePtr exchange);
void HandleOllamaDelete(Api& api, ExchangePtr exchange);
void HandleTokenize(Api& api, ExchangePtr exchange);
void HandleDetokenize(Api& api, ExchangePtr exchange);
void HandleProps(Api& api, ExchangePtr exchange);
void HandleDashboardFile(Api& api, ExchangePtr exchange);
void HandleRpc(Api& api, ExchangePtr exchange);

// 501: the route stands in docs/unimplemented.md.
void HandleUnimplemented(Api& api, ExchangePtr exchange);

}  // namespace rumbo
