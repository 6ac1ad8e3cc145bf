#include "daemon/http/access.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/status.h"
#include "daemon/http/limiter.h"
#include "daemon/http/metrics.h"
#include "daemon/http/routes.h"
#include "daemon/http/server.h"
#include "daemon/http/test_client.h"
#include "tests/fakes/fake_core.h"

namespace rumbo {
namespace {

constexpr char kModelsToken[] = "models-0123456789abcdefgh";
constexpr char kListToken[] = "list-only-0123456789abcdef";
constexpr char kAdminToken[] = "admin-0123456789abcdefghi";

std::string TokenFile() {
  return std::string("# tokens\nci models,inference ") + kModelsToken + "\n\nviewer list " + kListToken +
         "\nboss admin " + kAdminToken + "\n";
}

HttpRequest From(uint32_t uid, const std::string& header = "", const std::string& value = "") {
  HttpRequest request;
  request.client.uid = uid;
  if (!header.empty()) request.headers.emplace_back(header, value);
  return request;
}

class AccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("rumbo-access-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
    path_ = dir_ / "tokens";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& text, int mode = 0600) {
    std::filesystem::remove(path_);
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), static_cast<mode_t>(mode));
  }
  std::filesystem::path dir_;
  std::filesystem::path path_;
  const uint32_t own_ = ::geteuid();
};

TEST_F(AccessTest, OwnUserListsAndAsksWithoutToken) {
  Access access("", own_);
  ASSERT_TRUE(access.Load().ok());
  for (const Scope scope : {Scope::kLive, Scope::kList, Scope::kInference}) {
    HttpRequest request = From(own_);
    EXPECT_TRUE(access.Authorize(request, scope).ok()) << Word(scope);
  }
  for (const Scope scope : {Scope::kModels, Scope::kAdmin}) {
    HttpRequest request = From(own_);
    EXPECT_TRUE(absl::IsUnauthenticated(access.Authorize(request, scope))) << Word(scope);
  }
}

TEST_F(AccessTest, OthersNeedTokens) {
  Access access("", own_);
  for (const uint32_t uid : {own_ + 1, UINT32_MAX}) {
    for (const Scope scope : {Scope::kList, Scope::kInference, Scope::kModels, Scope::kAdmin}) {
      HttpRequest request = From(uid);
      EXPECT_TRUE(absl::IsUnauthenticated(access.Authorize(request, scope))) << Word(scope);
    }
    HttpRequest request = From(uid);
    EXPECT_TRUE(access.Authorize(request, Scope::kLive).ok());
  }
}

TEST_F(AccessTest, TokensGiveTheirScopesAndNoMore) {
  Write(TokenFile());
  Access access(path_, own_);
  ASSERT_TRUE(access.Load().ok());
  const auto code = [&](HttpRequest request, Scope scope) { return access.Authorize(request, scope).code(); };
  using absl::StatusCode;
  const uint32_t other = own_ + 1;
  for (const auto& [header, prefix] : {std::pair<std::string, std::string>{"authorization", "Bearer "},
                                       {"authorization", "bearer "},
                                       {"x-api-key", ""}}) {
    EXPECT_EQ(code(From(other, header, prefix + kModelsToken), Scope::kModels), StatusCode::kOk);
    EXPECT_EQ(code(From(other, header, prefix + kModelsToken), Scope::kInference), StatusCode::kOk);
    EXPECT_EQ(code(From(other, header, prefix + kModelsToken), Scope::kList), StatusCode::kPermissionDenied);
    EXPECT_EQ(code(From(other, header, prefix + kModelsToken), Scope::kAdmin), StatusCode::kPermissionDenied);
    EXPECT_EQ(code(From(other, header, prefix + kListToken), Scope::kInference),
              StatusCode::kPermissionDenied);
    EXPECT_EQ(code(From(other, header, prefix + kAdminToken), Scope::kModels), StatusCode::kOk);
    EXPECT_EQ(code(From(other, header, prefix + kAdminToken + "x"), Scope::kModels),
              StatusCode::kUnauthenticated);
    EXPECT_EQ(code(From(other, header, prefix), Scope::kModels), StatusCode::kUnauthenticated);
  }
  // Clients of OpenAI must send some key: one that is none of ours takes nothing away.
  EXPECT_EQ(code(From(own_, "authorization", "Bearer sk-whatever"), Scope::kInference), StatusCode::kOk);
  HttpRequest named = From(other, "x-api-key", kAdminToken);
  ASSERT_TRUE(access.Authorize(named, Scope::kAdmin).ok());
  EXPECT_EQ(named.principal, "token:boss");
}

