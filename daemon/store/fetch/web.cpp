#include "daemon/store/fetch/web.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/reasons.h"

namespace rumbo {
namespace {

constexpr int kMaxHops = 10;

std::string Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() &&
         (text.back() == ' ' || text.back() == '\r' || text.back() == '\n' || text.back() == '\t'))
    text.remove_suffix(1);
  return std::string(text);
}

bool Number(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

absl::Status Unavailable(const std::string& message, std::string_view next = "") {
  return Error(absl::StatusCode::kUnavailable, kDownloadFailed, message, next);
}

std::string Environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

// "localhost,.example.org,10.0.0.1,*"
bool ListHas(const std::string& list, const std::string& host) {
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    std::string entry = Trim(std::string_view(list).substr(at, comma - at));
    at = comma + 1;
    if (entry == "*") return true;
    if (!entry.empty() && entry[0] == '.') entry.erase(0, 1);
    if (entry.empty()) continue;
    if (host == entry) return true;
    if (host.size() > entry.size() && host.compare(host.size() - entry.size(), entry.size(), entry) == 0 &&
        host[host.size() - entry.size() - 1] == '.') {
      return true;
    }
  }
  return false;
}

bool WorthAnother(const absl::Status& status) { return absl::IsUnavailable(status); }

}  // namespace

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (text.substr(0, 6) != "bytes ") return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == text.npos || slash == text.npos || slash < dash) return std::nullopt;
  ContentRange out;
  uint64_t last = 0;
  if (!Number(text.substr(0, dash), out.begin) || !Number(text.substr(dash + 1, slash - dash - 1), last) ||
      !Number(text.substr(slash + 1), out.total) || last < out.begin || last >= out.total) {
    return std::nullopt;
  }
  out.end = last + 1;
  return out;
}

std::string ProxyFor(const Url& url, const WebOptions& options) {
  if (url.names_loopback() || ListHas(Environment({"no_proxy", "NO_PROXY"}), url.host)) return "";
  if (!options.proxy.empty()) return options.proxy;
  // HTTP_PROXY in capitals may come from a web request's "Proxy:" header, so nobody reads it.
  return url.scheme == "https" ? Environment({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
                               : Environment({"http_proxy", "all_proxy", "ALL_PROXY"});
}

WebHandle::WebHandle(const WebOptions& options, const UrlPolicy& policy)
    : options_(options), policy_(policy), easy_(curl_easy_init()) {}

WebHandle::~WebHandle() {
  curl_easy_cleanup(easy_);
  curl_slist_free_all(headers_);
}

void WebHandle::Prepare(const Url& url, const std::string& range, const std::string& if_range,
                        const std::string& bearer, std::function<bool(const WebAnswer&)> on_head,
                        std::function<bool(const char*, size_t)> sink) {
  url_ = url;
  answer_ = WebAnswer();
  answer_.url = url;
  head_told_ = false;
  refused_ = absl::OkStatus();
  on_head_ = std::move(on_head);
  sink_ = std::move(sink);
  curl_easy_reset(easy_);
  curl_slist_free_all(std::exchange(headers_, nullptr));
  const std::string token = !bearer.empty()                         ? bearer
                            : url.origin() == options_.token_origin ? options_.token
                                                                    : "";
  if (!token.empty()) headers_ = curl_slist_append(headers_, ("Authorization: Bearer " + token).c_str());
  if (!if_range.empty()) headers_ = curl_slist_append(headers_, ("If-Range: " + if_range).c_str());
  curl_easy_setopt(easy_, CURLOPT_URL, url.text().c_str());
  curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy_, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers_);
  curl_easy_setopt(easy_, CURLOPT_USERAGENT, "rumbo-fetch");
  curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT, options_.connect_s);
  curl_easy_setopt(easy_, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy_, CURLOPT_LOW_SPEED_TIME, options_.stall_s);
  curl_easy_setopt(easy_, CURLOPT_BUFFERSIZE, 512L * 1024);
  curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, error_);
  curl_easy_setopt(easy_, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy_, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(easy_, CURLOPT_OPENSOCKETFUNCTION, &OnSocket);
  curl_easy_setopt(easy_, CURLOPT_OPENSOCKETDATA, this);
  curl_easy_setopt(easy_, CURLOPT_PRIVATE, this);
  if (!range.empty()) curl_easy_setopt(easy_, CURLOPT_RANGE, range.c_str());
  // A proxy resolves the name itself; then only what the URL says can be checked.
  const std::string proxy = ProxyFor(url, options_);
  through_proxy_ = !proxy.empty();
  curl_easy_setopt(easy_, CURLOPT_PROXY, proxy.c_str());
  curl_easy_setopt(easy_, CURLOPT_NOPROXY, "");
  if (options_.rate > 0) SetRate(options_.rate);
  error_[0] = '\0';
}

