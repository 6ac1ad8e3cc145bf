// The door for other machines: TLS and a token, or nothing.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "daemon/http/server.h"
#include "daemon/http/test_client.h"
#include "daemon/http/tls.h"
#include "tests/fakes/fake_core.h"

namespace rumbo {
namespace {

constexpr char kToken[] = "remote-secret-token-0123456789";

template <typename T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* p) const { Free(p); }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, ::EVP_PKEY_free>>;

// A self-signed certificate for "rumbo.test" and its key, as PEM files.
void MakeCertificate(const std::string& certificate, const std::string& key_file) {
  Key key(EVP_EC_gen("P-256"));
  std::unique_ptr<X509, Deleter<X509, ::X509_free>> x(::X509_new());
  ::ASN1_INTEGER_set(::X509_get_serialNumber(x.get()), 1);
  ::X509_gmtime_adj(X509_getm_notBefore(x.get()), -60);
  ::X509_gmtime_adj(X509_getm_notAfter(x.get()), 3600);
  ::X509_set_pubkey(x.get(), key.get());
  X509_NAME* name = ::X509_get_subject_name(x.get());
  ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("rumbo.test"),
                               -1, -1, 0);
  ::X509_set_issuer_name(x.get(), name);
  ::X509_sign(x.get(), key.get(), ::EVP_sha256());
  FILE* out = std::fopen(certificate.c_str(), "w");
  ::PEM_write_X509(out, x.get());
  std::fclose(out);
  out = std::fopen(key_file.c_str(), "w");
  ::PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
  ::chmod(key_file.c_str(), 0600);
}

// TLS over the test's client, blocking.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port, int highest = 0) : socket_(port), port_(port) {
    context_.reset(::SSL_CTX_new(::TLS_client_method()));
    if (highest != 0) ::SSL_CTX_set_max_proto_version(context_.get(), highest);
    ssl_.reset(::SSL_new(context_.get()));
    ::SSL_set_fd(ssl_.get(), socket_.fd());
    connected_ = ::SSL_connect(ssl_.get()) == 1;
    ::ERR_clear_error();
  }
  bool connected() const { return connected_; }
  // Sends a request and reads to the end of the connection.
  std::string Ask(const std::string& line, const std::string& headers, const std::string& body = "") {
    const bool host = headers.find("Host: ") != std::string::npos;
    Send(line + " HTTP/1.1\r\nConnection: close\r\n" +
         (host ? "" : "Host: 127.0.0.1:" + std::to_string(port_) + "\r\n") + headers +
         (body.empty()
              ? ""
              : "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n") +
         "\r\n" + body);
    return ReadAll();
  }
  void Send(const std::string& text) {
    size_t written = 0;
    for (size_t at = 0; at < text.size(); at += written) {
      if (::SSL_write_ex(ssl_.get(), text.data() + at, text.size() - at, &written) != 1) return;
    }
  }
  std::string ReadAll() {
    std::string out;
    char chunk[65536];
    size_t n = 0;
    while (::SSL_read_ex(ssl_.get(), chunk, sizeof chunk, &n) == 1) out.append(chunk, n);
    clean_end_ = ::SSL_get_error(ssl_.get(), 0) == SSL_ERROR_ZERO_RETURN;
    ::ERR_clear_error();
    return out;
  }
  std::string ReadSome() {
    char chunk[4096];
    size_t n = 0;
    return ::SSL_read_ex(ssl_.get(), chunk, sizeof chunk, &n) == 1 ? std::string(chunk, n) : std::string();
  }
  bool clean_end() const { return clean_end_; }

 private:
  Client socket_;
  uint16_t port_;
  std::unique_ptr<SSL_CTX, Deleter<SSL_CTX, ::SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Deleter<SSL, ::SSL_free>> ssl_;
  bool connected_ = false;
  bool clean_end_ = false;
};

int StatusOf(const std::string& answer) { return answer.size() > 12 ? std::atoi(answer.c_str() + 9) : 0; }

class RemoteDoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/rumbo-tls-XXXXXX";
    dir_ = ::mkdtemp(pattern);
    options_.port = 0;
    options_.remote_address = "127.0.0.1";
    options_.tls_certificate = dir_ / "cert.pem";
    options_.tls_key = dir_ / "key.pem";
    options_.token_file = dir_ / "tokens";
    MakeCertificate(options_.tls_certificate, options_.tls_key);
    WriteTokens(std::string("far list,inference ") + kToken + "\n");
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(dir_);
  }
  void WriteTokens(const std::string& text) {
    std::ofstream(dir_ / "tokens") << text;
    ::chmod((dir_ / "tokens").c_str(), 0600);
  }
  void Start() {
    auto server = HttpServer::Start(options_, &core_);
    ASSERT_TRUE(server.ok()) << MessageOf(server.status());
    server_ = *std::move(server);
  }
  static std::string Bearer() { return std::string("Authorization: Bearer ") + kToken + "\r\n"; }

  std::filesystem::path dir_;
  HttpOptions options_;
  FakeCore core_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(RemoteDoorTest, StartsOnlyWithTlsAndAToken) {
  const auto refused = [&](HttpOptions options) {
    const absl::Status status = HttpServer::Start(options, &core_).status();
    EXPECT_FALSE(NextStepOf(status).empty());
    return absl::IsFailedPrecondition(status);
  };
  HttpOptions no_tls = options_;
  no_tls.tls_certificate.clear();
  EXPECT_TRUE(refused(no_tls));
  HttpOptions other_key = options_;
  other_key.tls_key = dir_ / "other.pem";
  MakeCertificate(dir_ / "unused.pem", other_key.tls_key);
  EXPECT_TRUE(refused(other_key));
  HttpOptions missing = options_;
  missing.tls_certificate = dir_ / "none.pem";
  EXPECT_TRUE(refused(missing));
  ::chmod(options_.tls_key.c_str(), 0644);
  EXPECT_TRUE(refused(options_));
  ::chmod(options_.tls_key.c_str(), 0600);
  WriteTokens("# none\nlocal list uid:0\n");  // a user of this machine is no token
  EXPECT_TRUE(refused(options_));
  HttpOptions name = options_;
  name.remote_address = "example.com";
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start(name, &core_).status()));
  WriteTokens(std::string("far list ") + kToken + "\n");
  Start();
  EXPECT_NE(server_->remote_port(), 0);
}

TEST_F(RemoteDoorTest, BelievesTokensAndNoUser) {
  Start();
  const std::string body = R"({"model":"fake","prompt":"x"})";
  // From the daemon's own user, but through this door.
  EXPECT_EQ(StatusOf(TlsClient(server_->remote_port()).Ask("GET /v1/models", "")), 401);
  EXPECT_EQ(StatusOf(TlsClient(server_->remote_port()).Ask("GET /v1/models", "x-api-key: wrong\r\n")), 401);
  EXPECT_EQ(StatusOf(TlsClient(server_->remote_port()).Ask("GET /v1/models", Bearer())), 200);
  EXPECT_EQ(StatusOf(TlsClient(server_->remote_port()).Ask("GET /live", "")), 200);
  EXPECT_EQ(
      StatusOf(TlsClient(server_->remote_port()).Ask("POST /api/pull", Bearer(), R"({"model":"fake"})")),
      403);
  TlsClient client(server_->remote_port());
  const std::string answer = client.Ask("POST /v1/completions", Bearer(), body);
  EXPECT_EQ(StatusOf(answer), 200);
  EXPECT_TRUE(client.clean_end());
  const InferenceRequest request = core_.requests().at(0);
  EXPECT_EQ(request.generate.owner, "token:far");
  EXPECT_EQ(request.client.app.rfind("token:far/", 0), 0u);
}

TEST_F(RemoteDoorTest, HostMustBeItsOwnAddressOrConfigured) {
  options_.allowed_hosts = {"gpu.lan:11712"};
  Start();
  const auto status = [&](const std::string& host) {
    return StatusOf(TlsClient(server_->remote_port()).Ask("GET /live", "Host: " + host + "\r\n"));
  };
  const std::string port = ":" + std::to_string(server_->remote_port());
  EXPECT_EQ(status("127.0.0.1" + port), 200);
  EXPECT_EQ(status("GPU.lan:11712"), 200);
  for (const char* bad : {"evil.test", "localhost", "127.0.0.2"}) EXPECT_EQ(status(bad + port), 403) << bad;
  EXPECT_EQ(
      StatusOf(
          TlsClient(server_->remote_port()).Ask("GET /live", "Origin: http://127.0.0.1" + port + "\r\n")),
      403);  // plain http is another origin
  EXPECT_EQ(
      StatusOf(
          TlsClient(server_->remote_port()).Ask("GET /live", "Origin: https://127.0.0.1" + port + "\r\n")),
      200);
}

