#include "daemon/http/server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <future>

#include "base/os/unique_fd.h"
#include "base/status.h"
#include "daemon/http/handlers.h"
#include "daemon/http/test_client.h"
#include "tests/fakes/fake_core.h"

namespace rumbo {
namespace {

class HttpServerTest : public ::testing::Test {
 protected:
  void StartServer() {
    options_.port = 0;
    auto server = HttpServer::Start(options_, &core_);
    ASSERT_TRUE(server.ok()) << MessageOf(server.status());
    server_ = *std::move(server);
  }
  void SetUp() override { StartServer(); }
  uint16_t port() const { return server_->port(); }
  static std::string Prompt(std::string extra = "") {
    return R"({"model":"fake","prompt":"x")" + (extra.empty() ? "" : "," + extra) + "}";
  }
  Client::Reply Post(std::string_view path, std::string_view body, std::string extra = "") {
    Client client(port());
    client.Request("POST", path, body, std::move(extra));
    return client.Read();
  }
  Client::Reply Get(std::string_view path, std::string extra = "") {
    Client client(port());
    client.Request("GET", path, "", std::move(extra));
    return client.Read();
  }

  HttpOptions options_;
  FakeCore core_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersHealth) {
  const auto reply = Get("/health");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, R"({"status":"ok"})");
  EXPECT_EQ(Get("/live").status, 200);
}

TEST_F(HttpServerTest, ListsModels) {
  const auto list = boost::json::parse(Get("/v1/models").body);
  EXPECT_EQ(list.at("data").at(0).at("id"), "fake");
  EXPECT_EQ(boost::json::parse(Get("/v1/models/fake").body).at("id"), "fake");
  const auto missing = Get("/v1/models/org%2Fother");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(boost::json::parse(missing.body).at("error").at("code"), "model_not_found");
}

TEST_F(HttpServerTest, CompletesWhole) {
  const auto reply = Post("/v1/completions", Prompt(R"("max_tokens":3)"));
  ASSERT_EQ(reply.status, 200);
  const auto body = boost::json::parse(reply.body);
  EXPECT_EQ(body.at("choices").at(0).at("text"), " 0 1 2");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(body.at("usage").at("total_tokens"), 10);
  EXPECT_EQ(reply.Header("x-rumbo-engine"), "fake");
  EXPECT_EQ(reply.Header("x-rumbo-reason"), "the only engine");
}

TEST_F(HttpServerTest, StreamsChat) {
  const auto reply = Post("/v1/chat/completions",
                          R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"stream":true,
                              "max_completion_tokens":2,"stream_options":{"include_usage":true}})");
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Header("content-type"), "text/event-stream");
  std::string text;
  std::vector<std::string> events;
  for (size_t at = 0; at < reply.body.size();) {
    const size_t end = reply.body.find("\n\n", at);
    ASSERT_NE(end, std::string::npos);
    ASSERT_EQ(reply.body.substr(at, 6), "data: ");
    events.push_back(reply.body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  ASSERT_EQ(events.size(), 6u);  // role, two tokens, finish, usage, [DONE]
  for (size_t i = 0; i < 4; ++i) {
    const auto event = boost::json::parse(events[i]);
    EXPECT_TRUE(event.at("usage").is_null());
    if (const auto* content = event.at("choices").at(0).at("delta").as_object().if_contains("content")) {
      text += std::string(content->as_string());
    }
  }
  EXPECT_EQ(text, " 0 1");
  EXPECT_EQ(boost::json::parse(events[3]).at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(boost::json::parse(events[4]).at("usage").at("completion_tokens"), 2);
  EXPECT_EQ(events[5], "[DONE]");
}

TEST_F(HttpServerTest, SpeaksAnthropic) {
  const std::string body =
      R"({"model":"fake","max_tokens":2,"stream":true,"messages":[{"role":"user","content":"hi"}]})";
  const auto reply = Post("/v1/messages?beta=true", body);
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body.substr(0, 21), "event: message_start\n");
  EXPECT_NE(reply.body.find(R"("input_tokens":7)"), std::string::npos);
  EXPECT_NE(reply.body.find("event: message_stop\n"), std::string::npos);
  const auto count =
      Post("/v1/messages/count_tokens", R"({"model":"fake","messages":[{"role":"user","content":"hi"}],
      "tools":[{"name":"f","input_schema":{"type":"object"}}]})");
  EXPECT_EQ(count.body, R"({"input_tokens":26})");
  const auto missing =
      Post("/v1/messages", R"({"model":"no","max_tokens":2,"messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(boost::json::parse(missing.body).at("error").at("type"), "not_found_error");
  EXPECT_EQ(boost::json::parse(Get("/v1/messages").body).at("type"), "error");
}

TEST_F(HttpServerTest, SpeaksOllama) {
  const auto chat = Post(
      "/api/chat",
      R"({"model":"fake:latest","messages":[{"role":"user","content":"hi"}],"options":{"num_predict":2}})");
  ASSERT_EQ(chat.status, 200);
  EXPECT_EQ(chat.Header("content-type"), "application/x-ndjson");
  EXPECT_EQ(std::count(chat.body.begin(), chat.body.end(), '\n'), 3);
  const auto whole = boost::json::parse(
      Post("/api/generate", R"({"model":"fake","prompt":"hi","stream":false,"options":{"num_predict":2}})")
          .body);
  EXPECT_EQ(whole.at("response"), " 0 1");
  EXPECT_EQ(whole.at("done_reason"), "length");
  EXPECT_EQ(core_.requests().back().generate.input.kind, GenerateInput::Kind::kChat);
  Post("/api/generate", R"({"model":"fake","prompt":"hi","raw":true,"stream":false})");
  EXPECT_EQ(core_.requests().back().generate.input.prompt, "hi");
  const auto load = boost::json::parse(Post("/api/generate", R"({"model":"fake","stream":false})").body);
  EXPECT_EQ(load.at("done_reason"), "load");
  EXPECT_EQ(boost::json::parse(Get("/api/tags").body).at("models").at(0).at("name"), "fake:latest");
  const auto show = boost::json::parse(Post("/api/show", R"({"model":"","name":"fake"})").body);
  EXPECT_EQ(show.at("model_info").at("llama.context_length"), 2048);
  EXPECT_TRUE(boost::json::parse(Get("/api/ps").body).at("models").as_array().empty());
  EXPECT_EQ(Get("/api/version").status, 200);
  const auto embed = boost::json::parse(Post("/api/embed", R"({"model":"fake","input":["a","bc"]})").body);
  EXPECT_EQ(embed.at("embeddings").as_array().size(), 2u);
  const auto older = boost::json::parse(Post("/api/embeddings", R"({"model":"fake","prompt":"abc"})").body);
  EXPECT_EQ(older.at("embedding").at(0), 3);
  const auto missing = Post("/api/chat", R"({"model":"no","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(missing.status, 404);
  EXPECT_TRUE(boost::json::parse(missing.body).at("error").is_string());
  Client head(port());
  head.Request("HEAD", "/");
  EXPECT_EQ(head.Read(true).status, 200);
}

TEST_F(HttpServerTest, EmbedsRanksAndTokenizes) {
  const auto floats =
      boost::json::parse(Post("/v1/embeddings", R"({"model":"fake","input":"x","dimensions":1})").body);
  EXPECT_EQ(floats.at("data").at(0).at("embedding").as_array().size(), 1u);
  EXPECT_EQ(floats.at("data").at(0).at("embedding").at(0), 1);
  const auto base64 = boost::json::parse(
      Post("/v1/embeddings", R"({"model":"fake","input":["x"],"encoding_format":"base64"})").body);
  EXPECT_EQ(base64.at("data").at(0).at("embedding"), "mpkZP83MTD8AAAAA");  // 0.6, 0.8, 0
  const auto ranked = boost::json::parse(
      Post("/v1/rerank", R"({"model":"fake","query":"q","documents":["a","ccc","bb"],"top_n":2})").body);
  EXPECT_EQ(ranked.at("results").at(0).at("index"), 1);
  EXPECT_EQ(ranked.at("results").as_array().size(), 2u);
  EXPECT_EQ(boost::json::parse(Post("/tokenize", R"({"content":"ab"})").body).at("tokens").at(1), 98);
  EXPECT_EQ(boost::json::parse(Post("/detokenize", R"({"tokens":[97,98]})").body).at("content"), "ab");
  EXPECT_EQ(Get("/props").status, 200);
  EXPECT_EQ(Post("/v1/embeddings", R"({"model":"no","input":"x"})").status, 404);
  EXPECT_EQ(Post("/v1/audio/speech", "{}").status, 501);
}

TEST_F(HttpServerTest, SpeaksResponses) {
  const auto whole = boost::json::parse(
      Post("/v1/responses", R"({"model":"fake","input":"hi","max_output_tokens":2})").body);
  EXPECT_EQ(whole.at("output").at(0).at("content").at(0).at("text"), " 0 1");
  EXPECT_EQ(whole.at("status"), "incomplete");
  const auto stream = Post("/v1/responses", R"({"model":"fake","input":"hi","stream":true})");
  EXPECT_NE(stream.body.find("event: response.output_text.delta"), std::string::npos);
  const auto tools = Post("/v1/responses",
                          "{\"model\":\"fake\",\"input\":\"hi\",\"stream\":true,\"tools\":[\n{\"type\":"
                          "\"function\",\r\n\"name\":\"f\"}]}");
  EXPECT_NE(tools.body.find(R"("tools":[{"type":"function","name":"f"}])"), std::string::npos);
}

TEST_F(HttpServerTest, UnknownModelIs404InOpenAiShape) {
  for (const char* stream : {"true", "false"}) {
    const auto reply =
        Post("/v1/completions", std::string(R"({"model":"nope","prompt":"x","stream":)") + stream + "}");
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(boost::json::parse(reply.body).at("error").at("code"), "model_not_found");
  }
}

TEST_F(HttpServerTest, KeepsConnectionForNextRequest) {
  Client client(port());
  for (int i = 0; i < 3; ++i) {
    client.Request("POST", "/v1/completions", Prompt(R"("stream":true,"max_tokens":2)"));
    const auto reply = client.Read();
    EXPECT_EQ(reply.status, 200);
    EXPECT_NE(reply.body.find("data: [DONE]"), std::string::npos);
    client.Request("GET", "/live");
    EXPECT_EQ(client.Read().status, 200);
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  Client client(port());
  client.Request("POST", "/v1/completions", Prompt(R"("max_tokens":1)"));
  client.Request("POST", "/v1/completions", Prompt(R"("max_tokens":2)"));
  client.Request("GET", "/live");
  EXPECT_NE(client.Read().body.find(R"("text":" 0")"), std::string::npos);
  EXPECT_NE(client.Read().body.find(R"("text":" 0 1")"), std::string::npos);
  EXPECT_EQ(client.Read().body, R"({"status":"ok"})");
}

TEST_F(HttpServerTest, ClosesWhereAsked) {
  Client client(port());
  client.Request("GET", "/live", "", "Connection: close\r\n");
  const std::string all = client.ReadAll();
  EXPECT_NE(all.find("connection: close"), std::string::npos);
  EXPECT_NE(all.find(R"({"status":"ok"})"), std::string::npos);
}

TEST_F(HttpServerTest, ServesHttp10WithoutChunks) {
  Client client(port());
  const std::string body = Prompt(R"("stream":true,"max_tokens":2)");
  client.Send("POST /v1/completions HTTP/1.0\r\nHost: 127.0.0.1:" + std::to_string(port()) +
              "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  const std::string all = client.ReadAll();
  EXPECT_EQ(all.find("transfer-encoding"), std::string::npos);
  EXPECT_EQ(all.substr(all.size() - 14), "data: [DONE]\n\n");
}

TEST_F(HttpServerTest, TakesChunkedBodies) {
  Client client(port());
  const std::string body = Prompt(R"("max_tokens":1)");
  std::string text = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port()) +
                     "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char c : body) text += std::string("1\r\n") + c + "\r\n";
  text += "0\r\n\r\n";
  for (const char c : text) client.Send({&c, 1});  // byte by byte
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Client client(port());
  client.Request("HEAD", "/live");
  const auto reply = client.Read(true);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.Header("content-length"), "15");
  client.Request("GET", "/live");
  EXPECT_EQ(client.Read().body, R"({"status":"ok"})");
}

TEST_F(HttpServerTest, RefusesForeignHosts) {
  const std::string port_text = std::to_string(port());
  for (const std::string& host :
       {std::string("evil.example"), std::string("evil.example:") + port_text, ":" + port_text,
        std::string(""), "127.0.0.1.:" + port_text, "localhost.:" + port_text, std::string("127.0.0.1"),
        "[::ffff:127.0.0.1]:" + port_text, "127.0.0.1:" + std::to_string(port() + 1),
        "user@127.0.0.1:" + port_text, "127.1:" + port_text}) {
    EXPECT_EQ(Get("/live", "Host: " + host + "\r\n").status, 403) << host;
  }
  for (const std::string& host : {"127.0.0.1:" + port_text, "LocalHost:" + port_text, "[::1]:" + port_text}) {
    EXPECT_EQ(Get("/live", "Host: " + host + "\r\n").status, 200) << host;
  }
  EXPECT_EQ(Get("/live", "Host: 127.0.0.1:" + port_text + "\r\nHost: evil.example\r\n").status, 403);
  Client bare(port());
  bare.Send("GET /live HTTP/1.1\r\n\r\n");
  EXPECT_EQ(bare.Read().status, 403);
}

TEST_F(HttpServerTest, RefusesForeignOriginsWithoutAnyGrant) {
  const std::string own = "http://localhost:" + std::to_string(port());
  for (const std::string& origin :
       {std::string("http://evil.example"), std::string("null"), own + "0", own + "/",
        std::string("http://localhost"), std::string("http://localhost:99999999999"),
        std::string("https://localhost:") + std::to_string(port())}) {
    for (const char* path : {"/live", "/nothing", "/v1/completions"}) {
      const auto reply = Get(path, "Origin: " + origin + "\r\n");
      EXPECT_EQ(reply.status, 403) << origin << path;
      EXPECT_EQ(reply.head.find("access-control"), std::string::npos);
    }
  }
  EXPECT_EQ(Get("/live", "Origin: " + own + "\r\n").status, 200);
  EXPECT_EQ(Get("/live", "Sec-Fetch-Site: cross-site\r\n").status, 403);
  EXPECT_EQ(Get("/live", "Sec-Fetch-Mode: cors\r\n").status, 200);  // Node's own fetch
  Client preflight(port());
  preflight.Request("OPTIONS", "/v1/completions", "", "Origin: http://evil.example\r\n");
  const auto reply = preflight.Read();
  EXPECT_EQ(reply.status, 403);
  EXPECT_EQ(reply.head.find("access-control"), std::string::npos);
}

TEST_F(HttpServerTest, WantsJson) {
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "application/json2", ""}) {
    EXPECT_EQ(Post("/v1/completions", Prompt(), std::string("Content-Type: ") + type + "\r\n").status, 415)
        << type;
  }
  EXPECT_EQ(Post("/v1/completions", Prompt(), "Content-Type: Application/JSON; charset=utf-8\r\n").status,
            200);
  EXPECT_EQ(Post("/v1/completions", Prompt(), "Content-Encoding: gzip\r\n").status, 415);
  EXPECT_EQ(core_.requests().size(), 1u);
}

