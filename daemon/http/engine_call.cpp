#include "daemon/http/engine_call.h"

#include <set>

#include "base/status.h"
#include "daemon/http/inference.h"

namespace rumbo {

void ReplyError(const ExchangePtr& exchange, const absl::Status& status) {
  exchange->Reply(ErrorReply(exchange->request().route->dialect, status));
}

void ReplyJson(const ExchangePtr& exchange, std::string body, const Placement* placement) {
  HttpReply reply;
  reply.body = std::move(body);
  if (placement != nullptr) reply.headers = PlacementHeaders(*placement);
  exchange->Reply(std::move(reply));
}

TimePoint ShortCallDeadline() { return std::chrono::steady_clock::now() + std::chrono::minutes(5); }

void WithModel(Api& api, ExchangePtr exchange, std::string model, std::optional<int64_t> keep_alive_s,
               std::function<void(Core::ReadyEngine)> use, InstanceUse wanted_for) {
  LoadSpec spec;
  spec.use = wanted_for;
  spec.model = std::move(model);
  spec.keep_alive_s = keep_alive_s;
  const ClientIdentity client = exchange->request().client;
  api.core->WithEngine(std::move(spec), client, ShortCallDeadline(),
                       [exchange, use = std::move(use)](absl::StatusOr<Core::ReadyEngine> ready) {
                         if (!ready.ok()) return ReplyError(exchange, ready.status());
                         use(*std::move(ready));
                       });
}

void WithDefaultModel(Api& api, ExchangePtr exchange, std::string model,
                      std::function<void(std::string)> use) {
  if (!model.empty()) return use(std::move(model));
  const auto ambiguous = [exchange] { ReplyError(exchange, FieldError("model", "must name a model")); };
  api.core->ListInstances(
      [&api, exchange, ambiguous, use = std::move(use)](absl::StatusOr<std::vector<InstanceInfo>> instances) {
        std::set<std::string> names;
        if (instances.ok()) {
          for (const auto& instance : *instances) {
            if (instance.state == InstanceState::kReady) names.insert(instance.model);
          }
        }
        if (names.size() == 1) return use(*names.begin());
        if (names.size() > 1) return ambiguous();
        api.core->ListModels([ambiguous, use](absl::StatusOr<std::vector<StoredModel>> models) {
          if (!models.ok() || models->size() != 1) return ambiguous();
          use(models->front().name);
        });
      });
}

}  // namespace rumbo
