#pragma once

#include <curl/curl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/url.h"

namespace rumbo {

// How rumbo-fetch may use the network. From the daemon's options.
struct WebOptions {
  std::vector<std::string> named_hosts;  // see UrlPolicy
  std::string token;                     // sent to `token_origin` and nowhere else
  std::string token_origin;
  std::string proxy;  // "" as the environment says; never for loopback
  uint64_t rate = 0;  // bytes per second, all transfers together; 0 no limit
  long stall_s = 30;  // a transfer without a byte for so long is broken off
  long connect_s = 15;
  int connections = 4;  // at once, for one file
  int retry_ms = 300;   // before the second try of what failed; doubles, 8 s at most
  int sync_ms = 1000;   // between two syncs of what came
  int attempts = 6;     // without a byte of progress between them
};

// The proxy for `url`: none for loopback and for what no_proxy names, else the option, else the
// environment's.
std::string ProxyFor(const Url& url, const WebOptions& options);

struct WebAnswer {
  long status = 0;
  Url url;  // that answered, after redirects
  std::string etag;
  std::string content_range;
  std::string location;
  std::string www_authenticate;
  std::string error_code;  // X-Error-Code of a hub
  std::optional<uint64_t> content_length;
  std::optional<long> retry_after_s;
  std::string body;  // Get only
};

// Takes apart "bytes 0-99/1000"; nullopt where it is anything else, or names no total.
struct ContentRange {
  uint64_t begin = 0, end = 0, total = 0;  // end exclusive
};
std::optional<ContentRange> ParseContentRange(std::string_view text);

// One libcurl transfer at a time, with our policy around it: no redirect is followed by libcurl, each
// socket's address is checked before it is opened, the token goes to its origin only, loopback knows no
// proxy.
class WebHandle {
 public:
  WebHandle(const WebOptions& options, const UrlPolicy& policy);
  ~WebHandle();
  WebHandle(const WebHandle&) = delete;

  // Sets up a GET of `url`. `range` "0-99" or ""; `if_range` an ETag or "". `sink` gets the body; false ends
  // the transfer. `on_head` is called once before the first byte of the body, with the answer's head; false
  // ends the transfer. `bearer` "" none: sent to this very URL.
  void Prepare(const Url& url, const std::string& range, const std::string& if_range,
               const std::string& bearer, std::function<bool(const WebAnswer&)> on_head,
               std::function<bool(const char*, size_t)> sink);
  void SetRate(uint64_t bytes_per_s);
  CURL* easy() { return easy_; }
  const WebAnswer& answer() const { return answer_; }
  // What an ended transfer means. OK for every HTTP status; `refused` policy errors come through.
  absl::Status Outcome(CURLcode code) const;

 private:
  static size_t OnHeader(char* data, size_t size, size_t count, void* self);
  static size_t OnBody(char* data, size_t size, size_t count, void* self);
  static curl_socket_t OnSocket(void* self, curlsocktype type, curl_sockaddr* address);

  const WebOptions& options_;
  const UrlPolicy& policy_;
  CURL* easy_;
  curl_slist* headers_ = nullptr;
  Url url_;
  bool through_proxy_ = false;
  WebAnswer answer_;
  bool head_told_ = false;
  absl::Status refused_;
  std::function<bool(const WebAnswer&)> on_head_;
  std::function<bool(const char*, size_t)> sink_;
  char error_[CURL_ERROR_SIZE] = {};
};

// Whether and as what a redirect is followed: policy, at most 10 hops, no address twice. `seen` grows.
absl::StatusOr<Url> FollowRedirect(const UrlPolicy& policy, const WebAnswer& answer,
                                   std::vector<std::string>& seen);

// A small document, redirects followed. `accept` is the Accept header; at most `max_bytes`. HTTP errors come
// as statuses: 401/403 kPermissionDenied, 404 kNotFound, 429 and 5xx kUnavailable. Those are tried again as
// `options` say.
absl::StatusOr<WebAnswer> Get(const WebOptions& options, const UrlPolicy& policy, const Url& url,
                              const std::string& accept, size_t max_bytes, const std::string& bearer = "");

// What an HTTP status means; OK for 2xx.
absl::Status StatusOfHttp(const WebAnswer& answer);

}  // namespace rumbo
