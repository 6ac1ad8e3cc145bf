#include "base/os/service_manager.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/status.h"

namespace rumbo {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// What the child of a service manager sees, in a process of its own: descriptors 3... and the variables.
int InChild(const std::vector<int>& handed, const std::string& pid, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (size_t i = 0; i < handed.size(); ++i) ::dup2(handed[i], 40 + static_cast<int>(i));
    for (size_t i = 0; i < handed.size(); ++i) ::dup2(40 + static_cast<int>(i), 3 + static_cast<int>(i));
    ::setenv("LISTEN_PID", (pid.empty() ? std::to_string(::getpid()) : pid).c_str(), 1);
    ::setenv("LISTEN_FDS", std::to_string(handed.size()).c_str(), 1);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

UniqueFd TcpListener() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd.get(), 5), 0);
  return fd;
}

TEST(InheritedListenersTest, TcpSocketComesWithItsAddressAndIsNotInheritedFurther) {
  const UniqueFd tcp = TcpListener();
  EXPECT_EQ(InChild({tcp.get()}, "",
                    [] {
                      const auto taken = TakeInheritedListeners();
                      if (!taken.ok() || taken->size() != 1) return 1;
                      if ((*taken)[0].local || (*taken)[0].name.rfind("127.0.0.1:", 0) != 0) return 2;
                      if ((::fcntl((*taken)[0].fd.get(), F_GETFD) & FD_CLOEXEC) == 0) return 3;
                      return std::getenv("LISTEN_FDS") == nullptr ? 0 : 4;
                    }),
            0);
}

TEST(InheritedListenersTest, AnotherProcessesSocketsAreLeftAlone) {
  const UniqueFd tcp = TcpListener();
  EXPECT_EQ(InChild({tcp.get()}, "1",
                    [] {
                      const auto taken = TakeInheritedListeners();
                      return taken.ok() && taken->empty() ? 0 : 1;
                    }),
            0);
}

TEST(InheritedListenersTest, SomethingElseThanAListenerIsRefusedByItsNumber) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(
      InChild({ends[0]}, "",
              [] {
                const auto taken = TakeInheritedListeners();
                return !taken.ok() && MessageOf(taken.status()).find("descriptor 3") != std::string::npos ? 0
                                                                                                          : 1;
              }),
      0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ServiceManagerTest, NobodyListensAndNothingHappens) {
  ::unsetenv("NOTIFY_SOCKET");
  const ServiceManager manager;
  EXPECT_FALSE(manager.present());
  manager.Ready("x");
}

TEST(ServiceManagerTest, TellsItsStatesToTheSocketAndKnowsTheWatchdog) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "rumbo-notify-test-" + std::to_string(::getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  ::setenv("WATCHDOG_USEC", "5000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  const ServiceManager manager;
  ASSERT_TRUE(manager.present());
  EXPECT_EQ(manager.watchdog(), std::chrono::seconds(5));
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);

  const auto received = [&] {
    char text[256];
    const ssize_t n = ::recv(listener.get(), text, sizeof text, 0);
    return std::string(text, n > 0 ? static_cast<size_t>(n) : 0);
  };
  manager.Ready("answers");
  EXPECT_EQ(received(), "READY=1\nSTATUS=answers");
  manager.Alive();
  EXPECT_EQ(received(), "WATCHDOG=1");
  manager.Reloading();
  EXPECT_THAT(received(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
  manager.Stopping("draining");
  EXPECT_THAT(received(), HasSubstr("STOPPING=1"));
}

}  // namespace
}  // namespace rumbo