TEST_F(AccessTest, FileOpenToOthersIsRefused) {
  for (const int mode : {0644, 0640, 0604, 0660}) {
    Write(TokenFile(), mode);
    EXPECT_FALSE(Access(path_, own_).Load().ok()) << std::oct << mode;
  }
  Write(TokenFile());
  EXPECT_FALSE(Access(path_, own_ + 1).Load().ok());
  std::filesystem::create_symlink(path_, dir_ / "link");
  EXPECT_FALSE(Access(dir_ / "link", own_).Load().ok());
  EXPECT_TRUE(Access(dir_ / "missing", own_).Load().ok());
}

TEST_F(AccessTest, ChangedFileCountsAtOnceAndBrokenOneGivesNothing) {
  Write("");
  Access access(path_, own_);
  ASSERT_TRUE(access.Load().ok());
  const auto may = [&] {
    HttpRequest request = From(own_ + 1, "x-api-key", kAdminToken);
    return access.Authorize(request, Scope::kAdmin).ok();
  };
  EXPECT_FALSE(may());
  Write(TokenFile());
  EXPECT_TRUE(may());
  Write(TokenFile() + "nonsense\n");
  EXPECT_FALSE(may());
  Write(TokenFile());
  EXPECT_TRUE(may());
  std::filesystem::remove(path_);
  EXPECT_FALSE(may());
}

TEST(TokenFileTest, RefusesBadLines) {
  for (const char* bad : {"a list short", "a nosuch 0123456789abcdef01234567", "a list", "a",
                          "a list 0123456789abcdef01234567 more", "a , 0123456789abcdef01234567"}) {
    EXPECT_FALSE(ParseTokens(bad).ok()) << bad;
  }
  EXPECT_TRUE(ParseTokens("# only a comment\n \n").ok());
}

TEST(LimiterTest, AdmitsExactlyTheBudget) {
  RequestLimiter limiter(10, 0);
  const RequestLimiter::TimePoint now{};
  int admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += limiter.Begin("uid:1", now).ok();
  EXPECT_EQ(admitted, 10);
  EXPECT_TRUE(limiter.Begin("uid:2", now).ok());
  const auto refused = limiter.Begin("uid:1", now);
  EXPECT_EQ(ReasonOf(refused), Reason::kRateLimited);
  EXPECT_TRUE(RetryAfterOf(refused).has_value());
  limiter.End("uid:1");
  EXPECT_TRUE(limiter.Begin("uid:1", now).ok());
  EXPECT_FALSE(limiter.Begin("uid:1", now).ok());
}

TEST(LimiterTest, RefillsWithTime) {
  RequestLimiter limiter(0, 2);
  RequestLimiter::TimePoint now{};
  const auto ask = [&] {
    const auto status = limiter.Begin("a", now);
    if (status.ok()) limiter.End("a");
    return status;
  };
  EXPECT_TRUE(ask().ok());
  EXPECT_TRUE(ask().ok());
  const auto refused = ask();
  ASSERT_FALSE(refused.ok());
  EXPECT_LE(RetryAfterOf(refused)->count(), 501);
  now += *RetryAfterOf(refused);
  EXPECT_TRUE(ask().ok());
  EXPECT_FALSE(ask().ok());
}

TEST(MetricsTest, PageIsPrometheusText) {
  HttpMetrics http;
  http.AddAnswer("/v1/x", 200, 0.003);
  FinishedEvent finished;
  finished.ttft_ms = 20;
  finished.completion_tokens = 3;
  finished.decode_ms = 10;
  http.AddInference(finished);
  InstanceInfo instance;
  instance.id = "inst-1";
  instance.model = "a\"b\\c\nd";
  instance.state = InstanceState::kReady;
  instance.queue = 2;
  EngineStats stats;
  stats.kv_used = 3;
  stats.kv_total = 12;
  const std::string page = MetricsPage(http, CoreStatus{}, {instance}, {{"inst-1", stats}}, "1");
  EXPECT_NE(page.find("rumbo_http_answers_total{route=\"/v1/x\",status=\"200\"} 1\n"), std::string::npos);
  EXPECT_NE(page.find("rumbo_http_ttft_seconds_bucket{le=\"0.025\"} 1\n"), std::string::npos);
  EXPECT_NE(page.find("rumbo_http_ttft_seconds_bucket{le=\"0.01\"} 0\n"), std::string::npos);
  EXPECT_NE(page.find("rumbo_instance_kv_used_tokens{instance=\"inst-1\",model=\"a\\\"b\\\\c\\nd\"} 3\n"),
            std::string::npos);
  EXPECT_NE(page.find("vllm:kv_cache_usage_perc{model_name=\"a\\\"b\\\\c\\nd\"} 0.25\n"), std::string::npos);
  EXPECT_NE(page.find("vllm:num_requests_waiting{model_name=\"a\\\"b\\\\c\\nd\"} 2\n"), std::string::npos);
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line[0] == '#' || line.find(' ') != std::string::npos) << line;
  }
}

