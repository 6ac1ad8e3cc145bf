#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "daemon/http/exchange.h"
#include "daemon/http/options.h"

namespace rumbo {

// Keeps web pages out: a page in the user's browser can send requests to loopback, but it cannot choose the
// Host and Origin headers. Checked before anything else looks at a request. Immutable, thread-safe.
class Guard {
 public:
  // The loopback names with any of `ports`, plain HTTP.
  Guard(const HttpOptions& options, const std::vector<uint16_t>& ports);

  // `address`:`port` over TLS; where it is 0.0.0.0, whichever of the machine's addresses the caller reached.
  static Guard ForRemote(const HttpOptions& options, const std::string& address, uint16_t port);

  // kPermissionDenied with kHostRefused or kOriginRefused. No cross-origin grant is ever sent, so what passes
  // here is what native clients send: an exact Host, no Origin or one of ours, no sign of a foreign page.
  absl::Status Check(const HttpRequest& request) const;

 private:
  Guard() = default;
  void AddConfigured(const HttpOptions& options);
  bool IsOwn(const HttpRequest& request, std::string_view host) const;

  std::vector<std::string> hosts_;    // lower case
  std::vector<std::string> origins_;  // lower case
  bool any_address_ = false;          // request.own_name is a host, https:// before it an origin
};

}  // namespace rumbo
