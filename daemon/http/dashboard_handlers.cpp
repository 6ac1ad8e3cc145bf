// The dashboard's files, and the doors of the JSON API.
#include <algorithm>

#include "base/status.h"
#include "daemon/http/assets.h"
#include "daemon/http/handlers.h"
#include "daemon/http/json_api.h"

namespace rumbo {
namespace {

constexpr std::string_view kRpcPrefix = "/rumbo/v1/";

// No inline code, nothing from elsewhere, no frames, no HTML made from text (trusted types).
constexpr char kContentPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'";

// Whether a list like "text/html,application/xhtml+xml;q=0.9" or "gzip, br" holds the word with a q above 0.
bool Accepts(std::string_view header, std::string_view wanted) {
  while (!header.empty()) {
    std::string_view item = header.substr(0, header.find(','));
    header.remove_prefix(std::min(header.size(), item.size() + 1));
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    const std::string_view word = item.substr(0, item.find_first_of("; "));
    if (word != wanted) continue;
    const size_t q = item.find("q=0");
    return q == std::string_view::npos || item.find_first_of("123456789", q) != std::string_view::npos;
  }
  return false;
}

void SendAsset(const Asset& asset, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  HttpReply reply;
  auto& headers = reply.headers;
  headers.emplace_back("cache-control", asset.immutable ? "public, max-age=31536000, immutable" : "no-cache");
  headers.emplace_back("etag", asset.etag);
  headers.emplace_back("vary", "accept, accept-encoding");
  headers.emplace_back("content-security-policy", kContentPolicy);
  headers.emplace_back("referrer-policy", "no-referrer");
  headers.emplace_back("cross-origin-opener-policy", "same-origin");
  headers.emplace_back("permissions-policy", "camera=(), geolocation=(), microphone=(), usb=()");
  reply.content_type = std::string(asset.content_type);
  if (request.Header("if-none-match") == asset.etag) {
    reply.status = 304;
  } else if (Accepts(request.Header("accept-encoding"), "gzip") && !asset.gzip.empty()) {
    headers.emplace_back("content-encoding", "gzip");
    reply.body = std::string(asset.gzip);
  } else {
    reply.body = std::string(asset.plain);
  }
  exchange.Reply(std::move(reply));
}

const Asset* Find(std::string_view path) {
  for (const Asset& asset : DashboardAssets()) {
    if (asset.path == path) return &asset;
  }
  return nullptr;
}

}  // namespace

// People see the dashboard; programs that knock (Ollama's clients do) get a line of text.
void HandleRoot(Api&, ExchangePtr exchange) {
  const Asset* page = Find("index.html");
  if (page != nullptr && Accepts(exchange->request().Header("accept"), "text/html")) {
    return SendAsset(*page, *exchange);
  }
  HttpReply reply;
  reply.content_type = "text/plain; charset=utf-8";
  reply.headers.emplace_back("vary", "accept");
  reply.body = "Rumbo is running\n";
  exchange->Reply(std::move(reply));
}

void HandleDashboardFile(Api&, ExchangePtr exchange) {
  if (const Asset* asset = Find(exchange->request().argument)) return SendAsset(*asset, *exchange);
  exchange->Reply(ErrorReply(Dialect::kRumbo, Error(absl::StatusCode::kNotFound, Reason::kUnspecified,
                                                    "the dashboard has no such file", "Open / instead.")));
}

void HandleRpc(Api& api, ExchangePtr exchange) {
  if (api.json == nullptr) {
    return exchange->Reply(ErrorReply(Dialect::kRumbo, NotImplemented("the JSON API in this program")));
  }
  const std::string_view method = std::string_view(exchange->request().route->path).substr(kRpcPrefix.size());
  api.json->Call(method, std::move(exchange));
}

}  // namespace rumbo
