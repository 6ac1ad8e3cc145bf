#include "daemon/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

class OptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("RUMBO_HTTP");
    ::unsetenv("RUMBO_KEEP_ALIVE");
    path_ = "/tmp/rumbo-options-" + std::to_string(::getpid()) + ".yaml";
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  std::string Write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string path_;
};

TEST_F(OptionsTest, CommandLineWinsOverEnvironmentOverFile) {
  Write("http: 127.0.0.1:1\nkeep-alive: 10\ndrain: 7\n");
  ::setenv("RUMBO_HTTP", "127.0.0.1:2", 1);
  ::setenv("RUMBO_KEEP_ALIVE", "20", 1);
  const auto options = ReadOptions({"--config", path_, "--http=127.0.0.1:3"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->http, "127.0.0.1:3");
  EXPECT_EQ(options->keep_alive_s, 20);
  EXPECT_EQ(options->drain_s, 7);
}

TEST_F(OptionsTest, UnknownOptionsNameTheNearest) {
  for (const auto& args : {std::vector<std::string>{"--sokcet", "/x"},
                           std::vector<std::string>{"--config", Write("sokcet: /x\n")}}) {
    const auto options = ReadOptions(args);
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(NextStepOf(options.status()).find("socket"), std::string::npos) << options.status();
  }
}

TEST_F(OptionsTest, BadValuesAndFilesAreRefusedWithTheirPlace) {
  EXPECT_NE(MessageOf(ReadOptions({"--config", Write("drain: 5\nkeep-alive: soon\n")}).status()).find(":2"),
            std::string::npos);
  EXPECT_FALSE(ReadOptions({"--drain", "-5"}).ok());
  EXPECT_FALSE(ReadOptions({"--drain"}).ok());
  EXPECT_FALSE(ReadOptions({"--config", "/no/such.yaml"}).ok());
  EXPECT_FALSE(ReadOptions({"--config", Write("{{{")}).ok());
  EXPECT_FALSE(ReadOptions({"--config", Write(std::string("\x00\x01\xff", 3))}).ok());
  EXPECT_FALSE(ReadOptions({"stray"}).ok());
}

TEST_F(OptionsTest, DocsAreWhatTheTableSays) {
  const auto docs = ReadFile(std::string(RUMBO_SOURCE_DIR) + "/docs/configuration.md", 1 << 20);
  ASSERT_TRUE(docs.ok()) << docs.status();
  EXPECT_NE(docs->find(OptionsMarkdown()), std::string::npos)
      << "run `rumbod --print-docs` and put its table there";
}

TEST_F(OptionsTest, ChangedOptionsAreNamed) {
  const auto a = ReadOptions({"--config", Write(""), "--keep-alive", "60"});
  const auto b = ReadOptions(
      {"--config", Write(""), "--keep-alive", "61", "--log-level", "debug", "--battery-floor", "5"});
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(ChangedOptions(*a, *a), std::vector<std::string>{});
  EXPECT_EQ(ChangedOptions(*a, *b), (std::vector<std::string>{"keep-alive", "battery-floor", "log-level"}));
}

}  // namespace
}  // namespace rumbo