TEST_F(HttpServerTest, RefusesWrongMethodsAndPaths) {
  const auto reply = Get("/v1/completions");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.Header("x-request-id").rfind("req-", 0), 0u);
  EXPECT_EQ(reply.Header("allow"), "POST");
  EXPECT_EQ(Get("/nothing").status, 404);
  EXPECT_NE(Get("/nothing").body.find("\"code\":\"not_found\""), std::string::npos);
  for (const auto& [wrong, right] : {std::pair("/models", "/v1/models"),
                                     {"/v1/v1/models", "/v1/models"},
                                     {"/v1/api/tags", "/api/tags"},
                                     {"/v1/chat/completion", "/v1/chat/completions"}}) {
    EXPECT_NE(Get(wrong).body.find(std::string("Did you mean ") + right + "?"), std::string::npos) << wrong;
  }
  for (const char* path : {"/v1/models/..", "/v1/models/%2e%2e%2fx", "/v1/models/a%00b", "/v1/models/a%5cb",
                           "/v1/models/%zz", "/v1/models/%ff"}) {
    EXPECT_EQ(Get(path).status, 400) << path;
  }
  Client proxy(port());
  proxy.Send("GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port()) + "\r\n\r\n");
  EXPECT_EQ(proxy.Read().status, 400);
}

