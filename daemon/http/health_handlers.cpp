#include "base/status.h"
#include "daemon/http/handlers.h"
#include "daemon/http/json_out.h"

namespace rumbo {
namespace {

constexpr std::chrono::milliseconds kStatsWait{500};  // for an engine that is busy with a long step

}  // namespace

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
  if (api.traces != nullptr) {
    http->tracing = true;
    http->spans_sent = api.traces->sent();
    http->spans_dropped = api.traces->dropped();
  }
  api.core->GetStatus([&api, exchange, http](absl::StatusOr<CoreStatus> status) {
    if (!status.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, status.status()));
    api.core->ListInstances([&api, exchange, http,
                             core = *std::move(status)](absl::StatusOr<std::vector<InstanceInfo>> instances) {
      if (!instances.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, instances.status()));
      const auto deadline = std::chrono::steady_clock::now() + kStatsWait;
      api.core->GetEngineStats(deadline, [&api, exchange, http, core, instances = *std::move(instances)](
                                             absl::StatusOr<std::map<std::string, EngineStats>> engines) {
        if (!engines.ok()) return exchange->Reply(ErrorReply(Dialect::kOpenAi, engines.status()));
        HttpReply reply;
        reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
        reply.body = MetricsPage(*http, core, instances, *engines, api.options.version);
        exchange->Reply(std::move(reply));
      });
    });
  });
}

void HandleUnimplemented(Api&, ExchangePtr exchange) {
  const Route& route = *exchange->request().route;
  exchange->Reply(ErrorReply(route.dialect, NotImplemented(route.path)));
}

}  // namespace rumbo
