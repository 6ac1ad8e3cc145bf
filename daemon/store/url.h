#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

// Which addresses downloads may reach. Pure: no look-up, no socket; the caller asks for every hop and again
// for every address it is about to connect to (a name may resolve to something else by then).
namespace rumbo {

// An http or https address in one spelling. Only what this parser understood is ever handed on, so that no
// other parser can read something else in it.
struct Url {
  std::string scheme;  // "http", "https"
  std::string host;    // lower case; an IPv6 address without its brackets
  uint16_t port = 0;   // always set
  std::string target;  // "/path?query"
  bool ipv6 = false;
  bool ipv4 = false;

  std::string authority() const;  // host[:port], the port where it is not the scheme's
  std::string origin() const;     // "https://host:port"
  std::string text() const;       // the whole
  // "localhost" or below it, 127.0.0.0/8, [::1].
  bool names_loopback() const;
};

// Refuses user names, fragments, blanks, control and non-ASCII characters, backslashes, other schemes,
// numbers that only some parsers take for addresses (0x7f.1, 127.1, 2130706433), and more than 8 KiB.
absl::StatusOr<Url> ParseUrl(std::string_view text);

// `location` of a redirect, against the page that sent it.
absl::StatusOr<Url> ResolveLocation(const Url& base, std::string_view location);

enum class AddressKind { kPublic, kLoopback, kPrivate, kLinkLocal, kReserved };
const char* Word(AddressKind kind);
// Looks through IPv4-mapped, IPv4-compatible, NAT64, 6to4 and Teredo addresses.
AddressKind ClassifyAddress(const sockaddr* address);

class UrlPolicy {
 public:
  // `named`: "host" or "host:port" that the user named in a reference or in the configuration. Only those may
  // be, or resolve to, an address that is not public.
  explicit UrlPolicy(const std::vector<std::string>& named) : named_(named.begin(), named.end()) {}

  void AddNamed(const Url& url) { named_.insert(url.host + ":" + std::to_string(url.port)); }
  bool IsNamed(const Url& url) const;

  // Whether `to` may be asked, having come from `from` (nullopt: the first hop).
  // Errors: kPermissionDenied (kNotAllowedByPolicy).
  absl::Status CheckHop(const std::optional<Url>& from, const Url& to) const;

  // Whether a socket to `address` may be opened on behalf of `url`.
  absl::Status CheckAddress(const Url& url, const sockaddr* address) const;

 private:
  std::set<std::string> named_;
};

}  // namespace rumbo
