// A program that behaves like rumbod towards a starter: fake_rumbod --socket PATH. With FAKE_RUMBOD=fail it
// says why on standard error and ends with 3; with FAKE_RUMBOD=deaf it never listens.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "sdk/cpp/testing/fake_daemon.h"

int main(int argc, char** argv) {
  if (argc != 3 || std::string(argv[1]) != "--socket") return 2;
  const char* mode = std::getenv("FAKE_RUMBOD");
  if (mode != nullptr && std::string(mode) == "fail") {
    std::fprintf(stderr, "rumbod: the disk is full\n");
    return 3;
  }
  ::alarm(60);  // Never longer than the test that started it.
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  std::fprintf(stderr, "pid %d\n", ::getpid());
  int signal = 0;
  if (mode != nullptr && std::string(mode) == "deaf") return ::sigwait(&set, &signal);
  rumbo::FakeDaemon daemon(argv[2]);
  ::sigwait(&set, &signal);
}