TEST_F(HttpServerTest, RefusesAmbiguousLengths) {
  const std::string host =
      "Host: 127.0.0.1:" + std::to_string(port()) + "\r\nContent-Type: application/json\r\n";
  for (const char* lines :
       {"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "Content-Length: 2\r\nContent-Length: 3\r\n",
        "Content-Length: 2\r\nContent-Length: 2\r\n", "Content-Length: -2\r\n",
        "Content-Length: 99999999999999999999\r\n", "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n", "Content-Length: 2, 2\r\n", "Content-Length: +2\r\n"}) {
    Client client(port());
    client.Send("POST /v1/completions HTTP/1.1\r\n" + host + lines + "\r\n{}GET /live HTTP/1.1\r\n" + host +
                "\r\n");
    const std::string all = client.ReadAll();
    EXPECT_EQ(all.substr(0, 10), "HTTP/1.1 4") << lines << all;
    EXPECT_EQ(all.find("HTTP/1.1 200"), std::string::npos) << lines;
  }
}

TEST_F(HttpServerTest, LimitsHeadersAndBodies) {
  const std::string host = "Host: 127.0.0.1:" + std::to_string(port()) + "\r\n";
  {
    Client client(port());
    client.Send("GET /live HTTP/1.1\r\n" + host + "X: " + std::string(40000, 'a'));
    EXPECT_EQ(client.Read().status, 431);
    EXPECT_TRUE(client.Eof());
  }
  {
    Client client(port());
    std::string many = "GET /live HTTP/1.1\r\n" + host;
    for (int i = 0; i < 101; ++i) many += "X" + std::to_string(i) + ": 1\r\n";
    client.Send(many + "\r\n");
    EXPECT_EQ(client.Read().status, 431);
  }
  {
    Client client(port());
    client.Send("POST /v1/completions HTTP/1.1\r\n" + host +
                "Content-Type: application/json\r\nContent-Length: 16777217\r\n\r\n");
    EXPECT_EQ(client.Read().status, 413);
  }
  {
    Client client(port());
    client.Send("POST /v1/completions HTTP/1.1\r\n" + host +
                "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
                std::string(200000, 'e'));
    EXPECT_EQ(client.Read().status, 431);
  }
  {
    Client client(port());
    client.Send("POST /v1/completions HTTP/1.1\r\n" + host +
                "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n");
    EXPECT_EQ(client.Read().status, 400);
  }
  const auto deep = Post("/v1/completions", R"({"model":"fake","prompt":"x","y":)" +
                                                std::string(100000, '[') + std::string(100000, ']') + "}");
  EXPECT_EQ(deep.status, 400);
}

