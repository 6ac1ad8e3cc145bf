#include "daemon/store/url.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

constexpr size_t kMaxUrl = 8192;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

char ToLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

absl::Status Bad(std::string_view text, const char* what) {
  return InvalidArgument("\"" + EscapeForLog(text, 120) + "\" is no address to download from: " + what,
                         "Give an https:// address without user name.");
}

absl::Status Refused(const std::string& message, std::string_view next = "") {
  return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowedByPolicy, message, next);
}

// Four decimal numbers, no leading zeros: what every parser reads alike.
bool IsStrictIpv4(std::string_view host) {
  in_addr address;
  const std::string text(host);
  if (::inet_pton(AF_INET, text.c_str(), &address) != 1) return false;
  char back[INET_ADDRSTRLEN];
  return ::inet_ntop(AF_INET, &address, back, sizeof back) != nullptr && text == back;
}

bool IsDnsName(std::string_view host) {
  if (host.empty() || host.size() > 253) return false;
  std::string_view label;
  for (size_t at = 0; at <= host.size();) {
    const size_t dot = std::min(host.find('.', at), host.size());
    label = host.substr(at, dot - at);
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') return false;
    for (const char c : label) {
      if (!((c >= 'a' && c <= 'z') || IsDigit(c) || c == '-' || c == '_')) return false;
    }
    at = dot + 1;
  }
  // "127.1" and "0x7f000001" are addresses to some parsers and names to others.
  const bool numeric = std::all_of(label.begin(), label.end(), IsDigit) ||
                       (label.size() >= 2 && label[0] == '0' && label[1] == 'x');
  return !numeric;
}

absl::Status ParseAuthority(std::string_view all, std::string_view authority, Url& out) {
  if (authority.find('@') != authority.npos) return Bad(all, "it holds a user name");
  std::string_view host = authority, port;
  bool has_port = false;
  if (!authority.empty() && authority[0] == '[') {
    const size_t close = authority.find(']');
    if (close == authority.npos) return Bad(all, "its host");
    host = authority.substr(1, close - 1);
    const std::string_view rest = authority.substr(close + 1);
    if (!rest.empty() && rest[0] != ':') return Bad(all, "its host");
    has_port = !rest.empty();
    port = has_port ? rest.substr(1) : rest;
    in6_addr address;
    if (::inet_pton(AF_INET6, std::string(host).c_str(), &address) != 1) return Bad(all, "its host");
    char text[INET6_ADDRSTRLEN];
    ::inet_ntop(AF_INET6, &address, text, sizeof text);
    out.host = text;
    out.ipv6 = true;
  } else {
    if (const size_t colon = authority.find(':'); colon != authority.npos) {
      host = authority.substr(0, colon);
      port = authority.substr(colon + 1);
      has_port = true;
    }
    out.host.clear();
    for (const char c : host) out.host += ToLower(c);
    if (IsStrictIpv4(out.host)) {
      out.ipv4 = true;
    } else if (!IsDnsName(out.host)) {
      return Bad(all, "its host");
    }
  }
  out.port = out.scheme == "https" ? 443 : 80;
  if (has_port) {
    if (port.empty() || port.size() > 5 || !std::all_of(port.begin(), port.end(), IsDigit))
      return Bad(all, "its port");
    int number = 0;
    for (const char c : port) number = number * 10 + (c - '0');
    if (number < 1 || number > 65535) return Bad(all, "its port");
    out.port = static_cast<uint16_t>(number);
  }
  return absl::OkStatus();
}

AddressKind ClassifyV4(uint32_t a) {
  const auto in = [a](uint32_t net, int bits) { return (a >> (32 - bits)) == (net >> (32 - bits)); };
  if (in(0x7f000000, 8)) return AddressKind::kLoopback;
  if (in(0x0a000000, 8) || in(0xac100000, 12) || in(0xc0a80000, 16) || in(0x64400000, 10))
    return AddressKind::kPrivate;
  if (in(0xa9fe0000, 16)) return AddressKind::kLinkLocal;
  if (in(0x00000000, 8) || in(0xc0000000, 24) || in(0xc0000200, 24) || in(0xc0586300, 24) ||
      in(0xc6120000, 15) || in(0xc6336400, 24) || in(0xcb007100, 24) || in(0xe0000000, 3)) {
    return AddressKind::kReserved;
  }
  return AddressKind::kPublic;
}

AddressKind ClassifyV6(const unsigned char* b) {
  const auto v4 = [b](int at) {
    return ClassifyV4(uint32_t{b[at]} << 24 | uint32_t{b[at + 1]} << 16 | uint32_t{b[at + 2]} << 8 |
                      b[at + 3]);
  };
  static constexpr unsigned char kZero[16] = {};
  if (std::memcmp(b, kZero, 15) == 0) return b[15] == 1 ? AddressKind::kLoopback : AddressKind::kReserved;
  if (std::memcmp(b, kZero, 10) == 0 && b[10] == 0xff && b[11] == 0xff) return v4(12);
  if (std::memcmp(b, kZero, 12) == 0) return v4(12);  // the old compatible form
  static constexpr unsigned char kNat64[12] = {0, 0x64, 0xff, 0x9b};
  if (std::memcmp(b, kNat64, 12) == 0) return v4(12);
  if (b[0] == 0 && b[1] == 0x64 && b[2] == 0xff && b[3] == 0x9b) return AddressKind::kPrivate;  // local NAT64
  if (b[0] == 0x20 && b[1] == 0x02) return v4(2);                                               // 6to4
  if (b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0) return AddressKind::kReserved;    // Teredo
  if (b[0] == 0x20 && b[1] == 0x01 && b[2] == 0x0d && b[3] == 0xb8) return AddressKind::kReserved;
  if (b[0] == 0xfe && (b[1] & 0xc0) == 0x80) return AddressKind::kLinkLocal;
  if (b[0] == 0xfe && (b[1] & 0xc0) == 0xc0) return AddressKind::kPrivate;
  if ((b[0] & 0xfe) == 0xfc) return AddressKind::kPrivate;
  return (b[0] & 0xe0) == 0x20 ? AddressKind::kPublic : AddressKind::kReserved;
}

}  // namespace

