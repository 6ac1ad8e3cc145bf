#include "daemon/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <cstring>

#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

constexpr char kHowTo[] = "docs/http.md says how to make a certificate.";

absl::Status Refused(const std::string& what) {
  char text[256] = "";
  if (const unsigned long code = ::ERR_get_error(); code != 0) ::ERR_error_string_n(code, text, sizeof text);
  ::ERR_clear_error();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotAllowedByPolicy,
               what + (text[0] != '\0' ? ": " + EscapeForLog(text, 200) : ""), kHowTo);
}

class Session final : public TlsSession {
 public:
  explicit Session(SSL* ssl) : ssl_(ssl) {}
  ~Session() override { ::SSL_free(ssl_); }

  Step Read(char* to, size_t size) override {
    ::ERR_clear_error();
    size_t moved = 0;
    const int result = ::SSL_read_ex(ssl_, to, size, &moved);
    return StepOf(result, moved);
  }
  Step Write(std::string_view bytes) override {
    ::ERR_clear_error();
    size_t moved = 0;
    const int result = ::SSL_write_ex(ssl_, bytes.data(), bytes.size(), &moved);
    return StepOf(result, moved);
  }
  bool Pending() const override { return ::SSL_has_pending(ssl_) == 1 && ::SSL_pending(ssl_) > 0; }
  void Shutdown() override {
    if (broken_ || ::SSL_in_init(ssl_) != 0) return;
    ::ERR_clear_error();
    ::SSL_shutdown(ssl_);
  }

 private:
  Step StepOf(int result, size_t moved) {
    if (result == 1) return {State::kDone, moved};
    switch (::SSL_get_error(ssl_, result)) {
      case SSL_ERROR_WANT_READ:
        return {State::kWantRead, 0};
      case SSL_ERROR_WANT_WRITE:
        return {State::kWantWrite, 0};
      case SSL_ERROR_ZERO_RETURN:
        return {State::kEnded, 0};
      default:
        broken_ = true;
        return {State::kBroken, 0};
    }
  }

  SSL* const ssl_;
  bool broken_ = false;  // no further call may be made, not even a goodbye
};

// HTTP/1.1 is all there is.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in,
                   unsigned int in_length, void*) {
  constexpr std::string_view kHttp = "http/1.1";
  for (unsigned int at = 0; at < in_length && at + 1 + in[at] <= in_length; at += 1u + in[at]) {
    if (in[at] == kHttp.size() && std::memcmp(in + at + 1, kHttp.data(), kHttp.size()) == 0) {
      *out = in + at + 1;
      *out_length = in[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_NOACK;
}

class Context final : public TlsContext {
 public:
  Context() : context_(::SSL_CTX_new(::TLS_server_method())) {}
  ~Context() override { ::SSL_CTX_free(context_); }

  absl::Status Fill(const std::string& certificate_file, const std::string& key_file) {
    if (context_ == nullptr) return Internal("no TLS context");
    ::SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
    ::SSL_CTX_set_options(context_,
                          SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    ::SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                     SSL_MODE_RELEASE_BUFFERS);
    ::SSL_CTX_set_alpn_select_cb(context_, ChooseProtocol, nullptr);
    ::SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
    struct stat info;
    if (::stat(key_file.c_str(), &info) == 0 && (info.st_mode & 07) != 0) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kPermissionDenied,
                   "the TLS key can be read by others", "Give the file mode 0600.");
    }
    ::ERR_clear_error();
    if (::SSL_CTX_use_certificate_chain_file(context_, certificate_file.c_str()) != 1)
      return Refused("the TLS certificate cannot be used");
    if (::SSL_CTX_use_PrivateKey_file(context_, key_file.c_str(), SSL_FILETYPE_PEM) != 1)
      return Refused("the TLS key cannot be used");
    if (::SSL_CTX_check_private_key(context_) != 1) return Refused("the TLS key is another certificate's");
    return absl::OkStatus();
  }

  std::unique_ptr<TlsSession> NewSession(int fd) const override {
    SSL* ssl = ::SSL_new(context_);
    if (ssl == nullptr) return nullptr;
    auto session = std::make_unique<Session>(ssl);
    if (::SSL_set_fd(ssl, fd) != 1) return nullptr;
    ::SSL_set_accept_state(ssl);
    return session;
  }

 private:
  SSL_CTX* const context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(const std::string& certificate_file,
                                                             const std::string& key_file) {
  auto context = std::make_unique<Context>();
  RUMBO_RETURN_IF_ERROR(context->Fill(certificate_file, key_file));
  return std::unique_ptr<TlsContext>(std::move(context));
}

}  // namespace rumbo
