// Commands that show what happens until the user has seen enough.
#include <ctime>

#include "base/os/interrupt.h"
#include "sdk/cli/commands.h"
#include "sdk/cli/render.h"
#include "sdk/cpp/json.h"

namespace rumbo::cli {
namespace {

std::string Clock() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[16];
  std::strftime(text, sizeof text, "%H:%M:%S", &local);
  return text;
}

// One change as one line; with --json as one JSON document a line.
bool ShowChange(const Session& s, const Instance& instance, bool initial) {
  if (s.options.json) {
    return Print("{\"instance\": " + QuoteJson(instance.id) + ", \"model\": " + QuoteJson(instance.model) +
                 ", \"state\": " + QuoteJson(instance.state) + ", \"reason\": " + QuoteJson(instance.reason) +
                 ", \"initial\": " + (initial ? "true" : "false") + "}\n");
  }
  std::string text =
      Clock() + "  " + Safe(instance.id) + "  " + Safe(instance.model) + "  " + Safe(instance.state);
  if (instance.progress && instance.state == "loading") {
    text += " " + std::to_string(static_cast<int>(*instance.progress * 100)) + " %";
  }
  if (!instance.reason.empty() && instance.reason != instance.state) text += ": " + Safe(instance.reason);
  return Print(text + "\n");
}

bool ShowLease(const Session& s, const LeaseEvent& event) {
  if (s.options.json) {
    return Print("{\"event\": " + QuoteJson(event.event) + ", \"instance\": " + QuoteJson(event.instance_id) +
                 ", \"reason\": " + QuoteJson(event.reason) + "}\n");
  }
  return Print(Clock() + "  " + Safe(event.event) +
               (event.instance_id.empty() ? "" : "  " + Safe(event.instance_id)) + "  " + Safe(event.reason) +
               "\n");
}

}  // namespace

int RunLiveCommand(const Session& session) {
  std::stop_source stop;
  InterruptWatch watch([&stop] { stop.request_stop(); });
  auto client = Client::Connect({.app = "rumbo"});
  if (!client) return Fail(client.error());
  CallOptions call;
  call.cancel = stop.get_token();
  const auto shown = [&stop](bool written) {
    if (!written) stop.request_stop();  // nobody reads it any more
  };
  const Options& options = session.options;
  Result<Done> done = Done{};
  if (options.command == "ps") {
    done = client->WatchInstances(
        [&](const Instance& instance, bool initial) { shown(ShowChange(session, instance, initial)); }, call);
  } else if (options.command == "logs") {
    done = client->Logs(
        {options.subject, options.lines, options.follow},
        [&](const std::string& line) {
          shown(Print(options.json ? "{\"line\": " + QuoteJson(line) + "}\n" : Safe(line) + "\n"));
        },
        call);
  } else {
    done = client->Lease(
        {options.subject, options.priority, options.workload},
        [&](const LeaseEvent& event) { shown(ShowLease(session, event)); }, call);
  }
  if (stop.stop_requested()) return kExitOk;  // the user has seen enough
  return done ? kExitOk : Fail(done.error());
}

}  // namespace rumbo::cli
