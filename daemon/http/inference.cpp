#include "daemon/http/inference.h"

#include <charconv>
#include <chrono>

#include "daemon/http/errors.h"
#include "daemon/http/routes.h"

namespace rumbo {
namespace {

constexpr int64_t kMaxTimeoutMs = 86'400'000;

// The client's own name: x-rumbo-app, else the product of User-Agent ("OpenAI/Python 3.1" ->
// "OpenAI/Python").
std::string AppName(const HttpRequest& request) {
  std::string_view name = request.Header("x-rumbo-app");
  if (name.empty()) {
    name = request.Header("user-agent");
    name = name.substr(0, name.find(' '));
  }
  std::string out;
  for (const char c : name.substr(0, 64)) out += c > 0x20 && c < 0x7f ? c : '?';
  return out;
}

// Header values are one line of visible ASCII.
std::string HeaderValue(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 300)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> PlacementHeaders(const Placement& placement) {
  std::string devices;
  for (const auto& device : placement.devices) devices += (devices.empty() ? "" : ",") + device;
  std::vector<std::pair<std::string, std::string>> headers;
  const auto add = [&](const char* name, std::string_view value) {
    if (!value.empty()) headers.emplace_back(name, HeaderValue(value));
  };
  add("x-rumbo-instance", placement.instance_id);
  add("x-rumbo-engine", placement.engine);
  add("x-rumbo-backend", placement.backend);
  add("x-rumbo-devices", devices);
  add("x-rumbo-variant", placement.variant);
  add("x-rumbo-reason", placement.reason);
  return headers;
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void RunDecoded(ExchangePtr exchange, DecodedRequest decoded, std::unique_ptr<AnswerEncoder> encoder) {
  const HttpRequest& http = exchange->request();
  InferenceRequest request;
  request.model = std::move(decoded.model);
  request.generate = std::move(decoded.generate);
  request.keep_alive_s = decoded.keep_alive_s;
  request.client = http.client;
  request.id = http.id;
  request.client.app = AppName(http);
  request.generate.owner = std::to_string(http.client.uid);
  if (http.client.uid == UINT32_MAX) {
    // Callers of other machines are told apart by their tokens: in shares, and in whose prompts they may
    // reuse.
    request.client.app = http.principal + "/" + request.client.app;
    request.generate.owner = http.principal;
  }
  request.idempotency_key = std::string(http.Header("idempotency-key").substr(0, 200));
  const std::string_view priority = http.Header("x-rumbo-priority");
  if (priority == "interactive") {
    request.generate.priority = Priority::kInteractive;
  } else if (priority == "batch") {
    request.generate.priority = Priority::kBatch;
  } else if (!priority.empty() && priority != "normal") {
    return exchange->Reply(ErrorReply(
        http.route->dialect, FieldError("x-rumbo-priority", "must be interactive, normal or batch")));
  }
  if (const std::string_view timeout = http.Header("x-rumbo-timeout-ms"); !timeout.empty()) {
    int64_t ms = 0;
    const auto end = std::from_chars(timeout.data(), timeout.data() + timeout.size(), ms);
    if (end.ec != std::errc() || end.ptr != timeout.data() + timeout.size() || ms < 1 || ms > kMaxTimeoutMs) {
      return exchange->Reply(
          ErrorReply(http.route->dialect,
                     FieldError("x-rumbo-timeout-ms", "must be a whole number from 1 to 86400000")));
    }
    request.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  }
  exchange->Run(std::move(request), std::move(encoder));
}

}  // namespace rumbo