TEST_F(HttpServerTest, BadJsonIs400) {
  for (const std::string& body : {std::string(""), std::string("{"), std::string("[]"),
                                  std::string("{\"model\":\"fake\",\"prompt\":\"\xff\"}"),
                                  std::string(R"({"model":"fake","prompt":"\ud83d"})"),
                                  std::string(R"({"model":"fake","prompt":"\ud83dx"})")}) {
    const auto reply = Post("/v1/completions", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(boost::json::parse(reply.body).at("error").at("type"), "invalid_request_error");
  }
  EXPECT_TRUE(core_.requests().empty());
}

TEST_F(HttpServerTest, DisconnectCancelsBeforeFirstToken) {
  core_.SetScript([](const InferenceRequest&, AnswerSink& sink, FakeCore::Call& call) {
    call.AwaitCancel();
    sink.OnEnd(FakeCore::Cancelled(), nullptr);
  });
  for (const char* stream : {"true", "false"}) {
    Client client(port());
    client.Request("POST", "/v1/completions", Prompt(std::string(R"("stream":)") + stream));
    ASSERT_TRUE(core_.AwaitBegun(core_.ended() + 1));
  }
  EXPECT_TRUE(core_.AwaitEnded(2));
}

TEST_F(HttpServerTest, DisconnectCancelsStream) {
  core_.SetScript([](const InferenceRequest& request, AnswerSink& sink, FakeCore::Call& call) {
    FakeCore::Begin(request, sink, 1);
    ChunkEvent chunk;
    chunk.text = "first";
    call.Send(sink, chunk);
    call.AwaitCancel();
    sink.OnEnd(FakeCore::Cancelled(), nullptr);
  });
  {
    Client client(port());
    client.Request("POST", "/v1/completions", Prompt(R"("stream":true)"));
    EXPECT_NE(client.ReadUntil("first").find("first"), std::string::npos);
    EXPECT_EQ(core_.cancelled(), 0u);
  }
  EXPECT_TRUE(core_.AwaitEnded(1));
}

TEST_F(HttpServerTest, HalfCloseKeepsRunningUntilClientIsGone) {
  std::promise<void> go;
  auto gate = go.get_future().share();
  core_.SetScript([gate](const InferenceRequest& request, AnswerSink& sink, FakeCore::Call& call) {
    if (request.generate.sampling.max_tokens == 1u) {
      gate.wait();
      FakeCore::Count(request, sink, call);
    } else {
      call.AwaitCancel();
      sink.OnEnd(FakeCore::Cancelled(), nullptr);
    }
  });
  {
    Client client(port());
    client.Request("POST", "/v1/completions", Prompt(R"("max_tokens":1)"));
    ASSERT_TRUE(core_.AwaitBegun(1));
    ::shutdown(client.fd(), SHUT_WR);
    EXPECT_EQ(Get("/live").status, 200);  // the server has seen the end by now
    go.set_value();
    EXPECT_EQ(client.Read().status, 200);
  }
  {
    Client client(port());
    client.Request("POST", "/v1/completions", Prompt(R"("max_tokens":2)"));
    ASSERT_TRUE(core_.AwaitBegun(2));
    ::shutdown(client.fd(), SHUT_WR);
    EXPECT_EQ(Get("/live").status, 200);
  }
  EXPECT_TRUE(core_.AwaitEnded(2));  // the second only ends by being cancelled
}

TEST_F(HttpServerTest, ThousandDisconnectsAtAnyPointEndEveryRequest) {
  // Endless answers: each ends only because its client has left, at a point set by the number.
  core_.SetScript([](const InferenceRequest& request, AnswerSink& sink, FakeCore::Call& call) {
    FakeCore::Begin(request, sink, 1);
    ChunkEvent chunk;
    do {
      chunk = ChunkEvent();
      chunk.text = "endless";
    } while (call.Send(sink, chunk));
    sink.OnEnd(FakeCore::Cancelled(), nullptr);
  });
  const std::string body = Prompt(R"("stream":true)");
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port()) +
      "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
      body;
  for (size_t i = 0; i < 1000; ++i) {
    Client client(port());
    const size_t at = i * 7919 % (2 * request.size());
    client.Send(request.substr(0, at));
    if (at >= request.size()) client.ReadUntil(i % 3 == 0 ? "endless" : i % 3 == 1 ? "HTTP" : "");
  }
  EXPECT_EQ(Get("/live").status, 200);
  EXPECT_TRUE(core_.AwaitEnded(core_.requests().size()));
  EXPECT_GT(core_.requests().size(), 100u);
}

