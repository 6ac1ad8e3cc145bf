#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rumbo {

// Everything that bounds or configures the HTTP front. Times are monotonic.
struct HttpOptions {
  std::string address = "127.0.0.1";  // loopback only; other machines have remote_address
  uint16_t port = 11711;              // 0: the system chooses (tests)
  // A listening socket at `address`:`port` that the service manager opened; -1: we open one.
  int listener = -1;
  // A second port with the same routes, for apps that know only Ollama's 11434. nullopt: none.
  std::optional<uint16_t> second_port;

  // A door for other machines: an IPv4 address ("0.0.0.0": all), only with TLS and at least one token. "":
  // none.
  std::string remote_address;
  uint16_t remote_port = 0;
  std::string tls_certificate;  // PEM files
  std::string tls_key;

  // Beside 127.0.0.1:PORT, localhost:PORT and [::1]:PORT of either port. Exact, "name:port".
  std::vector<std::string> allowed_hosts;
  // Beside http://127.0.0.1:PORT and http://localhost:PORT. Exact, "scheme://name:port".
  std::vector<std::string> allowed_origins;

  std::string token_file;       // API tokens (access.h); "" none
  std::string trace_collector;  // "http://HOST:PORT[/PATH]" of an OpenTelemetry collector; "" none
  std::string audit_file;       // one JSON line per action that changes models or the daemon; "" none
  // Per caller (user or token), for inference and changes; 0: no bound.
  uint32_t max_requests_at_once = 0;
  double max_requests_per_second = 0;

  size_t max_header_bytes = 32 * 1024;
  size_t max_headers = 100;
  size_t max_body_bytes = 16 * 1024 * 1024;
  size_t max_json_depth = 64;
  size_t max_connections = 12000;
  // Bytes of one answer that wait for a slow client; beyond that its engine is paused.
  size_t output_buffer_bytes = 1024 * 1024;

  std::chrono::milliseconds header_timeout{
      10'000};  // from the first byte (or the accept) to the end of the head
  std::chrono::milliseconds body_timeout{60'000};    // from the end of the head to the end of the body
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests of one connection
  std::chrono::milliseconds write_timeout{120'000};  // without any byte taken by the client

  std::string version = "0.1.0";
};

}  // namespace rumbo
