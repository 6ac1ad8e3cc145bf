#include "daemon/http/access.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

constexpr size_t kMinTokenBytes = 24;
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr std::string_view kUid = "uid:";
constexpr Scope kScopes[] = {Scope::kLive, Scope::kList, Scope::kInference, Scope::kModels, Scope::kAdmin};

constexpr uint32_t Bit(Scope scope) { return 1u << static_cast<int>(scope); }

std::string_view NextWord(std::string_view& line) {
  const size_t from = line.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return line = {};
  line.remove_prefix(from);
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  line.remove_prefix(word.size());
  return word;
}

absl::StatusOr<uint32_t> ParseScopes(std::string_view text) {
  uint32_t scopes = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    uint32_t bit = 0;
    for (const Scope scope : kScopes) {
      if (word == Word(scope)) bit = scope == Scope::kAdmin ? ~0u : Bit(scope);
    }
    if (bit == 0) return InvalidArgument("unknown scope", "Scopes are list, inference, models and admin.");
    scopes |= bit;
  }
  return scopes;
}

absl::Status CheckMode(const struct stat& info, uint32_t own_uid) {
  if (!S_ISREG(info.st_mode) || info.st_uid != own_uid || (info.st_mode & 077) != 0) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kPermissionDenied,
                 "the token file is open to others", "Make it a file of the daemon's user with mode 0600.");
  }
  return absl::OkStatus();
}

}  // namespace

const char* Word(Scope scope) {
  switch (scope) {
    case Scope::kLive:
      return "live";
    case Scope::kList:
      return "list";
    case Scope::kInference:
      return "inference";
    case Scope::kModels:
      return "models";
    case Scope::kAdmin:
      return "admin";
  }
  return "";
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

absl::StatusOr<std::vector<ApiToken>> ParseTokens(std::string_view text) {
  std::vector<ApiToken> tokens;
  int number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    const auto bad = [number](std::string_view what) {
      return InvalidArgument("token file, line " + std::to_string(number) + ": " + std::string(what),
                             "A line is NAME SCOPE[,SCOPE...] TOKEN.");
    };
    ApiToken token;
    token.name = std::string(NextWord(line));
    if (token.name.empty() || token.name.front() == '#') continue;
    const auto scopes = ParseScopes(NextWord(line));
    if (!scopes.ok()) return bad(MessageOf(scopes.status()));
    token.scopes = *scopes;
    token.secret = std::string(NextWord(line));
    if (token.secret.rfind(kUid, 0) == 0) {
      uint32_t uid = 0;
      const char* const end = token.secret.data() + token.secret.size();
      const auto read = std::from_chars(token.secret.data() + kUid.size(), end, uid);
      if (read.ec != std::errc() || read.ptr != end || uid == UINT32_MAX)
        return bad("that is no user's number");
      token.uid = uid;
      token.secret.clear();
    } else if (token.secret.size() < kMinTokenBytes) {
      return bad("the token is missing or too short");
    }
    if (!NextWord(line).empty()) return bad("there is something after the token");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

absl::Status Access::Load() {
  tokens_.clear();
  changed_ = {};
  if (file_.empty()) return absl::OkStatus();
  struct stat info;
  if (::lstat(file_.c_str(), &info) != 0) return absl::OkStatus();
  changed_ = info.st_mtim;
  RUMBO_RETURN_IF_ERROR(CheckMode(info, own_uid_));
  RUMBO_ASSIGN_OR_RETURN(const std::string text, ReadFile(file_, kMaxFileBytes));
  RUMBO_ASSIGN_OR_RETURN(tokens_, ParseTokens(text));
  return absl::OkStatus();
}

void Access::Refresh() {
  if (file_.empty()) return;
  struct stat info = {};
  if (::lstat(file_.c_str(), &info) != 0) info.st_mtim = {};
  if (info.st_mtim.tv_sec == changed_.tv_sec && info.st_mtim.tv_nsec == changed_.tv_nsec) return;
  if (const absl::Status status = Load(); !status.ok()) {
    tokens_.clear();
    spdlog::warn("no API token is accepted: {}", MessageOf(status));
  }
}

bool Access::any_token() const {
  return std::any_of(tokens_.begin(), tokens_.end(), [](const ApiToken& t) { return !t.uid; });
}

const ApiToken* Access::FindToken(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  for (const auto& [name, value] : request.headers) {
    std::string_view secret;
    if (name == "x-api-key") {
      secret = value;
    } else if (name == "authorization" && value.size() > kBearer.size()) {
      std::string scheme = value.substr(0, kBearer.size());
      for (char& c : scheme) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      if (scheme == kBearer) secret = std::string_view(value).substr(kBearer.size());
    }
    if (secret.empty()) continue;
    Refresh();
    const ApiToken* found = nullptr;
    for (const ApiToken& token : tokens_) {
      if (!token.uid && EqualInConstantTime(token.secret, secret)) found = &token;
    }
    if (found != nullptr) return found;
  }
  return nullptr;
}

absl::Status Access::Authorize(HttpRequest& request, Scope scope) {
  const bool own = request.client.uid == own_uid_;
  request.principal =
      "uid:" + (request.client.uid == UINT32_MAX ? "unknown" : std::to_string(request.client.uid));
  if (scope == Scope::kLive) return absl::OkStatus();
  uint32_t scopes = own ? Bit(Scope::kList) | Bit(Scope::kInference) : 0;
  if (request.client.uid != UINT32_MAX) {
    Refresh();
    for (const ApiToken& grant : tokens_) {
      if (grant.uid == request.client.uid) scopes |= grant.scopes;
    }
  }
  const ApiToken* token = FindToken(request);
  if (token != nullptr) {
    request.principal = "token:" + token->name;
    scopes |= token->scopes;
  }
  request.scopes = scopes;
  request.own_user = own;
  if ((scopes & Bit(scope)) != 0) return absl::OkStatus();
  const std::string next = "Send a token with the scope " + std::string(Word(scope)) +
                           " as Authorization: Bearer; docs/http.md says how to make one.";
  if (token == nullptr) {
    return Error(absl::StatusCode::kUnauthenticated, Reason::kUnauthenticated, "this needs an API token",
                 next);
  }
  return Error(absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied, "this token may not do that",
               next);
}

}  // namespace rumbo