TEST_F(HttpServerTest, RunsOutOfDescriptorsAndRecovers) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> clients;  // made before the limit, so that the server alone meets it
  for (int i = 0; i < 100; ++i) clients.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(clients.back().get()) + 21;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (const UniqueFd& fd : clients)
    ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  int shed = 0;
  for (const UniqueFd& fd : clients) {
    timeval limit{0, 200'000};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte;
    if (shed < 50 && ::recv(fd.get(), &byte, 1, 0) == 0) ++shed;
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(shed, 50);
  EXPECT_EQ(Get("/live").status, 200);
}

TEST_F(HttpServerTest, SlowClientPausesEngineAndGetsEverything) {
  constexpr int kChunks = 3000;
  const std::string piece(4000, 'q');
  core_.SetScript([&](const InferenceRequest& request, AnswerSink& sink, FakeCore::Call& call) {
    FakeCore::Begin(request, sink, 1);
    for (int i = 0; i < kChunks; ++i) {
      ChunkEvent chunk;
      chunk.text = piece;
      if (!call.Send(sink, std::move(chunk))) return sink.OnEnd(FakeCore::Cancelled(), nullptr);
    }
    FakeCore::End(sink, "stop", 1, kChunks);
  });
  Client slow(port());
  slow.Request("POST", "/v1/completions", Prompt(R"("stream":true)"));
  slow.ReadUntil("\r\n\r\n");
  ASSERT_TRUE(core_.AwaitPaused());
  EXPECT_EQ(core_.ended(), 0u);
  EXPECT_EQ(Get("/live").status, 200);  // others are served meanwhile
  const std::string rest = slow.ReadUntil("data: [DONE]");
  EXPECT_EQ(static_cast<size_t>(std::count(rest.begin(), rest.end(), 'q')) / piece.size(),
            static_cast<size_t>(kChunks));
}

TEST_F(HttpServerTest, BreakInMidStreamIsAnErrorEvent) {
  core_.SetScript([](const InferenceRequest& request, AnswerSink& sink, FakeCore::Call& call) {
    FakeCore::Begin(request, sink, 1);
    ChunkEvent chunk;
    chunk.text = "a\xf0\x9f";  // an engine's bug: half a character
    call.Send(sink, std::move(chunk));
    sink.OnEnd(Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed, "the engine \x80 crashed"),
               nullptr);
  });
  const auto reply = Post("/v1/completions", Prompt(R"("stream":true)"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body.find("[DONE]"), std::string::npos);
  const size_t at = reply.body.find("data: {\"error\"");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(boost::json::parse(reply.body.substr(at + 6)).at("error").at("code"), "engine_crashed");
  boost::json::error_code error;
  boost::json::parse(reply.body.substr(6, reply.body.find("\n\n") - 6), error);
  EXPECT_FALSE(error);
}

TEST_F(HttpServerTest, QueueFullIs429WithRetryAfter) {
  core_.SetScript([](const InferenceRequest&, AnswerSink& sink, FakeCore::Call&) {
    sink.OnEnd(RetryableError(absl::StatusCode::kResourceExhausted, Reason::kQueueFull, "busy", "",
                              std::chrono::milliseconds(2500)),
               nullptr);
  });
  const auto reply = Post("/v1/completions", Prompt(R"("stream":true)"));
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.Header("retry-after"), "3");
}

