#include "base/os/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/status.h"

namespace rumbo {
namespace {

namespace fs = std::filesystem;

class PrivateFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("rumbo-folder-" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path root_;
};

TEST_F(PrivateFolderTest, WritesFilesOnlyTheUserCanRead) {
  auto folder = PrivateFolder::Open(root_ / "a" / "b");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string_view parts[] = {"hello ", "there"};
  ASSERT_TRUE((*folder)->Write("x", parts).ok());
  ASSERT_TRUE((*folder)->Write("x", parts).ok());
  ASSERT_EQ((*folder)->List().size(), 1u);
  EXPECT_EQ((*folder)->List()[0].bytes, 11u);
  struct stat info {};
  ASSERT_EQ(stat((root_ / "a" / "b" / "x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((root_ / "a" / "b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  std::string read(5, '\0');
  ASSERT_TRUE((*folder)->Read("x", 6, read.data(), 5).ok());
  EXPECT_EQ(read, "there");
  EXPECT_FALSE((*folder)->Read("x", 7, read.data(), 5).ok());
  EXPECT_EQ((*folder)->Read("y", 0, read.data(), 5).code(), absl::StatusCode::kNotFound);
  (*folder)->Remove("x");
  EXPECT_TRUE((*folder)->List().empty());
}

TEST_F(PrivateFolderTest, FoldersOpenToOthersAreRefused) {
  fs::create_directories(root_ / "open");
  fs::permissions(root_ / "open", fs::perms::all);
  EXPECT_EQ(PrivateFolder::Open(root_ / "open").status().code(), absl::StatusCode::kPermissionDenied);
  fs::create_directories(root_ / "mine");
  fs::permissions(root_ / "mine", fs::perms::owner_all);
  fs::create_directory_symlink(root_ / "mine", root_ / "link");
  EXPECT_FALSE(PrivateFolder::Open(root_ / "link").ok());
  EXPECT_TRUE(PrivateFolder::Open(root_ / "mine").ok());
}

TEST_F(PrivateFolderTest, LinksInItAreNoFiles) {
  auto folder = PrivateFolder::Open(root_ / "f");
  ASSERT_TRUE(folder.ok());
  std::ofstream(root_ / "outside") << "secret";
  fs::create_symlink(root_ / "outside", root_ / "f" / "x");
  EXPECT_TRUE((*folder)->List().empty());
  char c = 0;
  EXPECT_FALSE((*folder)->Read("x", 0, &c, 1).ok());
  const std::string_view parts[] = {"new"};
  ASSERT_TRUE((*folder)->Write("x", parts).ok());
  std::string line;
  std::ifstream outside(root_ / "outside");
  std::getline(outside, line);
  EXPECT_EQ(line, "secret");
}

TEST_F(PrivateFolderTest, HalfWrittenFilesOfACrashAreSweptAway) {
  { ASSERT_TRUE(PrivateFolder::Open(root_ / "f").ok()); }
  std::ofstream(root_ / "f" / ".part-1-2") << "half";
  auto folder = PrivateFolder::Open(root_ / "f");
  ASSERT_TRUE(folder.ok());
  EXPECT_TRUE((*folder)->List().empty());
}

}  // namespace
}  // namespace rumbo