class AccessServerTest : public AccessTest {
 protected:
  void SetUp() override {
    AccessTest::SetUp();
    Write(TokenFile());
    HttpOptions options;
    options.port = 0;
    options.token_file = path_;
    options.audit_file = dir_ / "audit";
    options.max_requests_at_once = 3;
    auto server = HttpServer::Start(options, &core_);
    ASSERT_TRUE(server.ok()) << MessageOf(server.status());
    server_ = *std::move(server);
  }

  Client::Reply Ask(const std::string& method, const std::string& path, const std::string& body = "",
                    const std::string& extra = "") {
    Client client(server_->port());
    client.Request(method, path, body, extra);
    return client.Read(method == "HEAD");
  }

  // The same, from a process of another user. Only root can make one.
  int StatusAsNobody(const std::string& method, const std::string& path, const std::string& body,
                     const std::string& extra = "") {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(255);
      ::_exit(Ask(method, path, body, extra).status - 200);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status) + 200;
  }

  FakeCore core_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(AccessServerTest, EveryRouteIsClosedToOtherUsersButTheLiveOnes) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to act as another user";
  for (const Route& route : Routes()) {
    std::string path = route.path;
    if (path.find("{}") != std::string::npos)
      path.replace(path.find("{}"), 2, path == "/ui/{}" ? "index.html" : "x");
    const std::string body = std::string(route.method) == "GET" ? "" : "{}";
    const std::string json = "Content-Type: application/json\r\n";
    const int bare = StatusAsNobody(route.method, path, body, json);
    const int wrong = StatusAsNobody(route.method, path, body, json + "Authorization: Bearer wrong\r\n");
    if (route.scope == Scope::kLive) {
      EXPECT_EQ(bare, 200) << path;
    } else {
      EXPECT_EQ(bare, 401) << route.method << path;
      EXPECT_EQ(wrong, 401) << path;
      const int right = StatusAsNobody(route.method, path, body, json + "x-api-key: " + kAdminToken + "\r\n");
      EXPECT_NE(right, 401) << path;
      EXPECT_NE(right, 403) << path;
    }
  }
  EXPECT_TRUE(core_.requests().empty());
}

// T09: who may only ask neither ends what others run nor touches their prompts' caches.
TEST_F(AccessServerTest, OthersNeitherUnloadNorShareCaches) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to act as another user";
  const std::string json = "Content-Type: application/json\r\n";
  Write("guest list,inference uid:65534\nkeeper inference,models " + std::string(kModelsToken) + "\n");
  const char kUnload[] = R"({"model":"fake","keep_alive":0})";
  EXPECT_EQ(StatusAsNobody("GET", "/v1/models", ""), 200);  // granted by uid, without a token
  EXPECT_EQ(StatusAsNobody("POST", "/api/generate", kUnload, json), 403);
  EXPECT_EQ(StatusAsNobody("DELETE", "/api/delete", R"({"model":"fake"})", json), 401);
  EXPECT_EQ(StatusAsNobody("POST", "/api/generate", kUnload, json + "x-api-key: " + kModelsToken + "\r\n"),
            200);
  EXPECT_EQ(Ask("POST", "/api/generate", kUnload).status, 200);  // the daemon's own user
  EXPECT_EQ(StatusAsNobody("POST", "/v1/completions", R"({"model":"fake","prompt":"x"})", json), 200);
  EXPECT_EQ(Ask("POST", "/v1/completions", R"({"model":"fake","prompt":"x"})").status, 200);
  const auto requests = core_.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].generate.owner, "65534");
  EXPECT_EQ(requests[1].generate.owner, std::to_string(own_));
  Write("guest inference uid:65535\n");
  EXPECT_EQ(StatusAsNobody("GET", "/v1/models", ""), 401);
}

