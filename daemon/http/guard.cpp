#include "daemon/http/guard.h"

#include <algorithm>

#include "base/status.h"

namespace rumbo {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool Contains(const std::vector<std::string>& list, std::string_view text) {
  const std::string wanted = Lower(text);
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

absl::Status Refused(Reason reason, std::string_view message, std::string_view next_step) {
  return Error(absl::StatusCode::kPermissionDenied, reason, message, next_step);
}

}  // namespace

Guard::Guard(const HttpOptions& options, const std::vector<uint16_t>& ports) {
  for (const uint16_t number : ports) {
    const std::string port = ":" + std::to_string(number);
    for (const char* name : {"127.0.0.1", "localhost", "[::1]"}) {
      hosts_.push_back(name + port);
      origins_.push_back("http://" + (name + port));
    }
  }
  for (const auto& host : options.allowed_hosts) hosts_.push_back(Lower(host));
  for (const auto& origin : options.allowed_origins) origins_.push_back(Lower(origin));
}

absl::Status Guard::Check(const HttpRequest& request) const {
  if (request.CountHeader("host") != 1 || !Contains(hosts_, request.Header("host"))) {
    return Refused(Reason::kHostRefused, "the Host header is not one of this server's names",
                   "Use http://" + hosts_[0] + ", or add the name to http-hosts.");
  }
  const size_t origins = request.CountHeader("origin");
  if (origins > 1 || (origins == 1 && !Contains(origins_, request.Header("origin")))) {
    return Refused(Reason::kOriginRefused, "requests from this web origin are not allowed",
                   "Add the exact origin to http-origins if you trust that page.");
  }
  if (origins == 1) return absl::OkStatus();
  // Browsers say where a request without Origin came from; native clients send no Sec-Fetch-Site.
  const std::string site = Lower(request.Header("sec-fetch-site"));
  if (!site.empty() && site != "same-origin" && site != "none") {
    return Refused(Reason::kOriginRefused, "requests from other web pages are not allowed",
                   "Open the address itself, or add the page's origin to http-origins.");
  }
  return absl::OkStatus();
}

}  // namespace rumbo
