// rumbo.v1 as JSON, from the socket to a gRPC server in this process.
#include "daemon/http/api/json_over_grpc.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "daemon/http/routes.h"
#include "daemon/http/server.h"
#include "daemon/http/test_client.h"
#include "daemon/rpc/server.h"
#include "rumbo/v1/admin.pb.h"
#include "rumbo/v1/device.pb.h"
#include "rumbo/v1/inference.pb.h"
#include "rumbo/v1/instance.pb.h"
#include "rumbo/v1/model.pb.h"
#include "rumbo/v1/plan.pb.h"
#include "tests/fakes/fake_core.h"

namespace rumbo {
namespace {

constexpr char kListToken[] = "list-only-0123456789abcdef";
constexpr char kAskToken[] = "ask-only-0123456789abcdef";
constexpr char kAdminToken[] = "admin-0123456789abcdefghi";

class TalkativeCore final : public FakeCore {
 public:
  void GetTopology(std::string hardware, bool, Callback<Topology> done) override {
    if (hardware == "nowhere") {
      return done(Error(absl::StatusCode::kNotFound, Reason::kProfileNotFound, "no profile is called nowhere",
                        "Try r9700."));
    }
    Topology topology;
    topology.name = "<b>\u202eevil";
    topology.pools.push_back({.id = "system", .total_bytes = 18446744073709551615ull});
    done(topology);
  }
  std::shared_ptr<void> WatchInstances(std::function<void(const InstanceInfo&, bool)> on_change) override {
    ++watching;
    InstanceInfo info;
    info.id = "i-1";
    info.state = InstanceState::kReady;
    on_change(info, true);
    return std::shared_ptr<void>(nullptr, [this](void*) { --watching; });
  }
  std::atomic<int> watching{0};
};

class JsonOverGrpcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("rumbo-json-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
    const std::string tokens = (dir_ / "tokens").string();
    std::ofstream(tokens) << "viewer list " << kListToken << "\nasker inference " << kAskToken
                          << "\nboss admin " << kAdminToken << "\n";
    ::chmod(tokens.c_str(), 0600);
    RpcHooks hooks;
    hooks.http_address = [] { return std::string("x"); };
    hooks.drain = [](std::chrono::milliseconds) {};
    hooks.own_findings = [] { return std::vector<Finding>{}; };
    RpcOptions rpc_options;
    rpc_options.socket = (dir_ / "s").string();
    rpc_ = RpcServer::Start(rpc_options, &core_, hooks).value();
    HttpOptions options;
    options.port = 0;
    options.token_file = tokens;
    http_ = HttpServer::Start(options, &core_, &json_).value();
  }
  void TearDown() override {
    http_.reset();
    json_.Connect(nullptr);
    rpc_.reset();
    std::filesystem::remove_all(dir_);
  }
  Client::Reply Call(const std::string& method, const std::string& body, const std::string& extra = "") {
    Client client(http_->port());
    client.Request("POST", "/rumbo/v1/" + method, body, extra);
    return client.Read();
  }

  std::filesystem::path dir_;
  TalkativeCore core_;
  JsonOverGrpc json_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<HttpServer> http_;
};

TEST_F(JsonOverGrpcTest, EveryMethodOfTheContractHasItsRouteAndScopeAndNothingElseHas) {
  std::set<std::string> wanted, found;
  for (const auto* file : {v1::Device::descriptor()->file(), v1::Plan::descriptor()->file(),
                           v1::Model::descriptor()->file(), v1::Instance::descriptor()->file(),
                           v1::ChatRequest::descriptor()->file(), v1::DrainRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int m = 0; m < file->service(i)->method_count(); ++m) {
        const auto* method = file->service(i)->method(m);
        if (!method->client_streaming())
          wanted.insert("/rumbo/v1/" + method->service()->name() + "/" + method->name());
      }
    }
  }
  for (const Route& route : Routes()) {
    const std::string path = route.path;
    if (path.rfind("/rumbo/", 0) != 0) continue;
    found.insert(path);
    EXPECT_NE(route.scope, Scope::kLive) << path;
    EXPECT_TRUE(route.json_body) << path;
  }
  EXPECT_EQ(found, wanted);
}

TEST_F(JsonOverGrpcTest, BeforeTheServerStandsCallsAreToldToComeAgain) {
  const auto reply = Call("DeviceService/ListDevices", "{}");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.Header("retry-after"), "1");
}

TEST_F(JsonOverGrpcTest, UnaryCallsAnswerWithTheContractsNames) {
  json_.Connect(rpc_->InProcessChannel());
  const auto reply = Call("DeviceService/ListDevices", "{}");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const auto topology = boost::json::parse(reply.body).at("topology");
  EXPECT_EQ(topology.at("pools").at(0).at("total_bytes").as_string(), "18446744073709551615");
  EXPECT_EQ(topology.at("name").as_string(), "<b>\u202eevil");
}

