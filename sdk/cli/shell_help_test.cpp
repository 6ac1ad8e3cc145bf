#include "sdk/cli/shell_help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace rumbo::cli {
namespace {

using ::testing::HasSubstr;

TEST(ShellHelpTest, EveryCommandAndOptionOfTheTableIsThere) {
  const auto commands = DescribeCommands();
  ASSERT_GT(commands.size(), 15u);
  const std::string manual = ManualPage("1.2.3");
  for (const auto& command : commands) {
    EXPECT_FALSE(command.text.empty()) << command.name;
    EXPECT_THAT(manual, HasSubstr(".SS \"" + command.name)) << command.name;
    for (const char* shell : {"bash", "zsh", "fish"}) {
      EXPECT_THAT(*CompletionScript(shell), HasSubstr(command.name)) << shell;
    }
  }
  EXPECT_THAT(*CompletionScript("fish"), HasSubstr("'__fish_seen_subcommand_from plan' -l hardware -r"));
  EXPECT_FALSE(CompletionScript("tcsh").has_value());
}

// The shell itself says whether it understands the script, and what it then offers.
TEST(ShellHelpTest, BashOffersCommandsAndTheirOptions) {
  const std::string path = ::testing::TempDir() + "/rumbo.bash";
  std::ofstream(path) << *CompletionScript("bash");
  const std::string script =
      "bash -c 'set -e; . " + path +
      "; COMP_WORDS=(rumbo pl); COMP_CWORD=1; _rumbo; echo \"${COMPREPLY[*]}\""
      "; COMP_WORDS=(rumbo plan --hard); COMP_CWORD=2; _rumbo; echo \"${COMPREPLY[*]}\"'";
  FILE* pipe = ::popen(script.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string out;
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) out += buffer;
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_EQ(out, "plan\n--hardware\n");
}

}  // namespace
}  // namespace rumbo::cli
