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
  AddConfigured(options);
}

Guard Guard::ForRemote(const HttpOptions& options, const std::string& address, uint16_t port) {
  Guard guard;
  guard.any_address_ = address == "0.0.0.0";
  if (!guard.any_address_) {
    guard.hosts_.push_back(address + ":" + std::to_string(port));
    guard.origins_.push_back("https://" + guard.hosts_.back());
  }
  guard.AddConfigured(options);
  return guard;
}

void Guard::AddConfigured(const HttpOptions& options) {
  for (const auto& host : options.allowed_hosts) hosts_.push_back(Lower(host));
  for (const auto& origin : options.allowed_origins) origins_.push_back(Lower(origin));
}

bool Guard::IsOwn(const HttpRequest& request, std::string_view host) const {
  return any_address_ && !request.own_name.empty() && host == request.own_name;
}

absl::Status Guard::Check(const HttpRequest& request) const {
  const std::string_view host = request.Header("host");
  if (request.CountHeader("host") != 1 || !(Contains(hosts_, host) || IsOwn(request, host))) {
    return Refused(Reason::kHostRefused, "the Host header is not one of this server's names",
                   hosts_.empty() ? "Use the machine's address, or add the name to http-hosts."
                                  : "Use " + hosts_[0] + ", or add the name to http-hosts.");
  }
  const size_t origins = request.CountHeader("origin");
  const std::string_view origin = request.Header("origin");
  constexpr std::string_view kHttps = "https://";
  const bool own_origin =
      origin.substr(0, kHttps.size()) == kHttps && IsOwn(request, origin.substr(kHttps.size()));
  if (origins > 1 || (origins == 1 && !own_origin && !Contains(origins_, origin))) {
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
