#include "daemon/supervisor/prompt_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace rumbo {
namespace {

namespace fs = std::filesystem;

TEST(PromptFolderTest, TheLongestUnusedModelsGo) {
  const fs::path root = fs::temp_directory_path() / ("rumbo-prompts-" + std::to_string(getpid()));
  fs::remove_all(root);
  for (const char* name : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(PreparePromptFolder(root / name, 9).ok());
    std::ofstream(root / name / "x.kv") << "x";
    fs::last_write_time(root / name, fs::file_time_type::clock::now() - std::chrono::hours('z' - name[0]));
  }
  std::ofstream(root / "file") << "stays";
  ASSERT_TRUE(PreparePromptFolder(root / "a", 2).ok());  // the oldest, but used now
  EXPECT_TRUE(fs::exists(root / "a" / "x.kv"));
  EXPECT_FALSE(fs::exists(root / "b"));
  EXPECT_TRUE(fs::exists(root / "c") && fs::exists(root / "d") && fs::exists(root / "file"));
  EXPECT_EQ(fs::status(root / "a").permissions(), fs::perms::owner_all);
  fs::remove_all(root);
}

}  // namespace
}  // namespace rumbo
