#include "daemon/http/trace.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <boost/json.hpp>
#include <fstream>

#include "base/status.h"
#include "daemon/http/server.h"
#include "daemon/http/test_client.h"
#include "tests/fakes/fake_core.h"

namespace rumbo {
namespace {

TEST(TraceParentTest, ReadsTheHeaderAndNothingElse) {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto parent = ParseTraceParent(good);
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->trace_id[0], 0x0a);
  EXPECT_EQ(parent->span_id[7], 0x31);
  EXPECT_TRUE(parent->sampled);
  EXPECT_FALSE(ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")->sampled);
  EXPECT_TRUE(ParseTraceParent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
  for (const std::string& bad : {std::string(), good.substr(1), good + "-x", "ff" + good.substr(2),
                                 std::string("00-00000000000000000000000000000000-b7ad6b7169203331-01"),
                                 std::string("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"),
                                 std::string("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
                                 std::string("00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01")}) {
    EXPECT_FALSE(ParseTraceParent(bad)) << bad;
  }
}

TEST(CollectorTest, IsAPlainHttpAddress) {
  const auto simple = ParseCollector("http://127.0.0.1");
  ASSERT_TRUE(simple.ok());
  EXPECT_EQ(simple->port, "4318");
  EXPECT_EQ(simple->path, "/v1/traces");
  const auto full = ParseCollector("http://[::1]:99/custom");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->host, "::1");
  EXPECT_EQ(full->port, "99");
  EXPECT_EQ(full->path, "/custom");
  for (const char* bad : {"", "127.0.0.1:4318", "https://x", "http://", "http://x:", "http://x:y",
                          "http://a@b", "http://x\r\ny", "http://[::1"}) {
    EXPECT_FALSE(ParseCollector(bad).ok()) << bad;
  }
}

// Listens on loopback; takes one connection at a time and answers it with `status`.
class FakeCollector {
 public:
  FakeCollector() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(fd_.get(), 16);
    socklen_t length = sizeof address;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  bool Waits(int ms) {
    pollfd p{fd_.get(), POLLIN, 0};
    return ::poll(&p, 1, ms) > 0;
  }
  // The next request, head and body; "" if none comes within 20 s.
  std::string Take(int status) {
    if (!Waits(20000)) return "";
    UniqueFd connection(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string text;
    for (size_t want = std::string::npos; text.size() < want;) {
      char chunk[65536];
      const ssize_t n = ::recv(connection.get(), chunk, sizeof chunk, 0);
      if (n <= 0) break;
      text.append(chunk, static_cast<size_t>(n));
      const size_t end = text.find("\r\n\r\n");
      const size_t length = text.find("content-length: ");
      if (end != std::string::npos && length < end)
        want = end + 4 + std::strtoul(&text[length + 16], nullptr, 10);
    }
    const std::string answer = "HTTP/1.1 " + std::to_string(status) + " X\r\ncontent-length: 2\r\n\r\n{}";
    ::send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    return text;
  }

 private:
  UniqueFd fd_;
  uint16_t port_ = 0;
};

boost::json::value BodyOf(const std::string& request) {
  return boost::json::parse(request.substr(request.find("\r\n\r\n") + 4));
}

std::string AttributeOf(const boost::json::value& span, std::string_view key) {
  for (const auto& attribute : span.at("attributes").as_array()) {
    if (attribute.at("key").as_string() == key) return boost::json::serialize(attribute.at("value"));
  }
  return "";
}

TEST(TraceTest, OneRequestIsOneSpanWithItsPartsAndNoPrompt) {
  FakeCollector collector;
  FakeCore core;
  HttpOptions options;
  options.port = 0;
  options.trace_collector = collector.url();
  auto server = HttpServer::Start(options, &core);
  ASSERT_TRUE(server.ok()) << MessageOf(server.status());
  Client client((*server)->port());
  client.Request("POST", "/v1/completions", R"({"model":"fake","prompt":"canary-5d41402a","max_tokens":3})",
                 "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n");
  const auto reply = client.Read();
  ASSERT_EQ(reply.status, 200);
  const std::string request = collector.Take(200);
  EXPECT_EQ(request.rfind("POST /v1/traces HTTP/1.1\r\n", 0), 0u);
  EXPECT_EQ(request.find("canary"), std::string::npos);
  const auto body = BodyOf(request);
  const auto& spans = body.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").as_array();
  ASSERT_EQ(spans.size(), 4u);  // the request; queue, prefill, decode
  const auto& span = spans[0];
  EXPECT_EQ(span.at("name"), "POST /v1/completions");
  EXPECT_EQ(span.at("traceId"), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(span.at("parentSpanId"), "b7ad6b7169203331");
  EXPECT_EQ(AttributeOf(span, "http.response.status_code"), R"({"intValue":"200"})");
  EXPECT_EQ(AttributeOf(span, "gen_ai.request.model"), R"({"stringValue":"fake"})");
  EXPECT_EQ(AttributeOf(span, "gen_ai.usage.output_tokens"), R"({"intValue":"3"})");
  EXPECT_EQ(AttributeOf(span, "rumbo.instance"), R"({"stringValue":"inst-1"})");
  EXPECT_EQ(AttributeOf(span, "rumbo.request_id"),
            "{\"stringValue\":\"" + reply.Header("x-request-id") + "\"}");
  for (size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].at("parentSpanId"), span.at("spanId"));
    EXPECT_LE(std::stoll(spans[i].at("startTimeUnixNano").as_string().c_str()),
              std::stoll(spans[i].at("endTimeUnixNano").as_string().c_str()));
  }
}

TEST(TraceTest, UnsampledRequestsAndAServerWithoutCollectorSendNothing) {
  FakeCollector collector;
  FakeCore core;
  HttpOptions options;
  options.port = 0;
  for (const std::string& url : {std::string(), collector.url()}) {
    options.trace_collector = url;
    auto server = HttpServer::Start(options, &core);
    ASSERT_TRUE(server.ok());
    Client client((*server)->port());
    client.Request("GET", "/live", "",
                   "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\n");
    EXPECT_EQ(client.Read().status, 200);
    if (url.empty()) {
      client.Request("GET", "/live");
      EXPECT_EQ(client.Read().status, 200);
    }
    (*server)->Stop(std::chrono::seconds(1));  // what waits would be sent now
    EXPECT_FALSE(collector.Waits(0));
  }
}

TEST(TraceTest, CollectorThatIsAwayCostsSpansNotRequests) {
  uint16_t closed_port = 0;
  {
    FakeCore core;
    HttpOptions options;
    options.port = 0;
    auto server = HttpServer::Start(options, &core);
    closed_port = (*server)->port();
  }
  TraceExporter exporter(*ParseCollector("http://127.0.0.1:" + std::to_string(closed_port)), "1");
  for (size_t i = 0; i < 3 * TraceExporter::kMaxWaiting; ++i) exporter.Add(TraceSpan{});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (exporter.dropped() < 3 * TraceExporter::kMaxWaiting && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(exporter.dropped(), 3 * TraceExporter::kMaxWaiting);
  EXPECT_EQ(exporter.sent(), 0u);
}

TEST(TraceTest, BadCollectorRefusesTheStart) {
  FakeCore core;
  HttpOptions options;
  options.port = 0;
  options.trace_collector = "https://collector.example";
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start(options, &core).status()));
}

}  // namespace
}  // namespace rumbo
