// rumbo-fetch: the one program of Rumbo with internet sockets. It reads one request, a line of JSON, from
// standard input, and prints lines of JSON: {"event":"progress",...} any number of times, then one
// {"event":"done",...} or {"event":"error","code","reason","message","next_step"}. When standard input ends,
// or says "stop", it keeps what it has and ends. It may write below one folder and read what names and
// certificates need, nothing else.
//
//   {"op":"hub","endpoint","repository","revision"}            -> done: {"model":{...}}
//   {"op":"registry","endpoint","repository","tag"}            -> done: {"model":{...},"bearer"}
//   {"op":"search","endpoint","query","limit"}                 -> done: {"hits":[...]}
//   {"op":"blob","urls","out","bytes","sha256","git_sha1","bearer","only_first"} -> done:
//   {"sha256","bytes","resumed"}
// Each may hold "folder" (where it may write), "named" (hosts), "token", "token_origin", "proxy", "rate",
// "connections", "stall_s", "connect_s", "retry_ms", "sync_ms", "attempts".

#include <curl/curl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <boost/json.hpp>
#include <cstdio>
#include <mutex>
#include <thread>

#include "base/os/sandbox.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/fetch/blob_download.h"
#include "daemon/store/fetch/hub.h"

namespace rumbo {
namespace {

namespace json = boost::json;

std::atomic<bool> g_stop{false};

void Print(const json::object& event) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  const std::string line = json::serialize(event) + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, line.data() + at, line.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      g_stop = true;  // nobody reads any more
      return;
    }
    at += static_cast<size_t>(n);
  }
}

int Fail(const absl::Status& status) {
  Print({{"event", "error"},
         {"code", static_cast<int>(status.code())},
         {"reason", std::string(ReasonCode(ReasonOf(status)))},
         {"message", SanitizeUtf8(MessageOf(status))},
         {"next_step", SanitizeUtf8(NextStepOf(status))}});
  return 1;
}

class Request {
 public:
  explicit Request(json::object object) : object_(std::move(object)) {}
  std::string Text(const char* key) const {
    const json::value* value = object_.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(value->get_string().c_str()) : "";
  }
  std::optional<uint64_t> Number(const char* key) const {
    const json::value* value = object_.if_contains(key);
    if (value == nullptr || !value->is_int64() || value->get_int64() < 0) return std::nullopt;
    return static_cast<uint64_t>(value->get_int64());
  }
  std::vector<std::string> Texts(const char* key) const {
    std::vector<std::string> out;
    const json::value* value = object_.if_contains(key);
    if (value == nullptr || !value->is_array()) return out;
    for (const json::value& item : value->get_array()) {
      if (item.is_string()) out.push_back(item.get_string().c_str());
    }
    return out;
  }

 private:
  const json::object object_;
};

absl::Status Confine(const std::string& folder) {
  SandboxOptions options;
  options.allow_internet = true;
  options.read_only = {"/etc",
                       "/usr/share/ca-certificates",
                       "/usr/local/share/ca-certificates",
                       "/usr/lib",
                       "/lib",
                       "/lib64",
                       "/run/systemd/resolve",
                       "/dev/urandom"};
  for (const char* name : {"SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"}) {
    if (const char* value = std::getenv(name)) options.read_only.push_back(value);
  }
  if (!folder.empty()) options.read_write = {folder};
  options.max_open_files = 256;
  RUMBO_ASSIGN_OR_RETURN(const SandboxReport report, EnterSandbox(options));
  for (const std::string& missing : report.missing)
    std::fprintf(stderr, "rumbo-fetch: %s\n", missing.c_str());
  return absl::OkStatus();
}

WebOptions OptionsOf(const Request& request) {
  WebOptions options;
  options.named_hosts = request.Texts("named");
  options.token = request.Text("token");
  options.token_origin = request.Text("token_origin");
  options.proxy = request.Text("proxy");
  options.rate = request.Number("rate").value_or(0);
  options.connections = static_cast<int>(std::min<uint64_t>(request.Number("connections").value_or(4), 16));
  options.stall_s = static_cast<long>(std::max<uint64_t>(request.Number("stall_s").value_or(30), 1));
  options.connect_s = static_cast<long>(std::max<uint64_t>(request.Number("connect_s").value_or(15), 1));
  options.retry_ms = static_cast<int>(std::min<uint64_t>(request.Number("retry_ms").value_or(300), 60000));
  options.sync_ms = static_cast<int>(std::min<uint64_t>(request.Number("sync_ms").value_or(1000), 60000));
  options.attempts = static_cast<int>(std::min<uint64_t>(request.Number("attempts").value_or(6), 100));
  return options;
}