std::string Url::authority() const {
  const std::string name = ipv6 ? "[" + host + "]" : host;
  return port == (scheme == "https" ? 443 : 80) ? name : name + ":" + std::to_string(port);
}

std::string Url::origin() const {
  return scheme + "://" + (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string Url::text() const { return scheme + "://" + authority() + target; }

bool Url::names_loopback() const {
  if (ipv4) return host.compare(0, 4, "127.") == 0;
  if (ipv6) return host == "::1";
  return host == "localhost" || (host.size() > 10 && host.compare(host.size() - 10, 10, ".localhost") == 0);
}

absl::StatusOr<Url> ParseUrl(std::string_view text) {
  if (text.size() > kMaxUrl) return Bad(text, "it is too long");
  for (const char c : text) {
    if (c <= ' ' || c >= 127 || c == '\\' || c == '"' || c == '<' || c == '>')
      return Bad(text, "it holds a character that must be escaped");
  }
  Url out;
  const size_t colon = text.find("://");
  for (const char c : text.substr(0, colon == text.npos ? 0 : colon)) out.scheme += ToLower(c);
  if (out.scheme != "http" && out.scheme != "https") return Bad(text, "only https is downloaded from");
  const std::string_view rest = text.substr(colon + 3);
  if (rest.find('#') != rest.npos) return Bad(text, "it holds a fragment");
  const size_t end = std::min(rest.find_first_of("/?"), rest.size());
  RUMBO_RETURN_IF_ERROR(ParseAuthority(text, rest.substr(0, end), out));
  out.target = std::string(rest.substr(end));
  if (out.target.empty() || out.target[0] != '/') out.target.insert(0, "/");
  return out;
}

absl::StatusOr<Url> ResolveLocation(const Url& base, std::string_view location) {
  location = location.substr(0, location.find('#'));
  if (location.empty()) return Bad(location, "the redirect leads nowhere");
  // A scheme comes before any slash or question mark.
  const size_t colon = location.find(':'), stop = location.find_first_of("/?");
  if (colon != location.npos && (stop == location.npos || colon < stop)) return ParseUrl(location);
  if (location.substr(0, 2) == "//") return ParseUrl(base.scheme + ":" + std::string(location));
  if (location[0] == '/') return ParseUrl(base.scheme + "://" + base.authority() + std::string(location));
  std::string folder = base.target.substr(0, base.target.find('?'));
  folder = folder.substr(0, folder.rfind('/') + 1);
  return ParseUrl(base.scheme + "://" + base.authority() + folder + std::string(location));
}

const char* Word(AddressKind kind) {
  switch (kind) {
    case AddressKind::kPublic:
      return "public";
    case AddressKind::kLoopback:
      return "loopback";
    case AddressKind::kPrivate:
      return "private";
    case AddressKind::kLinkLocal:
      return "link-local";
    case AddressKind::kReserved:
      return "reserved";
  }
  return "";
}

AddressKind ClassifyAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof v4);
    return ClassifyV4(ntohl(v4.sin_addr.s_addr));
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof v6);
    return ClassifyV6(v6.sin6_addr.s6_addr);
  }
  return AddressKind::kReserved;
}

bool UrlPolicy::IsNamed(const Url& url) const {
  const std::string port = ":" + std::to_string(url.port);
  return named_.count(url.host + port) > 0 || named_.count(url.host) > 0;
}

absl::Status UrlPolicy::CheckHop(const std::optional<Url>& from, const Url& to) const {
  const std::string how = from ? from->authority() + " redirects to " : "the address is ";
  if (to.scheme == "http" && !IsNamed(to))
    return Refused(how + "http://" + to.authority() + ", which is not encrypted",
                   "Only https is followed, except to hosts you named.");
  if (IsNamed(to)) return absl::OkStatus();
  if (to.names_loopback()) {
    return Refused(how + to.authority() + ", an address of this machine that you did not name",
                   "Name it in the reference or in the option fetch-hosts if you mean it.");
  }
  sockaddr_storage address{};
  if (to.ipv4) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
    v4->sin_family = AF_INET;
    ::inet_pton(AF_INET, to.host.c_str(), &v4->sin_addr);
  } else if (to.ipv6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
    v6->sin6_family = AF_INET6;
    ::inet_pton(AF_INET6, to.host.c_str(), &v6->sin6_addr);
  } else {
    return absl::OkStatus();
  }
  return CheckAddress(to, reinterpret_cast<const sockaddr*>(&address));
}

absl::Status UrlPolicy::CheckAddress(const Url& url, const sockaddr* address) const {
  const AddressKind kind = ClassifyAddress(address);
  if (kind == AddressKind::kPublic || IsNamed(url)) return absl::OkStatus();
  return Refused(url.host + " is at a " + Word(kind) + " address, and you did not name that host",
                 "Name it in the option fetch-hosts if it is a server of yours.");
}

}  // namespace rumbo