TEST_F(HttpServerTest, SecondServerOnThePortIsRefused) {
  HttpOptions options;
  options.port = port();
  const auto second = HttpServer::Start(options, &core_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ReasonOf(second.status()), Reason::kAddressInUse);
}

TEST_F(HttpServerTest, RoutesThatCannotWorkYetStandInTheTable) {
  std::ifstream file(RUMBO_SOURCE_DIR "/docs/unimplemented.md");
  const std::string table((std::istreambuf_iterator<char>(file)), {});
  size_t count = 0;
  for (const Route& route : Routes()) {
    if (route.handler != HandleUnimplemented) continue;
    EXPECT_NE(table.find("`" + std::string(route.path) + "`"), std::string::npos) << route.path;
    ++count;
  }
  EXPECT_GT(count, 0u);
}

TEST_F(HttpServerTest, SecondPortHasTheSameRoutesAndItsOwnHost) {
  HttpOptions options;
  options.port = 0;
  options.second_port = 0;
  auto started = HttpServer::Start(options, &core_);
  ASSERT_TRUE(started.ok());
  const uint16_t second = (*started)->second_port();
  Client client(second);
  client.Request("GET", "/api/tags");
  EXPECT_EQ(client.Read().status, 200);
  client.Request("GET", "/api/tags", "", "Host: localhost:" + std::to_string(second + 1) + "\r\n");
  EXPECT_EQ(client.Read().status, 403);
}

