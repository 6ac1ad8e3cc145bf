#include "daemon/store/caches.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace rumbo {
namespace {

namespace fs = std::filesystem;

class CachesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rumbo-caches-XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(dir_); }
  void Write(const std::string& path, const std::string& data) {
    fs::create_directories(fs::path(dir_ + "/" + path).parent_path());
    std::ofstream(dir_ + "/" + path, std::ios::binary) << data;
  }
  void Link(const std::string& target, const std::string& path) {
    fs::create_directories(fs::path(dir_ + "/" + path).parent_path());
    fs::create_symlink(target, dir_ + "/" + path);
  }
  std::string dir_;
};

// As huggingface_hub 2.4.0 lays it out.
TEST_F(CachesTest, HuggingFaceSnapshotOfMainIsFoundThroughItsLinks) {
  const std::string repo = "hub/models--org--Tiny-GGUF/";
  Write(repo + "blobs/" + std::string(64, 'a'), "model");
  Write(repo + "refs/main", "c0ffee");
  Link("../../blobs/" + std::string(64, 'a'), repo + "snapshots/c0ffee/tiny-Q4_K_M.gguf");
  Link("../../blobs/" + std::string(64, 'a'), repo + "snapshots/0ld/other.gguf");
  Write("outside", "x");
  Link("../../../../outside", repo + "snapshots/c0ffee/escape.gguf");
  const auto models = ScanCaches({"huggingface:" + dir_ + "/hub"});
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, "tiny-gguf");
  EXPECT_EQ(models[0].cache, "huggingface");
  EXPECT_EQ(models[0].path, dir_ + "/" + repo + "snapshots/c0ffee/tiny-Q4_K_M.gguf");
  EXPECT_EQ(models[0].bytes, 5u);
}

// As Ollama 0.17.4 lays it out.
TEST_F(CachesTest, OllamaManifestsLeadToTheirBlobs) {
  const std::string hash(64, 'b');
  Write("o/blobs/sha256-" + hash, "model");
  const auto manifest = [](const std::string& digest, int size) {
    return R"({"schemaVersion":2,"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:)" +
           digest + R"(","size":)" + std::to_string(size) + "}]}";
  };
  Write("o/manifests/registry.ollama.ai/library/tiny/135m", manifest(hash, 5));
  Write("o/manifests/registry.ollama.ai/me/half/latest", manifest(hash, 6));
  Write("o/manifests/registry.ollama.ai/me/evil/latest", manifest("../../../etc/passwd", 5));
  const auto models = ScanCaches({"ollama:" + dir_ + "/o"});
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].name, "tiny:135m");
  EXPECT_EQ(models[0].state, "found");
  EXPECT_EQ(models[0].path, dir_ + "/o/blobs/sha256-" + hash);
  EXPECT_EQ(models[1].state, "refused");
  EXPECT_EQ(models[2].state, "refused");
}

TEST_F(CachesTest, SplitSetsAreOneAndMissingPartsAreNamed) {
  Write("l/pub/Big-GGUF/big-Q8_0-00001-of-00002.gguf", "1");
  Write("l/pub/Big-GGUF/big-Q8_0-00002-of-00002.gguf", "22");
  Write("l/pub/Cut-GGUF/cut-Q8_0-00001-of-00002.gguf", "1");
  const auto models = ScanCaches({"lmstudio:" + dir_ + "/l"});
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].bytes, 3u);
  EXPECT_EQ(models[0].state, "found");
  EXPECT_EQ(models[1].state, "refused");
  EXPECT_EQ(models[1].text, "part 2 of 2 is missing");
}

TEST_F(CachesTest, NothingWhereNothingIs) {
  EXPECT_TRUE(ScanCaches({"ollama:/nonexistent", "huggingface:" + dir_}).empty());
}

}  // namespace
}  // namespace rumbo