void WebHandle::SetRate(uint64_t bytes_per_s) {
  curl_easy_setopt(easy_, CURLOPT_MAX_RECV_SPEED_LARGE, static_cast<curl_off_t>(bytes_per_s));
}

size_t WebHandle::OnHeader(char* data, size_t size, size_t count, void* context) {
  auto* self = static_cast<WebHandle*>(context);
  const std::string_view line(data, size * count);
  WebAnswer& answer = self->answer_;
  if (line.substr(0, 5) == "HTTP/") {  // also after an interim answer or a proxy's
    const Url url = answer.url;
    answer = WebAnswer();
    answer.url = url;
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return line.size();
  std::string name(line.substr(0, colon));
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const std::string value = Trim(line.substr(colon + 1));
  if (value.size() > 16384) return 0;
  if (name == "etag") answer.etag = value;
  if (name == "content-range") answer.content_range = value;
  if (name == "location") answer.location = value;
  if (name == "www-authenticate") answer.www_authenticate = value;
  if (name == "x-error-code") answer.error_code = value;
  uint64_t number = 0;
  if (name == "content-length" && Number(value, number)) answer.content_length = number;
  if (name == "retry-after" && Number(value, number) && number < 3600)
    answer.retry_after_s = static_cast<long>(number);
  return line.size();
}

size_t WebHandle::OnBody(char* data, size_t size, size_t count, void* context) {
  auto* self = static_cast<WebHandle*>(context);
  if (!self->head_told_) {
    self->head_told_ = true;
    curl_easy_getinfo(self->easy_, CURLINFO_RESPONSE_CODE, &self->answer_.status);
    if (self->on_head_ && !self->on_head_(self->answer_)) return 0;
  }
  return self->sink_(data, size * count) ? size * count : 0;
}

curl_socket_t WebHandle::OnSocket(void* context, curlsocktype, curl_sockaddr* address) {
  auto* self = static_cast<WebHandle*>(context);
  // The address that is connected to, whatever the name resolved to a moment ago. A proxy's is the user's.
  if (!self->through_proxy_) {
    if (absl::Status checked = self->policy_.CheckAddress(self->url_, &address->addr); !checked.ok()) {
      self->refused_ = checked;
      return CURL_SOCKET_BAD;
    }
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

absl::Status WebHandle::Outcome(CURLcode code) const {
  if (!refused_.ok()) return refused_;
  if (code == CURLE_OK) return absl::OkStatus();
  const std::string detail = error_[0] != '\0' ? error_ : curl_easy_strerror(code);
  const std::string what = url_.authority() + ": " + EscapeForLog(detail, 200);
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return Unavailable(what, "Check the network and the name; `rumbo pull` goes on where it stopped.");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return Error(absl::StatusCode::kFailedPrecondition, kDownloadFailed, what,
                   "The server's certificate is not trusted; nothing was sent to it.");
    case CURLE_OPERATION_TIMEDOUT:
      return Unavailable(what, "The server stalls; `rumbo pull` goes on where it stopped.");
    default:
      return Unavailable(what, "`rumbo pull` goes on where it stopped.");
  }
}

absl::StatusOr<Url> FollowRedirect(const UrlPolicy& policy, const WebAnswer& answer,
                                   std::vector<std::string>& seen) {
  if (answer.location.empty()) return Unavailable(answer.url.authority() + " redirects to nowhere");
  auto next = ResolveLocation(answer.url, answer.location);
  if (!next.ok()) {
    return Error(
        absl::StatusCode::kPermissionDenied, Reason::kNotAllowedByPolicy,
        answer.url.authority() + " redirects to what cannot be followed: " + MessageOf(next.status()));
  }
  RUMBO_RETURN_IF_ERROR(policy.CheckHop(answer.url, *next));
  const std::string text = next->text();
  if (std::find(seen.begin(), seen.end(), text) != seen.end() || seen.size() >= kMaxHops) {
    return Error(absl::StatusCode::kFailedPrecondition, kDownloadFailed,
                 answer.url.authority() + " redirects in a circle or more than 10 times",
                 "Tell its operator.");
  }
  seen.push_back(text);
  return next;
}

absl::Status StatusOfHttp(const WebAnswer& answer) {
  const std::string what = answer.url.authority() + " answers " + std::to_string(answer.status);
  switch (answer.status) {
    case 200:
    case 206:
      return absl::OkStatus();
    case 401:
    case 403:
      return Error(
          absl::StatusCode::kPermissionDenied, kDownloadFailed,
          what + (answer.error_code == "GatedRepo" ? ": the model is gated" : ""),
          "It may need a token: accept the model's terms at its hub, then set the option hub-token-file.");
    case 404:
    case 410:
      return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound,
                   what + ": there is no such model or file",
                   "Check the name, the revision and the spelling.");
    case 416:
      return Error(absl::StatusCode::kOutOfRange, kDownloadFailed, what);
    default:
      break;
  }
  if (answer.status == 408 || answer.status == 429 || answer.status >= 500)
    return Unavailable(what, "Try again later; `rumbo pull` goes on where it stopped.");
  return Error(absl::StatusCode::kFailedPrecondition, kDownloadFailed, what);
}

absl::StatusOr<WebAnswer> Get(const WebOptions& options, const UrlPolicy& policy, const Url& start,
                              const std::string& accept, size_t max_bytes, const std::string& bearer) {
  absl::Status last;
  for (int attempt = 0; attempt < std::min(options.attempts, 3); ++attempt) {
    if (attempt > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(options.retry_ms << (attempt - 1)));
    WebHandle handle(options, policy);
    std::vector<std::string> seen = {start.text()};
    RUMBO_RETURN_IF_ERROR(policy.CheckHop(std::nullopt, start));
    Url url = start;
    for (;;) {
      std::string body;
      bool too_long = false;
      handle.Prepare(url, "", "", url.origin() == start.origin() ? bearer : "", nullptr,
                     [&](const char* data, size_t size) {
                       too_long = body.size() + size > max_bytes;
                       if (!too_long) body.append(data, size);
                       return !too_long;
                     });
      curl_slist* headers = nullptr;
      if (!accept.empty()) {
        // Beside the ones Prepare made.
        headers = curl_slist_append(nullptr, ("Accept: " + accept).c_str());
        const std::string token = url.origin() == start.origin() && !bearer.empty() ? bearer
                                  : url.origin() == options.token_origin            ? options.token
                                                                                    : "";
        if (!token.empty()) headers = curl_slist_append(headers, ("Authorization: Bearer " + token).c_str());
        curl_easy_setopt(handle.easy(), CURLOPT_HTTPHEADER, headers);
      }
      curl_easy_setopt(handle.easy(), CURLOPT_TIMEOUT, 60L);
      const CURLcode code = curl_easy_perform(handle.easy());
      curl_slist_free_all(headers);
      last = handle.Outcome(code);
      if (too_long)
        return Error(absl::StatusCode::kFailedPrecondition, kDownloadFailed,
                     url.authority() + " sent more than " + std::to_string(max_bytes) + " bytes");
      if (!last.ok()) break;
      WebAnswer answer = handle.answer();
      curl_easy_getinfo(handle.easy(), CURLINFO_RESPONSE_CODE, &answer.status);
      answer.body = std::move(body);
      if (answer.status >= 300 && answer.status < 400 && answer.status != 304) {
        RUMBO_ASSIGN_OR_RETURN(url, FollowRedirect(policy, answer, seen));
        continue;
      }
      if (answer.status == 401) return answer;  // the caller may have a way
      last = StatusOfHttp(answer);
      if (last.ok()) return answer;
      break;
    }
    if (!WorthAnother(last)) return last;
  }
  return last;
}

}  // namespace rumbo
