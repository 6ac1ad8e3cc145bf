#pragma once

#include <span>
#include <string>
#include <variant>

#include "daemon/core/core.h"
#include "daemon/http/access.h"
#include "daemon/http/errors.h"
#include "daemon/http/exchange.h"
#include "daemon/http/guard.h"
#include "daemon/http/metrics.h"
#include "daemon/http/options.h"
#include "daemon/http/trace.h"

namespace rumbo {

class JsonApi;

// What handlers work with. Stays while any exchange does: a callback that holds its exchange may use it.
struct Api {
  Core* core = nullptr;
  JsonApi* json = nullptr;  // null where there is none
  HttpOptions options;
  HttpMetrics* metrics = nullptr;         // io thread
  const TraceExporter* traces = nullptr;  // io thread; nullptr: no traces are sent
};

using Handler = void (*)(Api& api, ExchangePtr exchange);

struct Route {
  const char* method;
  const char* path;  // exact, or "/prefix/{}": the rest, percent-decoded, is the argument
  Scope scope;
  Dialect dialect;
  Handler handler;
  bool json_body;  // POST whose body must be application/json
};

// Every route of the front, in one table.
std::span<const Route> Routes();

// Judges a request by its head, before its body is read: Host and Origin, route, method, content type. The
// route, or the answer that refuses it.
std::variant<const Route*, HttpReply> Admit(const Guard& guard, HttpRequest& request);

}  // namespace rumbo