TEST_F(JsonOverGrpcTest, ErrorsKeepCodeReasonAndNextStep) {
  json_.Connect(rpc_->InProcessChannel());
  const auto reply = Call("DeviceService/ListDevices", R"({"hardware":"nowhere"})");
  EXPECT_EQ(reply.status, 404);
  const auto error = boost::json::parse(reply.body).at("error");
  EXPECT_EQ(error.at("code").as_string(), "NOT_FOUND");
  EXPECT_EQ(error.at("reason").as_string(), "PROFILE_NOT_FOUND");
  EXPECT_EQ(error.at("next_step").as_string(), "Try r9700.");
}

TEST_F(JsonOverGrpcTest, ABodyThatIsNoMessageIsRefusedByName) {
  json_.Connect(rpc_->InProcessChannel());
  for (const char* body : {"{", "[]", R"({"hardwear":"x"})", R"({"hardware":7})", "\xff"}) {
    const auto reply = Call("DeviceService/ListDevices", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_NE(reply.body.find("ListDevicesRequest"), std::string::npos) << reply.body;
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_EQ(Call("DeviceService/ListDevices", deep).status, 400);
}

TEST_F(JsonOverGrpcTest, WatchesAreEventsUntilTheClientLeaves) {
  json_.Connect(rpc_->InProcessChannel());
  {
    Client client(http_->port());
    client.Request("POST", "/rumbo/v1/InstanceService/WatchInstances", "{}");
    const auto reply = client.Read(true);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.Header("content-type"), "text/event-stream");
    const std::string event = client.ReadUntil("\n\n");
    EXPECT_NE(event.find("data: {"), std::string::npos) << event;
    EXPECT_NE(event.find(R"("id":"i-1")"), std::string::npos) << event;
    EXPECT_EQ(core_.watching.load(), 1);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (core_.watching.load() != 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(core_.watching.load(), 0);
}

TEST_F(JsonOverGrpcTest, ForeignPagesAndCallersWithoutTheScopeAreRefused) {
  json_.Connect(rpc_->InProcessChannel());
  EXPECT_EQ(Call("DeviceService/ListDevices", "{}", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(Call("DeviceService/ListDevices", "{}", "Host: evil.example\r\n").status, 403);
  EXPECT_EQ(Call("DeviceService/ListDevices", "{}", "Content-Type: text/plain\r\n").status, 415);
  EXPECT_EQ(Call("AdminService/Drain", "{}").status, 401);
  EXPECT_EQ(
      Call("AdminService/Drain", "{}", std::string("Authorization: Bearer ") + kListToken + "\r\n").status,
      403);
  EXPECT_EQ(
      Call("AdminService/Drain", "{}", std::string("Authorization: Bearer ") + kAdminToken + "\r\n").status,
      200);
  EXPECT_EQ(Call("AdminService/Nothing", "{}").status, 404);
  EXPECT_EQ(Call("InferenceService/Transcribe", "{}").status, 404);
}

// As another user of this machine; only root can become one.
TEST_F(JsonOverGrpcTest, OthersNeitherNameFilesNorEndWhatRuns) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to act as another user";
  json_.Connect(rpc_->InProcessChannel());
  const auto as_nobody = [&](const std::string& method, const std::string& body, const char* token) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(255);
      const std::string header = std::string("Authorization: Bearer ") + token + "\r\n";
      ::_exit(Call(method, body, header).status - 200);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status) + 200;
  };
  const char kPath[] = R"({"model":"/etc/passwd"})";
  EXPECT_EQ(Call("PlanService/MakePlan", kPath).status, 200);
  EXPECT_EQ(as_nobody("PlanService/MakePlan", kPath, kAdminToken), 403);
  EXPECT_EQ(as_nobody("PlanService/MakePlan", R"({"model":"fake"})", kAdminToken), 200);
  EXPECT_EQ(as_nobody("PlanService/Advise", R"({"models":["fake","/etc/passwd"]})", kAdminToken), 403);
  EXPECT_EQ(as_nobody("ModelService/ImportModel", R"({"path":"/etc/passwd","name":"x"})", kAdminToken), 403);
  EXPECT_EQ(as_nobody("ModelService/UnloadModel", R"({"name":"fake"})", kAskToken), 403);
  EXPECT_NE(as_nobody("ModelService/UnloadModel", R"({"name":"fake"})", kAdminToken), 403);
}

TEST_F(JsonOverGrpcTest, TheDashboardIsForBrowsersAndLocksItselfIn) {
  Client client(http_->port());
  client.Request("GET", "/", "", "Accept: text/html,application/xhtml+xml\r\nAccept-Encoding: identity\r\n");
  const auto page = client.Read();
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.Header("content-type"), "text/html; charset=utf-8");
  const std::string policy = page.Header("content-security-policy");
  EXPECT_NE(policy.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos);
  client.Request("GET", "/", "", "Accept: text/html\r\nIf-None-Match: " + page.Header("etag") + "\r\n");
  const auto again = client.Read();
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  client.Request("GET", "/", "", "Accept: */*\r\n");
  EXPECT_EQ(client.Read().body, "Rumbo is running\n");
  client.Request("GET", "/ui/nothing.js", "");
  EXPECT_EQ(client.Read().status, 404);
}

}  // namespace
}  // namespace rumbo
