#include "daemon/store/fetch/hub.h"

#include <boost/json.hpp>
#include <map>

#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/reasons.h"
#include "daemon/store/reference.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDocument = 32 << 20;
constexpr char kManifestTypes[] =
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json";

std::string EscapeQuery(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto b = static_cast<unsigned char>(c);
    if ((b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') || b == '-' || b == '.' ||
        b == '_' || b == '~') {
      out += c;
    } else {
      out += '%';
      out += kDigits[b >> 4];
      out += kDigits[b & 15];
    }
  }
  return out;
}

absl::StatusOr<Url> At(const std::string& endpoint, const std::string& target) {
  std::string base = endpoint;
  while (!base.empty() && base.back() == '/') base.pop_back();
  return ParseUrl(base + target);
}

}  // namespace

std::string EscapePath(std::string_view path) {
  std::string out;
  for (size_t at = 0; at <= path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    if (at > 0) out += '/';
    out += EscapeQuery(path.substr(at, slash - at));
    at = slash + 1;
  }
  return out;
}

absl::StatusOr<RemoteModel> ResolveHub(const WebOptions& options, const UrlPolicy& policy,
                                       const std::string& endpoint, const std::string& repository,
                                       const std::string& revision) {
  RUMBO_ASSIGN_OR_RETURN(const Url url, At(endpoint, "/api/models/" + EscapePath(repository) + "/revision/" +
                                                         EscapeQuery(revision) + "?blobs=true"));
  RUMBO_ASSIGN_OR_RETURN(const WebAnswer answer, Get(options, policy, url, "application/json", kMaxDocument));
  if (answer.status == 401) {
    // The hub says so too where there is no such repository.
    return Error(
        absl::StatusCode::kNotFound, Reason::kModelNotFound,
        answer.url.authority() + " does not show " + repository + ": it does not exist or is private",
        "Check the name. For a private model set the option hub-token-file.");
  }
  RUMBO_ASSIGN_OR_RETURN(RemoteModel model, ParseHubModel(answer.body));
  for (RemoteFile& file : model.files) {
    RUMBO_ASSIGN_OR_RETURN(const Url at, At(endpoint, "/" + EscapePath(repository) + "/resolve/" +
                                                          model.revision + "/" + EscapePath(file.path)));
    file.url = at.text();
  }
  return model;
}

absl::StatusOr<Url> TokenAddress(const UrlPolicy& policy, const Url& registry, std::string_view challenge) {
  if (challenge.substr(0, 7) != "Bearer ") return InvalidArgument("the registry asks for a password");
  challenge.remove_prefix(7);
  std::map<std::string, std::string> fields;
  while (!challenge.empty() && fields.size() < 8) {
    const size_t equals = challenge.find("=\"");
    if (equals == challenge.npos) break;
    std::string key(challenge.substr(0, equals));
    while (!key.empty() && (key[0] == ' ' || key[0] == ',')) key.erase(0, 1);
    const size_t close = challenge.find('"', equals + 2);
    if (close == challenge.npos) break;
    fields[key] = std::string(challenge.substr(equals + 2, close - equals - 2));
    challenge.remove_prefix(close + 1);
  }
  RUMBO_ASSIGN_OR_RETURN(Url realm, ParseUrl(fields["realm"]));
  RUMBO_RETURN_IF_ERROR(policy.CheckHop(registry, realm));
  realm.target += (realm.target.find('?') == std::string::npos ? "?" : "&") +
                  ("service=" + EscapeQuery(fields["service"])) + "&scope=" + EscapeQuery(fields["scope"]);
  return realm;
}

