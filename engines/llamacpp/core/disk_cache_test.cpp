#include "engines/llamacpp/core/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "engines/llamacpp/core/host_cache.h"

namespace rumbo {
namespace {

namespace fs = std::filesystem;

CachedSequence Sequence(const std::string& key, std::vector<TokenId> tokens, size_t bytes, uint8_t fill = 7) {
  CachedSequence sequence;
  sequence.key = key;
  sequence.tokens = std::move(tokens);
  sequence.state.bytes.assign(bytes, fill);
  sequence.oldest = 3;
  return sequence;
}

std::vector<TokenId> Count(int from, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(from + i);
  return tokens;
}

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("rumbo-disk-" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::unique_ptr<DiskCache> Open(uint64_t bytes = 1 << 20, const std::string& fingerprint = "model|1|f16") {
    auto cache = DiskCache::Open({root_.string(), bytes, fingerprint});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  static std::optional<uint64_t> Find(const DiskCache& cache, const std::string& key,
                                      const std::vector<TokenId>& prompt, uint32_t more_than = 0) {
    return cache.Find(key, more_than,
                      [&](const DiskCache::Item& item) { return CommonPrefix(item.tokens, prompt); });
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(root_)) files.push_back(entry.path());
    return files;
  }
  void Spoil(const fs::path& file, long at) const {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at < 0 ? static_cast<long>(fs::file_size(file)) + at : at);
    const int c = stream.get();
    stream.seekp(at < 0 ? static_cast<long>(fs::file_size(file)) + at : at);
    stream.put(static_cast<char>(c ^ 0x10));
  }

  fs::path root_;
};

TEST_F(DiskCacheTest, SequencesOutliveTheProcess) {
  Open()->Put(Sequence("ann", Count(0, 100), 5000));
  const auto cache = Open();
  const auto id = Find(*cache, "ann", Count(0, 200));
  ASSERT_TRUE(id);
  const auto back = cache->Load(*id);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->tokens, Count(0, 100));
  EXPECT_EQ(back->oldest, 3);
  EXPECT_EQ(back->state.bytes, std::vector<uint8_t>(5000, 7));
  EXPECT_EQ(cache->stats().loaded, 1u);
}

TEST_F(DiskCacheTest, OwnersDoNotSeeEachOthers) {
  const auto cache = Open();
  cache->Put(Sequence("ann", Count(0, 100), 500));
  cache->Flush();
  EXPECT_FALSE(Find(*cache, "bob", Count(0, 200)));
  EXPECT_TRUE(Find(*cache, "ann", Count(0, 200)));
  EXPECT_FALSE(Find(*cache, "ann", Count(0, 200), 100));
}

TEST_F(DiskCacheTest, ALongerConversationReplacesItsBeginning) {
  const auto cache = Open();
  cache->Put(Sequence("ann", Count(0, 100), 500));
  cache->Put(Sequence("ann", Count(0, 150), 600));
  cache->Put(Sequence("ann", Count(0, 120), 550));  // held already
  cache->Flush();
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_EQ(cache->stats().written, 2u);
  EXPECT_TRUE(cache->Holds("ann", Count(0, 120)));
  EXPECT_FALSE(cache->Holds("bob", Count(0, 120)));
}

TEST_F(DiskCacheTest, TheQuotaHolds) {
  auto cache = Open(10000);
  for (int i = 0; i < 20; ++i) cache->Put(Sequence("ann", Count(1000 * i, 100), 2000));
  cache->Put(Sequence("ann", Count(7, 100), 20000));
  cache->Flush();
  uint64_t sum = 0;
  for (const auto& file : Files()) sum += fs::file_size(file);
  EXPECT_LE(sum, 10000u);
  EXPECT_EQ(sum, cache->stats().bytes);
  EXPECT_GE(Files().size(), 3u);
  EXPECT_TRUE(Find(*cache, "ann", Count(19000, 100))) << "the newest stays";
  cache.reset();
  cache = Open(3000);
  EXPECT_LE(cache->stats().bytes, 3000u);
}

