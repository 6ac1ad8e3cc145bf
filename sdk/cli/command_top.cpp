// `rumbo top`: what the daemon is doing, again and again.
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <map>
#include <thread>

#include "base/bytes.h"
#include "base/os/interrupt.h"
#include "sdk/cli/commands.h"
#include "sdk/cli/render.h"
#include "sdk/cpp/json.h"

namespace rumbo::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct View {
  DaemonStatus status;
  InstanceList list;
  Clock::time_point at;
};

Result<View> Look(const Client& client) {
  auto status = client.Status();
  if (!status) return status.error();
  auto list = client.Instances();
  if (!list) return list.error();
  return View{*std::move(status), *std::move(list), Clock::now()};
}

std::map<std::string, double> RatesBetween(const View& before, const View& now) {
  const double seconds = std::chrono::duration<double>(now.at - before.at).count();
  std::map<std::string, double> rates;
  if (seconds <= 0) return rates;
  for (const Instance& i : now.list.instances) {
    for (const Instance& old : before.list.instances) {
      if (old.id == i.id && i.generated_tokens >= old.generated_tokens)
        rates[i.id] = static_cast<double>(i.generated_tokens - old.generated_tokens) / seconds;
    }
  }
  return rates;
}

std::string Text(const View& view, const std::map<std::string, double>& rates, const Screen& screen) {
  const int64_t now = std::time(nullptr);
  return RenderTop(view.status, view.list, rates, now, screen);
}

std::string Json(const View& view, const std::map<std::string, double>& rates) {
  std::string out = "{\n\"status\": " + view.status.wire.ToJson() +
                    ",\n\"list\": " + view.list.wire.ToJson() + ",\n\"tokens_per_second\": {";
  const char* separator = "";
  for (const auto& [id, rate] : rates) {
    out += separator + QuoteJson(id) + ": " + Short(rate);
    separator = ", ";
  }
  return out + "}\n}\n";
}

// The terminal while it shows a picture: keys come at once and unseen, the cursor is away; as it was,
// afterwards.
class FullScreen {
 public:
  FullScreen() {
    keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    Print("\x1b[?1049h\x1b[?25l");
  }
  ~FullScreen() {
    Print("\x1b[?25h\x1b[?1049l");
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  bool Draw(std::string_view text) {
    std::string out = "\x1b[H";
    for (const char c : text) {
      if (c == '\n') out += "\x1b[K";
      out += c;
    }
    return Print(out + "\x1b[J");
  }
  // True where the user wants to leave, or nobody types any more.
  bool WaitForLeave(std::chrono::milliseconds time, const std::stop_token& stop) {
    const auto end = Clock::now() + time;
    while (!stop.stop_requested()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left <= 0) return false;
      pollfd keys{STDIN_FILENO, POLLIN, 0};
      if (::poll(&keys, keys_ ? 1 : 0, static_cast<int>(std::min<int64_t>(left, 100))) <= 0) continue;
      char key = 0;
      if (::read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 3 || key == 27) return true;
    }
    return true;
  }

 private:
  termios before_{};
  bool keys_ = false;
};

int Once(const Client& client, const Session& s, std::chrono::milliseconds interval) {
  const auto before = Look(client);
  if (!before) return Fail(before.error());
  std::this_thread::sleep_for(interval);
  const auto now = Look(client);
  if (!now) return Fail(now.error());
  const auto rates = RatesBetween(*before, *now);
  return Print(s.options.json ? Json(*now, rates) : Text(*now, rates, s.out)) ? kExitOk : kExitFailed;
}

}  // namespace

int RunTop(const Session& session) {
  auto client = Client::Connect({.app = "rumbo"});
  if (!client) return Fail(client.error());
  const std::chrono::milliseconds interval(static_cast<int64_t>(session.options.interval_s * 1000));
  if (session.options.once || session.options.json || !session.out.terminal)
    return Once(*client, session, interval);
  std::stop_source stop;
  InterruptWatch watch{[&stop] { stop.request_stop(); }};
  auto before = Look(*client);
  if (!before) return Fail(before.error());
  std::optional<Error> failed;
  {
    FullScreen screen;
    if (!screen.Draw(Text(*before, {}, session.out))) return kExitFailed;
    while (!screen.WaitForLeave(interval, stop.get_token())) {
      auto now = Look(*client);
      if (!now) {
        failed = now.error();
        break;
      }
      if (!screen.Draw(Text(*now, RatesBetween(*before, *now), Screen::OfStdout()))) return kExitFailed;
      before = std::move(now);
    }
  }
  return failed ? Fail(*failed) : kExitOk;
}

}  // namespace rumbo::cli
