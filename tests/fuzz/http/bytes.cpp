// Raw bytes on a connection to a real server over a fake core. "@" stands for the server's own Host, so that
// inputs get past the first check. The connection must end, and the server must answer the next client.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "daemon/http/server.h"
#include "daemon/http/test_client.h"
#include "tests/fakes/fake_core.h"

namespace {

struct Target {
  Target() {
    rumbo::HttpOptions options;
    options.port = 0;
    auto started = rumbo::HttpServer::Start(options, &core);
    if (!started.ok()) std::abort();
    server = *std::move(started);
  }
  rumbo::FakeCore core;
  std::unique_ptr<rumbo::HttpServer> server;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Target* target = new Target;
  static int count = 0;
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    data[i] == '@' ? text += "127.0.0.1:" + std::to_string(target->server->port())
                   : text += static_cast<char>(data[i]);
  }
  rumbo::Client client(target->server->port());
  if (!client.connected()) std::abort();
  client.Send(text);
  ::shutdown(client.fd(), SHUT_WR);
  client.ReadAll();
  if (++count % 64 == 0) {
    rumbo::Client next(target->server->port());
    next.Request("GET", "/live");
    if (next.Read().status != 200) std::abort();
  }
  return 0;
}