int Blob(const Request& request, const WebOptions& options, const UrlPolicy& policy) {
  BlobRequest blob;
  for (const std::string& text : request.Texts("urls")) {
    const auto url = ParseUrl(text);
    if (!url.ok()) return Fail(url.status());
    blob.urls.push_back(*url);
  }
  blob.out = request.Text("out");
  blob.bytes = request.Number("bytes");
  blob.sha256 = request.Text("sha256");
  blob.git_sha1 = request.Text("git_sha1");
  blob.bearer = request.Text("bearer");
  blob.only_first = request.Number("only_first");
  const auto result = DownloadBlob(options, policy, blob, g_stop, [](const BlobProgress& progress) {
    json::object event{{"event", "progress"},
                       {"step", progress.step},
                       {"done", progress.done},
                       {"bytes_per_s", progress.bytes_per_s}};
    if (progress.total) event["total"] = *progress.total;
    Print(event);
  });
  if (!result.ok()) return Fail(result.status());
  Print({{"event", "done"},
         {"sha256", result->sha256},
         {"bytes", result->bytes},
         {"resumed", result->resumed}});
  return 0;
}

int Model(const absl::StatusOr<RemoteModel>& model, const std::string& bearer) {
  if (!model.ok()) return Fail(model.status());
  json::object done{{"event", "done"}, {"model", json::parse(RemoteModelToJson(*model))}};
  if (!bearer.empty()) done["bearer"] = bearer;
  Print(done);
  return 0;
}

int Search(const Request& request, const WebOptions& options, const UrlPolicy& policy) {
  const auto hits =
      SearchHub(options, policy, request.Text("endpoint"), request.Text("query"),
                static_cast<int>(std::min<uint64_t>(request.Number("limit").value_or(20), 100)));
  if (!hits.ok()) return Fail(hits.status());
  json::array list;
  for (const HubHit& hit : *hits)
    list.push_back({{"repository", hit.repository}, {"downloads", hit.downloads}, {"licence", hit.licence}});
  Print({{"event", "done"}, {"hits", std::move(list)}});
  return 0;
}

// The request: up to the first newline.
std::string ReadLine() {
  std::string line;
  char c;
  while (line.size() < (1 << 20)) {
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || c == '\n') break;
    line += c;
  }
  return line;
}

// Standard input ending, or anything more on it, means stop. For as long as the process lives.
void WatchInput() {
  std::thread([] {
    char c;
    ssize_t n;
    do {
      n = ::read(STDIN_FILENO, &c, 1);
    } while (n < 0 && errno == EINTR);
    g_stop = true;
  }).detach();
}

int Run(const Request& request) {
  if (const absl::Status confined = Confine(request.Text("folder")); !confined.ok()) return Fail(confined);
  WatchInput();  // after the sandbox: it must come before the first thread
  const WebOptions options = OptionsOf(request);
  const UrlPolicy policy(options.named_hosts);
  const std::string op = request.Text("op");
  std::string bearer;
  if (op == "blob") return Blob(request, options, policy);
  if (op == "search") return Search(request, options, policy);
  if (op == "hub") {
    return Model(ResolveHub(options, policy, request.Text("endpoint"), request.Text("repository"),
                            request.Text("revision")),
                 "");
  }
  if (op == "registry") {
    const auto model = ResolveRegistry(options, policy, request.Text("endpoint"), request.Text("repository"),
                                       request.Text("tag"), &bearer);
    return Model(model, bearer);
  }
  return Fail(InvalidArgument("the request's op is none that rumbo-fetch knows"));
}

}  // namespace
}  // namespace rumbo

int main() {
  using namespace rumbo;
  ::signal(SIGPIPE, SIG_IGN);
  try {
    const std::string line = ReadLine();
    boost::system::error_code error;
    json::value value = json::parse(line, error);
    if (error || !value.is_object()) {
      std::fputs("rumbo-fetch: a helper of rumbod; it reads one request from standard input\n", stderr);
      return 2;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const Request request(std::move(value.as_object()));
    ::_exit(Run(request));  // not by return: the watching thread is still there
  } catch (const std::exception& e) {
    return Fail(Internal(e.what()));
  }
}
