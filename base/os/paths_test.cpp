#include "base/os/paths.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/status.h"

namespace rumbo {
namespace {

class PathsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"RUMBO_SOCKET", "XDG_RUNTIME_DIR", "RUMBO_STATE_DIR", "XDG_DATA_HOME",
                             "RUMBO_CACHE_DIR", "XDG_CACHE_HOME", "RUMBO_CONFIG", "XDG_CONFIG_HOME"}) {
      ::unsetenv(name);
    }
    dir_ = testing::TempDir() + "paths." + std::to_string(::getpid());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

TEST_F(PathsTest, SocketComesFromTheVariableThenTheRuntimeDirThenTmp) {
  const std::string fallback = "/tmp/rumbo-" + std::to_string(::getuid()) + "/rumbo.sock";
  EXPECT_EQ(DefaultSocketPath(), fallback);
  ::setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1);
  EXPECT_EQ(DefaultSocketPath(), fallback);
  ::setenv("XDG_RUNTIME_DIR", dir_.c_str(), 1);
  EXPECT_EQ(DefaultSocketPath(), dir_ + "/rumbo/rumbo.sock");
  ::setenv("RUMBO_SOCKET", "/x/y.sock", 1);
  EXPECT_EQ(DefaultSocketPath(), "/x/y.sock");
}

TEST_F(PathsTest, RelativeVariablesBecomeAbsolute) {
  ::setenv("RUMBO_SOCKET", "a/../b.sock", 1);
  EXPECT_EQ(DefaultSocketPath(), std::filesystem::current_path().string() + "/b.sock");
}

TEST_F(PathsTest, StateCacheAndConfigFollowXdgThenHome) {
  ::setenv("HOME", "/home/x", 1);
  EXPECT_EQ(DefaultStateDir(), "/home/x/.local/share/rumbo");
  EXPECT_EQ(DefaultCacheDir(), "/home/x/.cache/rumbo");
  EXPECT_EQ(DefaultConfigFile(), "/home/x/.config/rumbo/config.yaml");
  ::setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(DefaultStateDir(), "/data/rumbo");
  ::setenv("RUMBO_STATE_DIR", "/own", 1);
  EXPECT_EQ(DefaultStateDir(), "/own");
}

TEST_F(PathsTest, PrivateDirRefusesOneThatOthersMayWriteTo) {
  const std::string fresh = dir_ + "/a/b";
  EXPECT_TRUE(MakePrivateDir(fresh).ok());
  struct stat info;
  ASSERT_EQ(::stat(fresh.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_TRUE(MakePrivateDir(fresh).ok()) << "a second time is fine";
  ASSERT_EQ(::chmod(fresh.c_str(), 0777), 0);
  EXPECT_EQ(ReasonOf(MakePrivateDir(fresh)), Reason::kPermissionDenied);
}

TEST_F(PathsTest, PrivateDirRefusesAFile) {
  const std::string file = dir_ + "/f";
  std::fclose(std::fopen(file.c_str(), "w"));
  EXPECT_FALSE(MakePrivateDir(file).ok());
}

}  // namespace
}  // namespace rumbo
