#include "daemon/store/fetcher.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <chrono>

#include "base/os/files.h"
#include "base/os/subprocess.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/reasons.h"
#include "daemon/store/reference.h"
#include "daemon/store/url.h"

namespace rumbo {
namespace {

namespace json = boost::json;
using Steady = std::chrono::steady_clock;

constexpr size_t kMaxLine = 48 << 20;
constexpr std::chrono::seconds kStopGrace{5};

std::string TextOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string().c_str()) : "";
}

uint64_t NumberOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_int64() && value->get_int64() > 0
             ? static_cast<uint64_t>(value->get_int64())
             : 0;
}

// host:port of an address: the user named what stands in the configuration.
void AddHost(const std::string& address, json::array& named) {
  if (const auto url = ParseUrl(address); url.ok())
    named.push_back(json::string(url->host + ":" + std::to_string(url->port)));
}

absl::Status ErrorOf(const json::object& event) {
  const int code = static_cast<int>(NumberOf(event, "code"));
  const Reason reason = ReasonFromCode(TextOf(event, "reason")).value_or(kDownloadFailed);
  if (code <= 0 || code > 16) return Internal("rumbo-fetch reports no error");
  return Error(static_cast<absl::StatusCode>(code), reason,
               EscapeForLog(SanitizeUtf8(TextOf(event, "message")), 1000),
               EscapeForLog(SanitizeUtf8(TextOf(event, "next_step")), 1000));
}

std::string OriginOf(const std::string& endpoint) {
  const auto url = ParseUrl(endpoint);
  return url.ok() ? url->origin() : "";
}

std::string TokenIn(const std::string& path) {
  if (path.empty()) return "";
  const auto text = ReadFile(path, 4096);
  if (!text.ok()) return "";
  std::string token = *text;
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' '))
    token.pop_back();
  for (const char c : token) {
    if (c <= ' ' || c >= 127) return "";
  }
  return token;
}

}  // namespace

Fetcher::Fetcher(std::string bin_dir, FetchSettings settings, std::string folder)
    : bin_dir_(std::move(bin_dir)), settings_(std::move(settings)), folder_(std::move(folder)) {}