TEST_F(RemoteDoorTest, OnAllAddressesTheOneReachedIsTheHost) {
  options_.remote_address = "0.0.0.0";
  Start();
  const std::string port = ":" + std::to_string(server_->remote_port());
  EXPECT_EQ(StatusOf(TlsClient(server_->remote_port()).Ask("GET /live", "Host: 127.0.0.1" + port + "\r\n")),
            200);
  EXPECT_EQ(StatusOf(TlsClient(server_->remote_port()).Ask("GET /live", "Host: 192.0.2.1" + port + "\r\n")),
            403);
}

TEST_F(RemoteDoorTest, SpeaksNothingButModernTls) {
  Start();
  Client plain(server_->remote_port());
  plain.Request("GET", "/live");
  EXPECT_EQ(plain.ReadAll().find("200 OK"), std::string::npos);
  EXPECT_FALSE(TlsClient(server_->remote_port(), TLS1_1_VERSION).connected());
  EXPECT_TRUE(TlsClient(server_->remote_port(), TLS1_2_VERSION).connected());
  // The plain door is still there, and plain.
  Client local(server_->port());
  local.Request("GET", "/live");
  EXPECT_EQ(local.Read().status, 200);
}

TEST_F(RemoteDoorTest, StreamsAndBigBodiesComeWhole) {
  Start();
  const std::string prompt(3'000'000, 'p');
  TlsClient client(server_->remote_port());
  const std::string answer =
      client.Ask("POST /v1/completions", Bearer(),
                 R"({"model":"fake","stream":true,"max_tokens":20000,"prompt":")" + prompt + "\"}");
  EXPECT_EQ(core_.requests().at(0).generate.input.prompt.size(), prompt.size());
  EXPECT_NE(answer.find(" 19999\""), std::string::npos);
  EXPECT_NE(answer.find("data: [DONE]"), std::string::npos);
}

TEST_F(RemoteDoorTest, LeavingCancels) {
  core_.SetScript([](const InferenceRequest& request, AnswerSink& sink, FakeCore::Call& call) {
    FakeCore::Begin(request, sink, 1);
    call.AwaitCancel();
    sink.OnEnd(FakeCore::Cancelled(), nullptr);
  });
  Start();
  {
    TlsClient client(server_->remote_port());
    const std::string body = R"({"model":"fake","prompt":"x","stream":true})";
    client.Send("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server_->remote_port()) +
                "\r\n" + Bearer() + "Content-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_EQ(StatusOf(client.ReadSome()), 200);
    ASSERT_TRUE(core_.AwaitBegun(1));
  }
  EXPECT_TRUE(core_.AwaitEnded(1));
}

TEST_F(RemoteDoorTest, SlowReaderPausesTheEngineAndGetsEverything) {
  options_.output_buffer_bytes = 64 * 1024;
  core_.SetScript([](const InferenceRequest& request, AnswerSink& sink, FakeCore::Call& call) {
    FakeCore::Begin(request, sink, 1);
    for (int i = 0; i < 400; ++i) {
      ChunkEvent chunk;
      chunk.text = std::string(64 * 1024, 'x');
      chunk.tokens = 1;
      if (!call.Send(sink, std::move(chunk))) return sink.OnEnd(FakeCore::Cancelled(), nullptr);
    }
    FakeCore::End(sink, "stop", 1, 400);
  });
  Start();
  TlsClient client(server_->remote_port());
  const std::string body = R"({"model":"fake","prompt":"x","stream":true})";
  client.Send("POST /v1/completions HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1:" +
              std::to_string(server_->remote_port()) + "\r\n" + Bearer() +
              "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  ASSERT_TRUE(core_.AwaitPaused());
  const std::string answer = client.ReadAll();
  EXPECT_GT(answer.size(), size_t{400} * 64 * 1024);
  EXPECT_NE(answer.find("data: [DONE]"), std::string::npos);
}

}  // namespace
}  // namespace rumbo