// T07: whatever a caller puts into a request, with whatever scope, no program, argument, library or path
// follows.
TEST_F(AccessServerTest, NoRouteSetsProgramsArgumentsOrPaths) {
  const std::string token = std::string("x-api-key: ") + kAdminToken + "\r\n";
  const std::string extras =
      R"("binary":"/bin/sh","executable":"/bin/sh","args":["-c","x"],"engine_args":"--rpc x","library_path":"/tmp",)"
      R"("env":{"LD_PRELOAD":"/tmp/x.so"},"cache_dir":"/tmp","model_path":"/etc/passwd","mmproj":"/etc/passwd",)"
      R"("chat_template_file":"/etc/passwd","lora":"/etc/passwd","options":{"binary":"/bin/sh","main_gpu":9},)";
  for (const Route& route : Routes()) {
    if (!route.json_body) continue;
    Ask(route.method, route.path,
        "{" + extras +
            R"("model":"fake","prompt":"x","input":"x","max_tokens":1,"messages":[{"role":"user","content":"x"}]})",
        token);
  }
  const auto requests = core_.requests();
  EXPECT_GE(requests.size(), 4u);
  for (const InferenceRequest& request : requests) {
    EXPECT_EQ(request.overrides.engine + request.overrides.device + request.overrides.variant, "");
    EXPECT_EQ(request.overrides.kv_type, "");
    EXPECT_FALSE(request.overrides.force);
    EXPECT_TRUE(request.generate.input.chat.template_args.empty());
    EXPECT_EQ(request.model, "fake");
  }
  // A model is a name, never a path.
  for (const char* path : {"/etc/passwd", "../fake", "file:///etc/passwd"}) {
    EXPECT_EQ(Ask("POST", "/v1/completions", std::string(R"({"prompt":"x","model":")") + path + "\"}", token)
                  .status,
              404)
        << path;
  }
}

TEST_F(AccessServerTest, OwnUserNeedsTokenForModels) {
  EXPECT_EQ(Ask("GET", "/v1/models").status, 200);
  const auto refused = Ask("POST", "/api/pull", R"({"model":"fake"})");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.Header("www-authenticate"), "Bearer realm=\"rumbo\"");
  const std::string token = std::string("Authorization: Bearer ") + kModelsToken + "\r\n";
  EXPECT_EQ(Ask("POST", "/api/pull", R"({"model":"fake"})", token).status, 200);
  EXPECT_EQ(Ask("POST", "/api/pull", R"({"model":"other"})", token).status, 501);
  const std::string viewer = std::string("x-api-key: ") + kListToken + "\r\n";
  EXPECT_EQ(Ask("POST", "/api/pull", R"({"model":"fake"})", viewer).status, 403);
}

TEST_F(AccessServerTest, ChangesAreAuditedWithoutSecrets) {
  const std::string token = std::string("x-api-key: ") + kModelsToken + "\r\n";
  EXPECT_EQ(Ask("DELETE", "/api/delete", R"({"model":"\u001bx"})", token).status, 404);
  server_->Stop(std::chrono::seconds(5));  // the line is written after the answer
  std::ifstream file(dir_ / "audit");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const auto entry = boost::json::parse(line);
  EXPECT_EQ(entry.at("who"), "token:ci");
  EXPECT_EQ(entry.at("status"), 404);
  EXPECT_EQ(line.find(kModelsToken), std::string::npos);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  struct stat info;
  ASSERT_EQ(::stat((dir_ / "audit").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AccessServerTest, RequestsAtOnceAreBounded) {
  core_.SetScript([](const InferenceRequest&, AnswerSink& sink, FakeCore::Call& call) {
    call.AwaitCancel();
    sink.OnEnd(FakeCore::Cancelled(), nullptr);
  });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->Request("POST", "/v1/completions", R"({"model":"fake","prompt":"x"})");
  }
  ASSERT_TRUE(core_.AwaitBegun(3));
  const auto refused = Ask("POST", "/v1/completions", R"({"model":"fake","prompt":"x"})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.Header("retry-after"), "1");
  EXPECT_EQ(Ask("GET", "/v1/models").status, 200);
  clients.clear();
  ASSERT_TRUE(core_.AwaitEnded(3));
  core_.SetScript(&FakeCore::Count);
  EXPECT_EQ(Ask("POST", "/v1/completions", R"({"model":"fake","prompt":"x"})").status, 200);
}

TEST_F(AccessServerTest, MetricsCountAnswersAndDisconnects) {
  Ask("POST", "/v1/completions", R"({"model":"fake","prompt":"x","max_tokens":3})");
  Ask("POST", "/v1/completions", R"({"model":"no","prompt":"x"})");
  const std::string page = Ask("GET", "/metrics").body;
  EXPECT_NE(page.find("rumbo_http_answers_total{route=\"/v1/completions\",status=\"200\"} 1\n"),
            std::string::npos);
  EXPECT_NE(page.find("rumbo_http_answers_total{route=\"/v1/completions\",status=\"404\"} 1\n"),
            std::string::npos);
  EXPECT_NE(page.find("rumbo_http_generated_tokens_total 3\n"), std::string::npos);
  Client idle(server_->port());
  idle.Request("GET", "/live");
  idle.Read();
  const std::string open = Ask("GET", "/metrics").body;
  const size_t at = open.find("\nrumbo_http_connections ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_GE(std::atoi(open.c_str() + at + 24),
            2);  // this one and the idle one; older ones may still be closing
}

}  // namespace
}  // namespace rumbo
