#include "base/os/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/os/unique_fd.h"
#include "base/status.h"

namespace rumbo {
namespace {

class LocalSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/rumbo-ls-XXXXXX";
    dir_ = ::mkdtemp(pattern);
    path_ = dir_ + "/s";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string dir_, path_;
  UniqueFd fd_;
};

TEST_F(LocalSocketTest, OnlyAListenerCounts) {
  EXPECT_EQ(ReasonOf(ProbeLocalSocket(path_, true)), Reason::kDaemonUnreachable);
  ASSERT_EQ(::listen(fd_.get(), 8), 0);
  EXPECT_TRUE(ProbeLocalSocket(path_, true).ok());
  fd_.reset();
  EXPECT_EQ(ReasonOf(ProbeLocalSocket(path_, true)), Reason::kDaemonUnreachable) << "a left-over file";
}

TEST_F(LocalSocketTest, AFullBacklogStillLives) {
  ASSERT_EQ(::listen(fd_.get(), 0), 0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(ProbeLocalSocket(path_, true).ok());
}

TEST_F(LocalSocketTest, AStrangersSocketIsRefusedWhereThePlaceIsShared) {
  ASSERT_EQ(::listen(fd_.get(), 8), 0);
  if (::chown(path_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can give a file away";
  EXPECT_EQ(ReasonOf(ProbeLocalSocket(path_, true)), Reason::kPermissionDenied);
  EXPECT_TRUE(ProbeLocalSocket(path_, false).ok());
}

}  // namespace
}  // namespace rumbo
