#include "base/status.h"
#include "daemon/http/handlers.h"
#include "daemon/http/json_out.h"

namespace rumbo {

// Ready for work: 503 while draining, so that a load balancer looks elsewhere.
void HandleHealth(Api& api, ExchangePtr exchange) {
  api.core->GetStatus([exchange](absl::StatusOr<CoreStatus> status) {
    if (!status.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, status.status()));
    HttpReply reply;
    reply.status = status->draining ? 503 : 200;
    JsonWriter(reply.body).Open('{').Key("status").String(status->draining ? "draining" : "ok").Close('}');
    exchange->Reply(std::move(reply));
  });
}

// The process answers; nothing else is asked.
void HandleLive(Api&, ExchangePtr exchange) {
  HttpReply reply;
  reply.body = R"({"status":"ok"})";
  exchange->Reply(std::move(reply));
}

void HandleMetrics(Api& api, ExchangePtr exchange) {
  // Here, on the io thread, where the counters live.
  const auto http = std::make_shared<HttpMetrics>(*api.metrics);
  api.core->GetStatus([&api, exchange, http](absl::StatusOr<CoreStatus> status) {
    if (!status.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, status.status()));
    api.core->ListInstances([&api, exchange, http,
                             core = *std::move(status)](absl::StatusOr<std::vector<InstanceInfo>> instances) {
      if (!instances.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, instances.status()));
      HttpReply reply;
      reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
      reply.body = MetricsPage(*http, core, *instances, api.options.version);
      exchange->Reply(std::move(reply));
    });
  });
}

void HandleUnimplemented(Api&, ExchangePtr exchange) {
  const Route& route = *exchange->request().route;
  exchange->Reply(ErrorReply(route.dialect, NotImplemented(route.path)));
}

}  // namespace rumbo
