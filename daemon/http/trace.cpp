#include "daemon/http/trace.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>

#include "base/os/unique_fd.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/http/json_out.h"

namespace rumbo {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Exactly 2 * out.size() lower-case digits, not all zero.
template <size_t N>
bool ReadHex(std::string_view text, std::array<uint8_t, N>& out) {
  if (text.size() != 2 * N) return false;
  uint8_t any = 0;
  for (size_t i = 0; i < N; ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high * 16 + low);
    any |= out[i];
  }
  return any != 0;
}

template <size_t N>
std::string Hex(const std::array<uint8_t, N>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

template <size_t N>
std::array<uint8_t, N> RandomId(const std::function<uint64_t()>& random) {
  std::array<uint8_t, N> id;
  for (size_t i = 0; i < N; i += 8) {
    const uint64_t bits = random() | 1;  // never all zero
    for (size_t k = 0; k < 8; ++k) id[i + k] = static_cast<uint8_t>(bits >> (8 * k));
  }
  return id;
}

void AppendAttribute(JsonWriter& w, std::string_view key, const TraceValue& value) {
  w.Open('{').Key("key").String(key).Key("value").Open('{');
  if (const auto* text = std::get_if<std::string>(&value)) {
    w.Key("stringValue").String(*text);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    w.Key("intValue").String(std::to_string(*number));
  } else {
    w.Key("doubleValue").Double(std::get<double>(value));
  }
  w.Close('}').Close('}');
}

struct SpanTimes {
  int64_t begin_ns;
  int64_t end_ns;
};

void AppendHead(JsonWriter& w, const std::string& trace, const std::string& span, const std::string& parent,
                std::string_view name, int kind, SpanTimes times) {
  w.Open('{').Key("traceId").String(trace).Key("spanId").String(span);
  if (!parent.empty()) w.Key("parentSpanId").String(parent);
  w.Key("name").String(name).Key("kind").Int(kind);
  w.Key("startTimeUnixNano").String(std::to_string(times.begin_ns));
  w.Key("endTimeUnixNano").String(std::to_string(times.end_ns));
}

void AppendSpan(JsonWriter& w, const TraceSpan& span, const std::function<uint64_t()>& random) {
  constexpr int kServer = 2;
  constexpr int kInternal = 1;
  const std::string trace = Hex(span.parent ? span.parent->trace_id : RandomId<16>(random));
  const std::string id = Hex(RandomId<8>(random));
  const int64_t begin =
      std::chrono::duration_cast<std::chrono::nanoseconds>(span.begin.time_since_epoch()).count();
  const int64_t end = begin + span.duration.count();
  AppendHead(w, trace, id, span.parent ? Hex(span.parent->span_id) : "", span.name, kServer, {begin, end});
  w.Key("attributes").Open('[');
  for (const auto& [key, value] : span.attributes) AppendAttribute(w, key, value);
  w.Close(']').Key("status").Open('{');
  if (span.failed) w.Key("code").Int(2);
  w.Close('}').Close('}');
  int64_t at = begin;
  for (const auto& [name, length] : span.parts) {
    const int64_t until = std::min(end, at + length.count());
    AppendHead(w, trace, Hex(RandomId<8>(random)), id, name, kInternal, {at, until});
    w.Close('}');
    at = until;
  }
}

// ---- A small client: one request, one answer, one connection ----

bool WaitFor(int fd, short what, SteadyTime until) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd poll_fd{fd, what, 0};
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

UniqueFd Connect(const CollectorAddress& collector, SteadyTime until) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(collector.host.c_str(), collector.port.c_str(), &hints, &found) != 0) return UniqueFd();
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    UniqueFd fd(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
    if (!fd.valid()) continue;
    if (::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
    int error = 0;
    socklen_t length = sizeof error;
    if (errno == EINPROGRESS && WaitFor(fd.get(), POLLOUT, until) &&
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0) {
      return fd;
    }
  }
  return UniqueFd();
}

bool SendAll(int fd, std::string_view text, SteadyTime until) {
  while (!text.empty()) {
    const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !WaitFor(fd, POLLOUT, until)) {
      return false;
    }
  }
  return true;
}

// The HTTP status of the collector's answer; 0 where there is none.
int Post(const CollectorAddress& collector, const std::string& body, std::chrono::milliseconds timeout) {
  const SteadyTime until = std::chrono::steady_clock::now() + timeout;
  const UniqueFd fd = Connect(collector, until);
  if (!fd.valid()) return 0;
  const bool literal_v6 = collector.host.find(':') != std::string::npos;
  const std::string head = "POST " + collector.path + " HTTP/1.1\r\nhost: " + (literal_v6 ? "[" : "") +
                           collector.host + (literal_v6 ? "]:" : ":") + collector.port +
                           "\r\nuser-agent: rumbod\r\ncontent-type: application/json\r\nconnection: close" +
                           "\r\ncontent-length: " + std::to_string(body.size()) + "\r\n\r\n";
  if (!SendAll(fd.get(), head, until) || !SendAll(fd.get(), body, until)) return 0;
  std::string answer;
  while (answer.size() < 12 && WaitFor(fd.get(), POLLIN, until)) {
    char chunk[512];
    const ssize_t n = ::recv(fd.get(), chunk, sizeof chunk, 0);
    if (n <= 0) break;
    answer.append(chunk, static_cast<size_t>(n));
  }
  return answer.rfind("HTTP/1.", 0) == 0 && answer.size() >= 12 ? std::atoi(answer.c_str() + 9) : 0;
}

}  // namespace