TEST_F(HttpServerTest, BigBodiesAreReadBesideTheIoThread) {
  const std::string prompt(3'000'000, 'p');
  const auto reply = Post("/v1/completions", R"({"model":"fake","max_tokens":1,"prompt":")" + prompt + "\"}");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(core_.requests().at(0).generate.input.prompt.size(), prompt.size());
}

TEST_F(HttpServerTest, RequestHeadersSetPriorityAndDeadline) {
  Post("/v1/completions", Prompt(),
       "x-rumbo-priority: batch\r\nx-rumbo-timeout-ms: 60000\r\nx-rumbo-app: my app\r\n");
  const InferenceRequest request = core_.requests().at(0);
  EXPECT_EQ(request.generate.priority, Priority::kBatch);
  EXPECT_LT(request.deadline, std::chrono::steady_clock::now() + std::chrono::seconds(61));
  EXPECT_EQ(request.client.app, "my?app");
  EXPECT_EQ(Post("/v1/completions", Prompt(), "x-rumbo-priority: urgent\r\n").status, 400);
  for (const char* bad : {"0", "-1", "1e3", "99999999999"}) {
    EXPECT_EQ(Post("/v1/completions", Prompt(), std::string("x-rumbo-timeout-ms: ") + bad + "\r\n").status,
              400)
        << bad;
  }
}

