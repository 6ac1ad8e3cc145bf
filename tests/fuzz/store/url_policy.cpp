// Any two lines as an address and a redirect from it: what the policy lets through is public or named, and
// libcurl would be given nothing that this parser did not write itself.
#include <arpa/inet.h>

#include <cstdlib>
#include <cstring>

#include "daemon/store/url.h"

namespace {

bool Inner(const rumbo::Url& url) {
  sockaddr_storage address{};
  if (url.ipv4) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
    v4->sin_family = AF_INET;
    if (::inet_pton(AF_INET, url.host.c_str(), &v4->sin_addr) != 1) std::abort();
  } else if (url.ipv6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
    v6->sin6_family = AF_INET6;
    if (::inet_pton(AF_INET6, url.host.c_str(), &v6->sin6_addr) != 1) std::abort();
  } else {
    // What libc takes for a number must not have passed as a name.
    in_addr number;
    if (::inet_aton(url.host.c_str(), &number) != 0) std::abort();
    return url.names_loopback();
  }
  return rumbo::ClassifyAddress(reinterpret_cast<const sockaddr*>(&address)) != rumbo::AddressKind::kPublic;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rumbo;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  const auto base = ParseUrl(text.substr(0, line));
  if (!base.ok()) return 0;
  const auto again = ParseUrl(base->text());
  if (!again.ok() || again->text() != base->text()) std::abort();
  const UrlPolicy policy({"named.example"});
  const auto check = [&](const std::optional<Url>& from, const Url& to) {
    if (!policy.CheckHop(from, to).ok()) return;
    if (Inner(to)) std::abort();
    if (to.scheme != "https" && to.host != "named.example") std::abort();
  };
  check(std::nullopt, *base);
  if (line == std::string::npos) return 0;
  const auto next = ResolveLocation(*base, text.substr(line + 1));
  if (next.ok()) check(*base, *next);
  return 0;
}