std::optional<TraceParent> ParseTraceParent(std::string_view header) {
  // 00-<32 hex>-<16 hex>-<2 hex>; later versions may add to it.
  if (header.size() < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  const int version = HexDigit(header[0]) * 16 + HexDigit(header[1]);
  if (HexDigit(header[0]) < 0 || HexDigit(header[1]) < 0 || version == 0xff) return std::nullopt;
  if (header.size() != 55 && (version == 0 || header[55] != '-')) return std::nullopt;
  TraceParent parent;
  if (!ReadHex(header.substr(3, 32), parent.trace_id) || !ReadHex(header.substr(36, 16), parent.span_id) ||
      HexDigit(header[53]) < 0 || HexDigit(header[54]) < 0) {
    return std::nullopt;
  }
  parent.sampled = (HexDigit(header[54]) & 1) != 0;
  return parent;
}

absl::StatusOr<CollectorAddress> ParseCollector(std::string_view url) {
  const auto bad = [&](std::string_view what) {
    return InvalidArgument("the collector \"" + EscapeForLog(url, 80) + "\" " + std::string(what),
                           "It is http://HOST:PORT, as http://127.0.0.1:4318.");
  };
  constexpr std::string_view kHttp = "http://";
  if (url.substr(0, kHttp.size()) != kHttp) return bad("is not reached by http");
  std::string_view rest = url.substr(kHttp.size());
  for (const char c : rest) {
    if (c <= 0x20 || c >= 0x7f || c == '@' || c == '?' || c == '#') return bad("is no plain address");
  }
  CollectorAddress collector;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    if (slash + 1 < rest.size()) collector.path = std::string(rest.substr(slash));
    rest = rest.substr(0, slash);
  }
  std::string_view port;
  if (!rest.empty() && rest[0] == '[') {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return bad("has an unfinished address");
    collector.host = std::string(rest.substr(1, end - 1));
    port = rest.substr(end + 1);
  } else {
    const size_t colon = rest.find(':');
    collector.host = std::string(rest.substr(0, colon));
    port = colon == std::string_view::npos ? std::string_view() : rest.substr(colon);
  }
  if (collector.host.empty()) return bad("names no host");
  if (!port.empty()) {
    if (port[0] != ':' || port.size() < 2 || port.size() > 6 ||
        port.find_first_not_of("0123456789", 1) != std::string_view::npos) {
      return bad("has no valid port");
    }
    collector.port = std::string(port.substr(1));
  }
  return collector;
}

std::string TracesJson(const std::vector<TraceSpan>& spans, std::string_view version,
                       const std::function<uint64_t()>& random) {
  std::string out;
  JsonWriter w(out);
  w.Open('{').Key("resourceSpans").Open('[').Open('{');
  w.Key("resource").Open('{').Key("attributes").Open('[');
  AppendAttribute(w, "service.name", std::string("rumbod"));
  AppendAttribute(w, "service.version", std::string(version));
  w.Close(']').Close('}').Key("scopeSpans").Open('[').Open('{');
  w.Key("scope").Open('{').Key("name").String("rumbo.http").Close('}').Key("spans").Open('[');
  for (const TraceSpan& span : spans) AppendSpan(w, span, random);
  w.Close(']').Close('}').Close(']').Close('}').Close(']').Close('}');
  return out;
}

TraceExporter::TraceExporter(CollectorAddress collector, std::string version)
    : collector_(std::move(collector)), version_(std::move(version)) {
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "rumbo-otlp");
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    Run();
  });
}

TraceExporter::~TraceExporter() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void TraceExporter::Add(TraceSpan span) {
  std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) {
    ++dropped_;
    return;
  }
  waiting_.push_back(std::move(span));
  if (waiting_.size() == kMaxWaiting / 2) changed_.notify_all();
}

void TraceExporter::Run() {
  std::mt19937_64 generator{std::random_device{}()};
  bool away = false;
  for (;;) {
    std::vector<TraceSpan> batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kBatchWait, [&] { return stop_ || waiting_.size() >= kMaxWaiting / 2; });
      batch.swap(waiting_);
      if (batch.empty() && stop_) return;
    }
    if (batch.empty()) continue;
    const int status = Post(collector_, TracesJson(batch, version_, [&] { return generator(); }), kTimeout);
    const bool ok = status >= 200 && status < 300;
    (ok ? sent_ : dropped_) += batch.size();
    if (!ok && !away)
      spdlog::warn("the trace collector does not take spans (status {}); they are dropped", status);
    away = !ok;
  }
}

}  // namespace rumbo