TEST_F(DiskCacheTest, BrokenFilesAreDeletedAndNothingElse) {
  {
    const auto cache = Open();
    for (int i = 0; i < 6; ++i) cache->Put(Sequence("ann", Count(1000 * i, 100), 5000));
  }
  const auto files = Files();
  ASSERT_EQ(files.size(), 6u);
  Spoil(files[0], 20);    // head
  Spoil(files[1], 70);    // names
  Spoil(files[2], 300);   // tokens
  Spoil(files[3], -100);  // state: found when read
  fs::resize_file(files[4], fs::file_size(files[4]) - 1);
  std::ofstream(root_ / "short.kv") << "RUMBOKV1";
  std::ofstream(root_ / "empty.kv") << "";
  std::ofstream(root_ / "other.txt") << "not ours";
  const auto cache = Open();
  EXPECT_EQ(cache->stats().files, 2u);
  EXPECT_EQ(cache->stats().deleted, 6u);
  int whole = 0;
  for (int i = 0; i < 6; ++i) {
    const auto id = Find(*cache, "ann", Count(1000 * i, 100));
    if (id) whole += cache->Load(*id).has_value();
  }
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(cache->stats().deleted, 7u);
  EXPECT_EQ(Files().size(), 2u);  // the whole one and the stranger
}

TEST_F(DiskCacheTest, ForeignFilesAreNotUsedAndGoFirst) {
  Open(1 << 20, "model|1|f16")->Put(Sequence("ann", Count(0, 100), 5000));
  {
    const auto cache = Open(1 << 20, "model|1|q8_0");
    EXPECT_FALSE(Find(*cache, "ann", Count(0, 100)));
    EXPECT_EQ(Files().size(), 1u);
  }
  const auto cache = Open(6000, "model|2|f16");
  cache->Put(Sequence("ann", Count(0, 100), 5000, 9));
  cache->Flush();
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_EQ(cache->Load(*Find(*cache, "ann", Count(0, 100)))->state.bytes[0], 9);
}

TEST_F(DiskCacheTest, FilesThatAreGoneAreAMiss) {
  const auto cache = Open();
  cache->Put(Sequence("ann", Count(0, 100), 500));
  cache->Flush();
  const auto id = Find(*cache, "ann", Count(0, 100));
  fs::remove(Files().front());
  EXPECT_FALSE(cache->Load(*id));
  EXPECT_FALSE(Find(*cache, "ann", Count(0, 100)));
  EXPECT_EQ(cache->stats().deleted, 0u);
}

// A file size limit fails writes as a full disk does.
TEST_F(DiskCacheTest, WritesThatFailAreCountedAndLeaveNothing) {
  const auto cache = Open();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{4000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  cache->Put(Sequence("ann", Count(0, 100), 50000));
  cache->Put(Sequence("ann", Count(5000, 100), 500));
  cache->Flush();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(cache->stats().failed, 1u);
  EXPECT_EQ(cache->stats().written, 1u);
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_FALSE(Find(*cache, "ann", Count(0, 100)));
}

TEST_F(DiskCacheTest, WhatLeavesHostMemoryComesBackFromTheDisk) {
  const auto disk = Open();
  HostCache host(10000, disk.get());
  const auto usable = [](const auto&, uint32_t common) { return common; };
  for (int i = 0; i < 4; ++i) {
    HostCache::Entry entry;
    static_cast<CachedSequence&>(entry) =
        Sequence("ann", Count(1000 * i, 100), 4000, static_cast<uint8_t>(i));
    host.Put(std::move(entry));
  }
  disk->Flush();
  EXPECT_EQ(host.size(), 2u);
  EXPECT_EQ(Files().size(), 2u);
  for (int i = 0; i < 4; ++i) {
    uint32_t length = 0;
    const auto* entry = host.Find("ann", Count(1000 * i, 200), &length, usable);
    ASSERT_NE(entry, nullptr) << i;
    EXPECT_EQ(length, 100u);
    EXPECT_EQ(entry->state.bytes, std::vector<uint8_t>(4000, static_cast<uint8_t>(i)));
    disk->Flush();
  }
  while (host.PersistOne()) {
  }
  disk->Flush();
  EXPECT_EQ(Files().size(), 4u);
}

}  // namespace
}  // namespace rumbo