absl::StatusOr<RemoteModel> ResolveRegistry(const WebOptions& options, const UrlPolicy& policy,
                                            const std::string& endpoint, const std::string& repository,
                                            const std::string& tag, std::string* bearer) {
  RUMBO_ASSIGN_OR_RETURN(const Url url,
                         At(endpoint, "/v2/" + EscapePath(repository) + "/manifests/" + EscapeQuery(tag)));
  RUMBO_ASSIGN_OR_RETURN(WebAnswer answer, Get(options, policy, url, kManifestTypes, kMaxDocument));
  if (answer.status == 401) {
    // Only ever a token for everybody: no name, password or key of the user is sent anywhere.
    WebOptions nobody = options;
    nobody.token.clear();
    RUMBO_ASSIGN_OR_RETURN(const Url realm, TokenAddress(policy, answer.url, answer.www_authenticate));
    RUMBO_ASSIGN_OR_RETURN(const WebAnswer given, Get(nobody, policy, realm, "application/json", 1 << 20));
    boost::system::error_code error;
    const json::value value = json::parse(given.body, error);
    const json::object* object = error ? nullptr : value.if_object();
    for (const char* key : {"token", "access_token"}) {
      const json::value* token = object != nullptr ? object->if_contains(key) : nullptr;
      if (token != nullptr && token->is_string() && bearer->empty()) *bearer = token->get_string().c_str();
    }
    for (const char c : *bearer) {
      if (c <= ' ' || c >= 127) return InvalidArgument("the registry's token makes no sense");
    }
    RUMBO_ASSIGN_OR_RETURN(answer, Get(options, policy, url, kManifestTypes, kMaxDocument, *bearer));
    if (answer.status == 401) {
      return Error(absl::StatusCode::kPermissionDenied, kDownloadFailed,
                   url.authority() + " does not give " + repository + " to everybody");
    }
  }
  RUMBO_ASSIGN_OR_RETURN(RemoteModel model, ParseOciManifest(answer.body));
  for (RemoteFile& file : model.files) {
    RUMBO_ASSIGN_OR_RETURN(const Url at,
                           At(endpoint, "/v2/" + EscapePath(repository) + "/blobs/sha256:" + file.sha256));
    file.url = at.text();
  }
  return model;
}

absl::StatusOr<std::vector<HubHit>> SearchHub(const WebOptions& options, const UrlPolicy& policy,
                                              const std::string& endpoint, const std::string& query,
                                              int limit) {
  RUMBO_ASSIGN_OR_RETURN(
      const Url url,
      At(endpoint, "/api/models?search=" + EscapeQuery(query) +
                       "&filter=gguf&sort=downloads&direction=-1&full=true&limit=" + std::to_string(limit)));
  RUMBO_ASSIGN_OR_RETURN(const WebAnswer answer, Get(options, policy, url, "application/json", kMaxDocument));
  boost::system::error_code error;
  const json::value value = json::parse(answer.body, error);
  if (error || !value.is_array())
    return Error(absl::StatusCode::kUnavailable, kDownloadFailed, "the hub's answer is no list");
  std::vector<HubHit> hits;
  for (const json::value& item : value.get_array()) {
    const json::object* object = item.if_object();
    if (object == nullptr || hits.size() >= static_cast<size_t>(limit)) continue;
    HubHit hit;
    const json::value* id = object->if_contains("id");
    if (id == nullptr || !id->is_string()) continue;
    hit.repository = id->get_string().c_str();
    const auto reference = ParseReference("hf:" + hit.repository);
    if (!reference.ok()) continue;  // nothing that could be pulled
    const json::value* downloads = object->if_contains("downloads");
    if (downloads != nullptr && downloads->is_int64() && downloads->get_int64() > 0)
      hit.downloads = static_cast<uint64_t>(downloads->get_int64());
    const json::value* card = object->if_contains("cardData");
    const json::value* licence =
        card != nullptr && card->is_object() ? card->get_object().if_contains("license") : nullptr;
    if (licence != nullptr && licence->is_string())
      hit.licence = EscapeForLog(SanitizeUtf8(licence->get_string().c_str()), 60);
    hits.push_back(std::move(hit));
  }
  return hits;
}

}  // namespace rumbo