absl::StatusOr<std::string> Fetcher::Run(const std::string& request, const std::atomic<bool>& stop,
                                         const std::function<void(const FetchProgress&)>& progress) const {
  if (settings_.offline) {
    return Error(
        absl::StatusCode::kFailedPrecondition, Reason::kNotAllowedByPolicy,
        "the daemon is offline: it downloads nothing",
        "Import a file (`rumbo import`), adopt one (`rumbo models adopt`), or turn the option offline off.");
  }
  boost::system::error_code ignored;
  json::object object = json::parse(request, ignored).as_object();
  json::array named;
  for (const std::string& host : settings_.named_hosts) named.push_back(json::string(host));
  AddHost(settings_.hub, named);
  for (const std::string& mirror : settings_.hub_mirrors) AddHost(mirror, named);
  AddHost(settings_.registry, named);
  if (const json::value* more = object.if_contains("named_too"); more != nullptr && more->is_array()) {
    for (const json::value& host : more->get_array()) named.push_back(host);
  }
  object.erase("named_too");
  object["named"] = std::move(named);
  object["folder"] = folder_;
  object["proxy"] = settings_.proxy;
  object["rate"] = settings_.rate;
  object["connections"] = settings_.connections;
  object["stall_s"] = settings_.stall_s;
  object["retry_ms"] = settings_.retry_ms;
  if (const std::string token = TokenIn(settings_.token_file); !token.empty()) {
    object["token"] = token;
    object["token_origin"] = OriginOf(settings_.hub);
  }

  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd in_read(in[0]), in_write(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd out_read(out[0]), out_write(out[1]);
  SpawnSpec spec;
  spec.argv = {bin_dir_ + "/rumbo-fetch"};
  spec.env = CleanEnvironment();
  for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy",
                           "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"}) {
    if (const char* value = std::getenv(name)) spec.env.push_back(std::string(name) + "=" + value);
  }
  spec.isolate = false;  // it needs the network; it confines itself
  spec.fds = {{in_read.get(), 0}, {out_write.get(), 1}};
  RUMBO_ASSIGN_OR_RETURN(Child child, Spawn(spec));
  in_read.reset();
  out_write.reset();
  const std::string line = json::serialize(object) + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::write(in_write.get(), line.data() + at, line.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }

  absl::StatusOr<std::string> result = Error(absl::StatusCode::kUnavailable, kDownloadFailed,
                                             "rumbo-fetch ended without an answer", "`rumbo pull` goes on.");
  std::string buffer;
  std::vector<char> block(1 << 16);
  std::optional<Steady::time_point> kill_at;
  for (;;) {
    if (stop && !kill_at) {
      in_write.reset();  // it keeps what it has and ends
      kill_at = Steady::now() + kStopGrace;
    }
    if (kill_at && Steady::now() > *kill_at) break;
    pollfd fd = {out_read.get(), POLLIN, 0};
    const int ready = ::poll(&fd, 1, 50);
    if (ready < 0 && errno != EINTR) break;
    if (ready <= 0) continue;
    const ssize_t n = ::read(out_read.get(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    buffer.append(block.data(), static_cast<size_t>(n));
    if (buffer.size() > kMaxLine) break;
    for (size_t end; (end = buffer.find('\n')) != std::string::npos;) {
      std::string text = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      boost::system::error_code error;
      const json::value event = json::parse(text, error);
      if (error || !event.is_object()) continue;
      const json::object& o = event.get_object();
      const std::string kind = TextOf(o, "event");
      if (kind == "error") result = ErrorOf(o);
      if (kind == "done") result = std::move(text);
      if (kind == "progress" && progress) {
        FetchProgress p;
        p.step = TextOf(o, "step") == "verify" ? "verify" : "download";
        p.done = NumberOf(o, "done");
        if (o.contains("total")) p.total = NumberOf(o, "total");
        const json::value* speed = o.if_contains("bytes_per_s");
        if (speed != nullptr && speed->is_double()) p.bytes_per_s = speed->get_double();
        progress(p);
      }
    }
  }
  in_write.reset();
  KillTree(child);
  Reap(child);
  if (stop && !result.ok() && !absl::IsCancelled(result.status()))
    return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the download was stopped");
  return result;
}

namespace {

absl::StatusOr<RemoteModel> ModelIn(const absl::StatusOr<std::string>& text, std::string* bearer) {
  if (!text.ok()) return text.status();
  boost::system::error_code error;
  const json::value value = json::parse(*text, error);
  const json::object& o = value.as_object();
  if (bearer != nullptr) *bearer = TextOf(o, "bearer");
  const json::value* model = o.if_contains("model");
  if (model == nullptr) return Internal("rumbo-fetch gave no model");
  return RemoteModelFromJson(json::serialize(*model));
}

}  // namespace

absl::StatusOr<RemoteModel> Fetcher::Hub(const std::string& repository, const std::string& revision,
                                         const std::atomic<bool>& stop) const {
  std::vector<std::string> endpoints = {settings_.hub};
  endpoints.insert(endpoints.end(), settings_.hub_mirrors.begin(), settings_.hub_mirrors.end());
  absl::Status last;
  for (const std::string& endpoint : endpoints) {
    auto model = ModelIn(
        Run(json::serialize(json::object{
                {"op", "hub"}, {"endpoint", endpoint}, {"repository", repository}, {"revision", revision}}),
            stop, nullptr),
        nullptr);
    if (model.ok()) return model;
    last = model.status();
    if (!absl::IsUnavailable(last)) break;
  }
  return last;
}

absl::StatusOr<RemoteModel> Fetcher::Registry(const std::string& host, const std::string& repository,
                                              const std::string& tag, std::string* bearer,
                                              const std::atomic<bool>& stop) const {
  std::string endpoint = settings_.registry;
  json::array named;
  if (!host.empty()) {
    RUMBO_ASSIGN_OR_RETURN(Url url, ParseUrl("https://" + host));
    if (url.names_loopback()) {
      RUMBO_ASSIGN_OR_RETURN(url, ParseUrl("http://" + host));
    }
    endpoint = url.scheme + "://" + url.authority();
    AddHost(endpoint, named);
  }
  return ModelIn(Run(json::serialize(json::object{{"op", "registry"},
                                                  {"endpoint", endpoint},
                                                  {"repository", repository},
                                                  {"tag", tag},
                                                  {"named_too", std::move(named)}}),
                     stop, nullptr),
                 bearer);
}

std::string Fetcher::RequestFor(const RemoteFile& file, const std::string& out, const std::string& bearer,
                                const std::vector<std::string>& named,
                                std::optional<uint64_t> only_first) const {
  json::array urls{json::string(file.url)}, hosts;
  // The same path at each mirror.
  const std::string origin = OriginOf(settings_.hub);
  const auto url = ParseUrl(file.url);
  if (url.ok() && url->origin() == origin) {
    for (const std::string& mirror : settings_.hub_mirrors) {
      std::string base = mirror;
      while (!base.empty() && base.back() == '/') base.pop_back();
      urls.push_back(json::string(base + url->target));
    }
  }
  for (const std::string& host : named) hosts.push_back(json::string(host));
  json::object request{{"op", "blob"},
                       {"urls", std::move(urls)},
                       {"out", out},
                       {"sha256", file.sha256},
                       {"git_sha1", file.git_sha1},
                       {"bearer", bearer},
                       {"named_too", std::move(hosts)}};
  if (file.bytes) request["bytes"] = *file.bytes;
  if (only_first) request["only_first"] = *only_first;
  return json::serialize(request);
}

absl::StatusOr<FetchedBlob> Fetcher::Blob(const RemoteFile& file, const std::string& key,
                                          const std::string& bearer, const std::vector<std::string>& named,
                                          const std::atomic<bool>& stop,
                                          const std::function<void(const FetchProgress&)>& progress) const {
  RUMBO_ASSIGN_OR_RETURN(
      const std::string done,
      Run(RequestFor(file, folder_ + "/" + key, bearer, named, std::nullopt), stop, progress));
  const json::value value = json::parse(done);
  FetchedBlob blob{TextOf(value.get_object(), "sha256"), NumberOf(value.get_object(), "bytes"),
                   NumberOf(value.get_object(), "resumed")};
  if (!IsSha256(blob.sha256) || (!file.sha256.empty() && blob.sha256 != file.sha256))
    return Internal("rumbo-fetch gave another hash");
  return blob;
}

absl::Status Fetcher::Head(const RemoteFile& file, const std::string& name, uint64_t bytes,
                           const std::string& bearer, const std::vector<std::string>& named,
                           const std::atomic<bool>& stop) const {
  return Run(RequestFor(file, folder_ + "/" + name, bearer, named, bytes), stop, nullptr).status();
}

absl::StatusOr<std::vector<SearchHit>> Fetcher::Search(const std::string& query,
                                                       const std::atomic<bool>& stop) const {
  RUMBO_ASSIGN_OR_RETURN(
      const std::string text,
      Run(json::serialize(
              json::object{{"op", "search"}, {"endpoint", settings_.hub}, {"query", query}, {"limit", 20}}),
          stop, nullptr));
  std::vector<SearchHit> hits;
  const json::value value = json::parse(text);
  const json::value* list = value.get_object().if_contains("hits");
  if (list == nullptr || !list->is_array()) return hits;
  for (const json::value& item : list->get_array()) {
    const json::object* o = item.if_object();
    if (o == nullptr) continue;
    SearchHit hit;
    hit.reference = "hf:" + TextOf(*o, "repository");
    hit.title = TextOf(*o, "repository");
    hit.licence = TextOf(*o, "licence");
    hit.origin = "hub";
    hit.downloads = NumberOf(*o, "downloads");
    hit.source = settings_.hub;
    hits.push_back(std::move(hit));
  }
  return hits;
}

}  // namespace rumbo
