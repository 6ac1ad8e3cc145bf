#include "engines/api/catalog.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/status.h"
#include "engines/api/catalog_page.h"

namespace rumbo {
namespace {

std::string FileText(const std::string& path) {
  std::ifstream in(std::string(RUMBO_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

constexpr char kHead[] =
    "schema: 1\nmaturity: [verified, unsupported]\nnever_automatic: [unsupported]\nsources: {s: x}\n";

std::string Engine(const std::string& more = "",
                   const std::string& backend = "support: [{maturity: verified, source: s}]") {
  return std::string(kHead) +
         "engines:\n- {name: e, title: t, kind: worker, memory: layered, systems: {linux: verified}, source: "
         "s" +
         more + ", backends: [{name: cpu, devices: [cpu], " + backend + "}]}\n";
}

constexpr char kSpeed[] =
    "schema: 1\nsources: {s: x}\nrows:\n- {engine: e, backend: cpu, bandwidth_efficiency: 0.5, "
    "compute_efficiency: 0.1, source: s}\n";

TEST(CatalogTest, BuiltInFilesAreTheOnesInTheTree) {
  EXPECT_EQ(FileText("engines/catalog.yaml"), BuiltInCatalogYaml());
  EXPECT_EQ(FileText("engines/speed.yaml"), BuiltInSpeedYaml());
}

TEST(CatalogTest, ThePageInTheDocsIsMadeFromThisCatalog) {
  EXPECT_TRUE(EnginesMarkdown(BuiltInCatalog()) == FileText("docs/engines.md"))
      << "write it anew: rumbod --print-engines > docs/engines.md";
}

TEST(CatalogTest, EveryEngineOfTheDesignIsThere) {
  const EngineCatalog& c = BuiltInCatalog();
  for (const char* name : {"llamacpp", "llama-server", "vllm", "sglang", "fastflowlm", "pytorch",
                           "onnxruntime", "lmstudio", "lemonade", "ollama", "remote", "fake"}) {
    EXPECT_NE(c.Find(name), nullptr) << name;
  }
  EXPECT_EQ(c.Find("vllm")->systems.at("windows"), "unsupported");
  EXPECT_FALSE(c.Find("vllm")->system_note.empty());
  EXPECT_FALSE(c.Find("fake")->automatic);
  EXPECT_FALSE(c.Find("fastflowlm")->batches);
}

// A planned engine whose speed nobody states would lose every comparison without a word.
TEST(CatalogTest, EveryLayeredOrPagedBackendHasConstantsOrIsNeverAutomatic) {
  const EngineCatalog& c = BuiltInCatalog();
  std::set<std::string> without;
  for (const CatalogEngine& engine : c.engines) {
    if (engine.memory != MemoryModel::kLayered && engine.memory != MemoryModel::kPaged) continue;
    for (const CatalogBackend& backend : engine.backends) {
      const bool has = std::any_of(c.speed.begin(), c.speed.end(), [&](const SpeedRow& row) {
        return row.engine == engine.name && row.backend == backend.name;
      });
      if (!has) without.insert(engine.name + "/" + backend.name);
    }
  }
  EXPECT_EQ(without, (std::set<std::string>{"ovms/cpu", "ovms/openvino"}))
      << "no figures published for these yet";
}

// The published schema and the parser know the same keys: a key that only one of them knows fails here.
TEST(CatalogTest, TheSchemaKnowsExactlyTheKeysThatAreRead) {
  const std::string schema = FileText("engines/catalog.schema.json");
  const YAML::Node root = YAML::Load(schema);  // JSON is YAML
  const auto keys = [&](const char* what) {
    std::set<std::string> out;
    for (const auto& item : root["$defs"][what]["properties"]) out.insert(item.first.as<std::string>());
    return out;
  };
  std::map<std::string, std::set<std::string>> read;
  std::ifstream in(std::string(RUMBO_SOURCE_DIR) + "/engines/api/catalog.cpp");
  std::string line, where;
  const std::regex function(R"(^Catalog(Rule|Backend|Engine) Read)"),
      access(R"re(m\.(Text|Needed|Flag|Number|Size|List|Texts|Nodes)\("(\w+)")re");
  while (std::getline(in, line)) {
    std::smatch match;
    if (std::regex_search(line, match, function)) where = match[1];
    if (line == "}") where.clear();
    for (std::sregex_iterator it(line.begin(), line.end(), access), end; it != end && !where.empty(); ++it)
      read[where].insert((*it)[2]);
  }
  EXPECT_EQ(read["Rule"], keys("rule"));
  EXPECT_EQ(read["Backend"], keys("backend"));
  EXPECT_EQ(read["Engine"], keys("engine"));
}

TEST(CatalogTest, EveryKvTypeIsNamedOnce) {
  for (const CatalogEngine& engine : BuiltInCatalog().engines) {
    for (const CatalogBackend& backend : engine.backends) {
      EXPECT_EQ(std::set<std::string>(backend.kv_types.begin(), backend.kv_types.end()).size(),
                backend.kv_types.size());
    }
  }
}

TEST(CatalogTest, AcceptsASmallCatalog) {
  const auto c = ParseCatalog(Engine(), kSpeed);
  ASSERT_TRUE(c.ok()) << MessageOf(c.status());
  EXPECT_EQ(c->engines.size(), 1u);
  EXPECT_EQ(c->speed[0].kv_efficiency, 0.5) << "defaults to the bandwidth's";
}

TEST(CatalogTest, RefusesWhatIsWrongAndSaysWhere) {
  const auto message = [](const std::string& catalog, const std::string& speed = kSpeed) {
    const auto c = ParseCatalog(catalog, speed);
    return c.ok() ? std::string() : MessageOf(c.status());
  };
  EXPECT_NE(message(Engine(", colour: red")).find("colour"), std::string::npos);
  EXPECT_NE(message(Engine("", "support: [{maturity: splendid, source: s}]")).find("splendid"),
            std::string::npos);
  EXPECT_NE(message(Engine("", "support: [{maturity: verified, source: hearsay}]")).find("hearsay"),
            std::string::npos);
  EXPECT_NE(message(Engine("", "support: []")).find("support"), std::string::npos);
  EXPECT_NE(message(Engine("", "host_overhead: 5parsec, support: [{maturity: verified, source: s}]"))
                .find("host_overhead"),
            std::string::npos);
  EXPECT_NE(message(Engine(", max_sessions: 0")).find("max_sessions"), std::string::npos);
  EXPECT_NE(message("schema: 2").find("schema"), std::string::npos);
  EXPECT_NE(message("- a").find("map"), std::string::npos);
  EXPECT_FALSE(message("{").empty());
  const std::string speed = kSpeed;
  EXPECT_NE(message(Engine(),
                    "schema: 1\nsources: {s: x}\nrows:\n- {engine: ghost, backend: cpu, "
                    "bandwidth_efficiency: 0.5, compute_efficiency: 0.1, source: s}\n")
                .find("ghost"),
            std::string::npos);
  EXPECT_NE(message(Engine(),
                    "schema: 1\nsources: {s: x}\nrows:\n- {engine: e, backend: cpu, bandwidth_efficiency: "
                    ".nan, compute_efficiency: 0.1, source: s}\n")
                .find("bandwidth"),
            std::string::npos);
  EXPECT_NE(message(Engine(),
                    "schema: 1\nsources: {s: x}\nrows:\n- {engine: e, backend: cpu, bandwidth_efficiency: 5, "
                    "compute_efficiency: 0.1, source: s}\n")
                .find("bandwidth"),
            std::string::npos);
}

TEST(CatalogTest, PatternsMatchByPrefix) {
  EXPECT_TRUE(MatchesPattern("gfx11*", "gfx1100"));
  EXPECT_FALSE(MatchesPattern("gfx11*", "gfx1201"));
  EXPECT_TRUE(MatchesPattern("Q8_0", "Q8_0"));
  EXPECT_FALSE(MatchesPattern("Q8_0", "Q8_0_X"));
  EXPECT_TRUE(MatchesPattern("*", ""));
}

}  // namespace
}  // namespace rumbo
