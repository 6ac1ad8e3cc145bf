#include "daemon/http/routes.h"

#include <algorithm>

#include "base/nearest.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/http/handlers.h"

namespace rumbo {
namespace {

constexpr Dialect kOpenAi = Dialect::kOpenAi;
constexpr Dialect kAnthropic = Dialect::kAnthropic;
constexpr Dialect kOllama = Dialect::kOllama;
constexpr Dialect kRumbo = Dialect::kRumbo;

constexpr Route kRoutes[] = {
    {"GET", "/", Scope::kLive, kOllama, HandleRoot, false},
    {"GET", "/health", Scope::kLive, kOpenAi, HandleHealth, false},
    {"GET", "/live", Scope::kLive, kOpenAi, HandleLive, false},
    {"GET", "/metrics", Scope::kList, kOpenAi, HandleMetrics, false},

    {"GET", "/v1/models", Scope::kList, kOpenAi, HandleModels, false},
    {"GET", "/v1/models/{}", Scope::kList, kOpenAi, HandleModel, false},
    {"POST", "/v1/completions", Scope::kInference, kOpenAi, HandleCompletions, true},
    {"POST", "/v1/chat/completions", Scope::kInference, kOpenAi, HandleChatCompletions, true},
    {"POST", "/v1/responses", Scope::kInference, kOpenAi, HandleResponses, true},
    {"POST", "/v1/embeddings", Scope::kInference, kOpenAi, HandleEmbeddings, true},
    {"POST", "/v1/rerank", Scope::kInference, kOpenAi, HandleRerank, true},
    {"POST", "/rerank", Scope::kInference, kOpenAi, HandleRerank, true},
    {"POST", "/v1/audio/transcriptions", Scope::kInference, kOpenAi, HandleUnimplemented, false},
    {"POST", "/v1/audio/translations", Scope::kInference, kOpenAi, HandleUnimplemented, false},
    {"POST", "/v1/audio/speech", Scope::kInference, kOpenAi, HandleUnimplemented, true},

    {"POST", "/v1/messages", Scope::kInference, kAnthropic, HandleMessages, true},
    {"POST", "/v1/messages/count_tokens", Scope::kInference, kAnthropic, HandleCountTokens, true},

    {"POST", "/api/generate", Scope::kInference, kOllama, HandleOllamaGenerate, true},
    {"POST", "/api/chat", Scope::kInference, kOllama, HandleOllamaChat, true},
    {"POST", "/api/embed", Scope::kInference, kOllama, HandleOllamaEmbed, true},
    {"POST", "/api/embeddings", Scope::kInference, kOllama, HandleOllamaEmbeddings, true},
    {"GET", "/api/tags", Scope::kList, kOllama, HandleOllamaTags, false},
    {"POST", "/api/show", Scope::kList, kOllama, HandleOllamaShow, true},
    {"GET", "/api/ps", Scope::kList, kOllama, HandleOllamaPs, false},
    {"GET", "/api/version", Scope::kLive, kOllama, HandleOllamaVersion, false},
    {"POST", "/api/pull", Scope::kModels, kOllama, HandleOllamaPull, true},
    {"DELETE", "/api/delete", Scope::kModels, kOllama, HandleOllamaDelete, true},
    {"POST", "/api/create", Scope::kModels, kOllama, HandleUnimplemented, true},
    {"POST", "/api/copy", Scope::kModels, kOllama, HandleUnimplemented, true},
    {"POST", "/api/push", Scope::kModels, kOllama, HandleUnimplemented, true},

    {"POST", "/tokenize", Scope::kInference, kOpenAi, HandleTokenize, true},
    {"POST", "/detokenize", Scope::kInference, kOpenAi, HandleDetokenize, true},
    {"GET", "/props", Scope::kInference, kOpenAi, HandleProps, false},

    {"GET", "/ui/{}", Scope::kLive, kRumbo, HandleDashboardFile, false},
    // rumbo.v1 as JSON: a method that is not here is not served.
    {"POST", "/rumbo/v1/DeviceService/ListDevices", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/DeviceService/WatchDevices", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/DeviceService/ListProfiles", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InstanceService/ListRequests", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InstanceService/ListInstances", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InstanceService/WatchInstances", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InstanceService/Lease", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/ListModels", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/GetModel", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/CheckModel", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/LoadModel", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/UnloadModel", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/PinModel", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/ImportModel", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/PullModel", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/DeleteModel", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/StopPull", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/SearchModels", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/VerifyModels", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/CollectGarbage", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/ExportModel", Scope::kAdmin, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/ModelService/AdoptModels", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/PlanService/MakePlan", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/PlanService/Explain", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/PlanService/Advise", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/PlanService/TuneModel", Scope::kModels, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InferenceService/Generate", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InferenceService/Chat", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InferenceService/Embed", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InferenceService/Rerank", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InferenceService/Tokenize", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InferenceService/Detokenize", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/InferenceService/Synthesize", Scope::kInference, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/AdminService/GetStatus", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/AdminService/ListEngines", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/AdminService/Doctor", Scope::kList, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/AdminService/WatchLogs", Scope::kAdmin, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/AdminService/Drain", Scope::kAdmin, kRumbo, HandleRpc, true},
    {"POST", "/rumbo/v1/AdminService/Reload", Scope::kAdmin, kRumbo, HandleRpc, true},
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || HexDigit(text[i + 1]) < 0 || HexDigit(text[i + 2]) < 0) return std::nullopt;
    out += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
    i += 2;
  }
  return out;
}

// A model or instance name in a path: no traversal, no control characters, nothing a file system minds.
bool IsPlainName(std::string_view name) {
  if (name.empty() || name.size() > 512 || !IsValidUtf8(name)) return false;
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  }
  return name != ".." && name.substr(0, 3) != "../" && name.find("/../") == std::string_view::npos &&
         !(name.size() >= 3 && name.substr(name.size() - 3) == "/..") && name.front() != '/';
}

