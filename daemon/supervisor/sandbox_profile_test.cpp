#include "daemon/supervisor/sandbox_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "daemon/supervisor/sandbox_journal.h"

namespace rumbo {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CatalogEngine EngineWith(std::map<std::string, std::string> words) {
  CatalogEngine engine;
  engine.name = "e";
  engine.sandbox = std::move(words);
  return engine;
}

TEST(SandboxProfileTest, ABackendsWordsStandInForTheEnginesAndItsPathsBesideThem) {
  const CatalogEngine engine = EngineWith({{"jit", "none"},
                                           {"read", "/a /b"},
                                           {"vulkan.jit", "allowed"},
                                           {"vulkan.read", "/v {home}/x"},
                                           {"vulkan.devices", "/dev/dri"},
                                           {"vulkan.write", "{drivers} {cache}/c"}});
  LaunchSpec spec;
  spec.backend = "vulkan";
  const auto gpu = WorkerSandbox(engine, spec, {"/home/me", "", "/cache/drivers"});
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  EXPECT_THAT(gpu->read_only, ElementsAre("/a", "/b", "/v", "/home/me/x"));
  EXPECT_THAT(gpu->read_write, ElementsAre("/cache/drivers"));  // there is no {cache}
  EXPECT_THAT(gpu->devices, ElementsAre("/dev/dri"));
  EXPECT_FALSE(gpu->deny_jit);
  EXPECT_TRUE(gpu->deny_exec);
  spec.backend = "cpu";
  const auto cpu = WorkerSandbox(engine, spec, {"/home/me", "", "/cache/drivers"});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_THAT(cpu->read_only, ElementsAre("/a", "/b"));
  EXPECT_THAT(cpu->devices, ElementsAre());
  EXPECT_TRUE(cpu->deny_jit);
}

TEST(SandboxProfileTest, TheModelsFilesAreReadableWhereTheyReallyAre) {
  char pattern[] = "/tmp/rumbo-profile-XXXXXX";
  const std::string dir = ::mkdtemp(pattern);
  std::ofstream(dir + "/blob") << "x";
  std::ofstream(dir + "/adapter") << "x";
  std::filesystem::create_symlink(dir + "/blob", dir + "/model.gguf");
  LaunchSpec spec;
  spec.files = {dir + "/model.gguf"};
  spec.settings.extra = {{"adapter", dir + "/adapter"}, {"words", "/not there"}, {"n", "4"}};
  const auto options = WorkerSandbox(EngineWith({}), spec, {});
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->read_only, ElementsAre(dir + "/blob", dir + "/adapter"));
  std::filesystem::remove_all(dir);
}

TEST(SandboxProfileTest, UnknownWordsAreRefusedNotIgnored) {
  for (const auto& [key, value] :
       {std::pair("jit", "maybe"), std::pair("exec", "yes"), std::pair("reed", "/a"),
        std::pair("cpu.jit", ""), std::pair("network", "loopback")}) {
    LaunchSpec spec;
    spec.backend = "cpu";
    EXPECT_FALSE(WorkerSandbox(EngineWith({{key, value}}), spec, {}).ok()) << key;
  }
}

TEST(SandboxProfileTest, EveryWorkerOfTheCatalogHasAProfile) {
  for (const CatalogEngine& engine : BuiltInCatalog().engines) {
    if (engine.kind != "worker" && engine.kind != "test") continue;
    EXPECT_FALSE(engine.sandbox.empty()) << engine.name;
    for (const CatalogBackend& backend : engine.backends) {
      LaunchSpec spec;
      spec.backend = backend.name;
      const auto options = WorkerSandbox(engine, spec, {"/home/me", "/cache/i", "/cache/drivers"});
      EXPECT_TRUE(options.ok()) << engine.name << " " << backend.name << ": " << options.status();
      if (!options.ok()) continue;
      for (const std::string& path : options->read_only) EXPECT_NE(path, "/home/me") << engine.name;
      EXPECT_THAT(options->read_write, Not(Contains("/"))) << engine.name;
    }
  }
}

TEST(SandboxJournalTest, LevelsDenialsAndMissingPartsAreForTheDoctor) {
  SandboxJournal journal;
  journal.Started("e", "vulkan", false);
  EXPECT_EQ(journal.Line("e", "vulkan", "an engine's own line"), "");
  EXPECT_EQ(journal.Line("e", "vulkan", "rumbo-sandbox level Landlock ABI 7"), "");
  journal.Line("e", "vulkan", "rumbo-sandbox missing seccomp: none");
  EXPECT_EQ(journal.Line("e", "vulkan", "rumbo-sandbox denied /etc/secret"), "/etc/secret");
  std::map<std::string, Finding> said;
  for (const Finding& f : journal.Findings()) said[f.code] = f;
  EXPECT_THAT(said["sandbox.level"].text, HasSubstr("e (vulkan) runs with Landlock ABI 7"));
  EXPECT_THAT(said["sandbox.level"].text, Not(HasSubstr("namespaces")));
  EXPECT_EQ(said["sandbox.no_namespaces"].severity, Severity::kWarning);
  EXPECT_EQ(said["sandbox.missing"].severity, Severity::kWarning);
  EXPECT_EQ(said["sandbox.denied"].severity, Severity::kInfo);
  EXPECT_THAT(said["sandbox.denied"].text, HasSubstr("/etc/secret"));
  journal.FailedToStart("e", "vulkan");
  for (const Finding& f : journal.Findings()) said[f.code] = f;
  EXPECT_EQ(said["sandbox.denied"].severity, Severity::kBroken);
  EXPECT_FALSE(said["sandbox.denied"].remedy.empty());
}

}  // namespace
}  // namespace rumbo