TEST_F(HttpServerTest, NonLoopbackIsRefused) {
  for (const char* address : {"0.0.0.0", "192.0.2.1", "not-an-address", "::"}) {
    HttpOptions options;
    options.address = address;
    options.port = 0;
    EXPECT_FALSE(HttpServer::Start(options, &core_).ok()) << address;
  }
}

TEST_F(HttpServerTest, StopLetsAnswersEndWithinGrace) {
  std::promise<void> go;
  auto gate = go.get_future().share();
  core_.SetScript([gate](const InferenceRequest& request, AnswerSink& sink, FakeCore::Call& call) {
    FakeCore::Begin(request, sink, 1);
    gate.wait();
    FakeCore::End(sink, "stop", 1, 0);
    static_cast<void>(call);
  });
  Client idle(port());
  Client busy(port());
  busy.Request("POST", "/v1/completions", Prompt(R"("stream":true)"));
  busy.ReadUntil("\r\n\r\n");
  std::thread stopper([&] { server_->Stop(std::chrono::seconds(20)); });
  EXPECT_TRUE(idle.Eof());
  go.set_value();
  EXPECT_NE(busy.ReadUntil("[DONE]").find("[DONE]"), std::string::npos);
  stopper.join();
  EXPECT_FALSE(Client(port()).connected());
}

TEST_F(HttpServerTest, StopWithoutGraceCancels) {
  core_.SetScript([](const InferenceRequest&, AnswerSink& sink, FakeCore::Call& call) {
    call.AwaitCancel();
    sink.OnEnd(FakeCore::Cancelled(), nullptr);
  });
  Client client(port());
  client.Request("POST", "/v1/completions", Prompt());
  ASSERT_TRUE(core_.AwaitBegun(1));
  server_->Stop(std::chrono::milliseconds(0));
  EXPECT_TRUE(core_.AwaitEnded(1));
}

class HttpTimeoutTest : public HttpServerTest {
 protected:
  void SetUp() override {
    options_.header_timeout = std::chrono::milliseconds(50);
    options_.body_timeout = std::chrono::milliseconds(50);
    StartServer();
  }
};

TEST_F(HttpTimeoutTest, SlowHeadAndBodyAreCutOff) {
  Client silent(port());
  Client head(port());
  head.Send("GET /li");
  Client body(port());
  body.Send("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port()) +
            "\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_TRUE(silent.Eof());
  EXPECT_EQ(head.Read().status, 408);
  EXPECT_EQ(body.Read().status, 408);
}

// As a service manager hands it over. One caller after another: the door must not wait inside the first.
TEST_F(HttpServerTest, AnswersOnAnInheritedSocket) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 16), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  HttpOptions options;
  options.port = ntohs(address.sin_port);
  options.listener = listener;
  auto started = HttpServer::Start(options, &core_);
  ASSERT_TRUE(started.ok()) << MessageOf(started.status());
  EXPECT_EQ((*started)->port(), options.port);
  for (int i = 0; i < 3; ++i) {
    Client client(options.port);
    client.Request("GET", "/health", "");
    EXPECT_EQ(client.Read().status, 200);
  }
}

}  // namespace
}  // namespace rumbo
