// rumbo-template: renders a chat template that nobody vouches for, confined: no files, no network, a second
// of CPU, 1 GiB. Reads the template from standard input; prints {"prompt","tools","system"} or {"error"}.
#include <chat.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <string>

#include "base/bytes.h"
#include "base/os/sandbox.h"
#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

namespace json = boost::json;

int Print(const json::object& object) {
  const std::string text = json::serialize(object) + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  return 0;
}

std::string ReadAll() {
  std::string text;
  char block[65536];
  while (text.size() < (1 << 20)) {
    const ssize_t n = ::read(STDIN_FILENO, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(block, static_cast<size_t>(n));
  }
  return text;
}

void OnLimit(int) {
  static constexpr char kText[] = "{\"error\":\"it takes more than a second of CPU\"}\n";
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, kText, sizeof kText - 1);
  ::_exit(0);
}

common_chat_templates_inputs Conversation(bool system) {
  common_chat_templates_inputs inputs;
  const auto add = [&](const char* role, const char* content) {
    common_chat_msg message;
    message.role = role;
    message.content = content;
    inputs.messages.push_back(std::move(message));
  };
  if (system) add("system", "You are MARKER-SYSTEM.");
  add("user", "Say hello.");
  add("assistant", "Hello.");
  add("user", "MARKER-USER");
  inputs.use_jinja = true;
  return inputs;
}

int Run(const std::string& text) {
  SandboxOptions options;
  options.allow_threads = false;
  options.max_cpu_seconds = 1;
  options.max_file_bytes = 1 * kMiB;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  options.max_address_bytes = 1 * kGiB;
#endif
  if (const auto entered = EnterSandbox(options); !entered.ok())
    return Print({{"error", MessageOf(entered.status())}});
  ::signal(SIGXCPU, OnLimit);
  try {
    const auto templates = common_chat_templates_init(nullptr, text, "<s>", "</s>");
    auto caps = common_chat_templates_get_caps(templates.get());
    const auto plain = common_chat_templates_apply(templates.get(), Conversation(false));
    if (plain.prompt.find("MARKER-USER") == std::string::npos)
      return Print({{"error", "the rendered text does not hold what the user said"}});
    bool system = false;
    try {
      system =
          common_chat_templates_apply(templates.get(), Conversation(true)).prompt.find("MARKER-SYSTEM") !=
          std::string::npos;
    } catch (const std::exception&) {
    }
    return Print({{"prompt", SanitizeUtf8(plain.prompt.substr(0, 4096))},
                  {"tools", caps["supports_tools"] && caps["supports_tool_calls"]},
                  {"system", system}});
  } catch (const std::exception& e) {
    return Print({{"error", SanitizeUtf8(std::string(e.what()).substr(0, 1000))}});
  }
}

}  // namespace
}  // namespace rumbo

int main() { return rumbo::Run(rumbo::ReadAll()); }
