#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/http/exchange.h"

namespace rumbo {

// What a caller must be allowed for a route. Every route has one; there is no default.
//   live       says that the process runs; nobody is refused
//   list       sees models, instances, metrics
//   inference  asks models; a model that is not loaded is loaded
//   models     fetches and deletes models
//   admin      changes the daemon
enum class Scope { kLive, kList, kInference, kModels, kAdmin };
const char* Word(Scope scope);

// One line of the token file: NAME SCOPE[,SCOPE...] TOKEN. '#' begins a comment. Tokens have at least 24
// visible ASCII characters; `admin` includes everything, nothing else includes anything. "uid:N" in the place
// of a token gives the scopes to that user's loopback connections, as the kernel names them.
struct ApiToken {
  std::string name;
  uint32_t scopes = 0;  // bits 1 << Scope
  std::string secret;   // "" for a user
  std::optional<uint32_t> uid;
};
absl::StatusOr<std::vector<ApiToken>> ParseTokens(std::string_view text);

// Decides who asks and what they may. A token counts wherever it comes from; without one, a loopback peer of
// the daemon's own user gets list and inference; everything else is refused.
//
// The token file must belong to us and be closed to others (0600); one that is not refuses the start, and
// later gives no tokens at all. It is read again when it changes. Threading: one thread.
class Access {
 public:
  // `token_file` "": no tokens.
  Access(std::string token_file, uint32_t own_uid) : file_(std::move(token_file)), own_uid_(own_uid) {}

  // Reads the file; a missing one is fine.
  absl::Status Load();
  bool any_token() const;  // one that callers of other machines could show

  // Sets request.principal ("uid:1000", "token:NAME") and request.scopes. kUnauthenticated where nothing says
  // who asks, kPermissionDenied where they may not.
  absl::Status Authorize(HttpRequest& request, Scope scope);

 private:
  const ApiToken* FindToken(const HttpRequest& request);
  void Refresh();

  const std::string file_;
  const uint32_t own_uid_;
  std::vector<ApiToken> tokens_;
  struct timespec changed_ = {};
};

// Compares in a time that depends on the lengths alone.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace rumbo