bool PathMatches(const Route& route, std::string_view path, std::string_view& rest) {
  const std::string_view pattern = route.path;
  if (pattern.size() > 3 && pattern.substr(pattern.size() - 3) == "/{}") {
    const std::string_view prefix = pattern.substr(0, pattern.size() - 2);
    if (path.size() <= prefix.size() || path.substr(0, prefix.size()) != prefix) return false;
    rest = path.substr(prefix.size());
    return true;
  }
  rest = {};
  return path == pattern;
}

Dialect DialectOf(std::string_view path) {
  if (path.substr(0, 7) == "/rumbo/" || path.substr(0, 4) == "/ui/") return Dialect::kRumbo;
  if (path.substr(0, 5) == "/api/") return Dialect::kOllama;
  if (path.substr(0, 12) == "/v1/messages") return Dialect::kAnthropic;
  return Dialect::kOpenAi;
}

bool IsJson(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  constexpr std::string_view kJson = "application/json";
  if (type.size() != kJson.size()) return false;
  for (size_t i = 0; i < kJson.size(); ++i) {
    const char c = type[i] >= 'A' && type[i] <= 'Z' ? static_cast<char>(type[i] - 'A' + 'a') : type[i];
    if (c != kJson[i]) return false;
  }
  return true;
}

HttpReply Refuse(Dialect dialect, int status, Reason reason, std::string_view message,
                 std::string_view next) {
  HttpReply reply = ErrorReply(dialect, Error(absl::StatusCode::kInvalidArgument, reason, message, next));
  reply.status = status;
  return reply;
}

std::optional<HttpReply> CheckContent(const Route& route, const HttpRequest& request) {
  if (!request.Header("content-encoding").empty() && request.Header("content-encoding") != "identity") {
    return Refuse(route.dialect, 415, Reason::kInvalidArgument, "compressed request bodies are not accepted",
                  "Send the body as it is, without Content-Encoding.");
  }
  if (route.json_body &&
      (request.CountHeader("content-type") != 1 || !IsJson(request.Header("content-type")))) {
    return Refuse(route.dialect, 415, Reason::kInvalidArgument, "the body must be JSON",
                  "Send the header Content-Type: application/json.");
  }
  return std::nullopt;
}

// What somebody who asked for `path` probably wanted.
std::string Advice(std::string_view path) {
  std::vector<std::string> known;
  for (const Route& route : kRoutes) known.emplace_back(route.path);
  // A base URL that misses its /v1, or has it twice, is what people get wrong most.
  for (const std::string& prefix : {std::string("/v1"), std::string("/api")}) {
    const bool twice = path.substr(0, prefix.size()) == prefix;
    const std::string other = twice ? std::string(path.substr(prefix.size())) : prefix + std::string(path);
    if (std::find(known.begin(), known.end(), other) != known.end()) return "Did you mean " + other + "?";
  }
  const std::string near = Nearest(std::string(path.substr(0, 200)), known);
  return near.empty() ? "The routes are listed in docs/http.md." : "Did you mean " + near + "?";
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

std::variant<const Route*, HttpReply> Admit(const Guard& guard, HttpRequest& request) {
  const size_t question = request.target.find('?');
  request.path = request.target.substr(0, question);
  if (question != std::string::npos) request.query = request.target.substr(question + 1);
  const Dialect dialect = DialectOf(request.path);
  if (const absl::Status status = guard.Check(request); !status.ok()) return ErrorReply(dialect, status);
  if (request.target.empty() || request.target.front() != '/') {
    return Refuse(dialect, 400, Reason::kInvalidArgument, "the request target is not a path", "");
  }
  if (!request.Header("upgrade").empty() && request.Header("upgrade") != "h2c") {
    return Refuse(dialect, 400, Reason::kInvalidArgument, "this server does not upgrade connections", "");
  }
  std::string allowed;
  for (const Route& route : kRoutes) {
    std::string_view rest;
    if (!PathMatches(route, request.path, rest)) continue;
    const bool head = request.method == "HEAD" && std::string_view(route.method) == "GET";
    if (request.method != route.method && !head) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
      continue;
    }
    if (!rest.empty()) {
      auto name = PercentDecode(rest);
      if (!name || !IsPlainName(*name)) {
        return Refuse(route.dialect, 400, Reason::kInvalidArgument, "the path holds no valid name", "");
      }
      request.argument = std::move(*name);
    }
    if (auto refused = CheckContent(route, request)) return std::move(*refused);
    request.route = &route;
    return &route;
  }
  if (!allowed.empty()) {
    HttpReply reply =
        Refuse(dialect, 405, Reason::kInvalidArgument, "this path takes " + allowed + " only", "");
    reply.headers.emplace_back("allow", allowed);
    return reply;
  }
  return ErrorReply(dialect, Error(absl::StatusCode::kNotFound, Reason::kUnspecified,
                                   "there is nothing at this path", Advice(request.path)));
}

}  // namespace rumbo
