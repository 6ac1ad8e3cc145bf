#include "daemon/store/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/manual_executor.h"
#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

namespace fs = std::filesystem;

class StoreTest : public ::testing::Test, public WallClock {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rumbo-store-XXXXXX";
    dir_ = ::mkdtemp(name);
    Reopen();
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(dir_);
  }
  int64_t UnixSeconds() const override { return 1234; }

  void Reopen() {
    store_ = NewModelStore(
        {.dir = dir_ + "/state"},
        [this](const std::string& path) -> absl::StatusOr<ModelDescriptor> {
          // A folder, or a part of a set, counts as what its first file is.
          const auto data = ReadFile(fs::is_directory(path) ? path + "/model.safetensors" : path, 1 << 20);
          if (!data.ok()) return data.status();
          if (data->rfind("model", 0) != 0) {
            return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid, "not a model");
          }
          ++inspected_;
          ModelDescriptor descriptor;
          descriptor.format = "gguf";
          descriptor.architecture = *data;
          descriptor.file_bytes = data->size();
          return descriptor;
        },
        &executor_, this);
  }
  std::string Write(const std::string& name, const std::string& data) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << data;
    return dir_ + "/" + name;
  }
  absl::StatusOr<StoredModel> Import(ImportSpec spec, bool cancel = false) {
    absl::StatusOr<StoredModel> result = Internal("no answer");
    store_->Import(
        std::move(spec), std::make_shared<std::atomic<bool>>(cancel), [](const StepProgress&) {},
        [&](absl::StatusOr<StoredModel> model) { result = std::move(model); });
    executor_.RunReady();
    return result;
  }
  std::vector<StoredModel> List() {
    absl::StatusOr<std::vector<StoredModel>> result = Internal("no answer");
    store_->List([&](absl::StatusOr<std::vector<StoredModel>> models) { result = std::move(models); });
    executor_.RunReady();
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : std::vector<StoredModel>{};
  }
  absl::StatusOr<Bytes> Delete(const std::string& name) {
    absl::StatusOr<Bytes> result = Internal("no answer");
    store_->Delete(name, [&](absl::StatusOr<Bytes> freed) { result = freed; });
    executor_.RunReady();
    return result;
  }
  int BlobCount() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir_ + "/state/blobs")) ++count;
    return count;
  }

  std::string dir_;
  ManualExecutor executor_;
  std::unique_ptr<ModelKeeper> store_;
  int inspected_ = 0;
};

TEST_F(StoreTest, ImportsByContentHashAndSurvivesARestart) {
  const auto model = Import({.path = Write("a", "model a"), .name = "a"});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->variants.size(), 1u);
  // sha256sum of "model a"
  EXPECT_EQ(model->variants[0].sha256, "d9b0632857ca4b418510f29709cdb45a8b560322ee007a447ab4ec7b9730b88e");
  EXPECT_EQ(model->variants[0].files[0], dir_ + "/state/blobs/sha256-" + model->variants[0].sha256);
  struct stat info;
  ASSERT_EQ(::stat(model->variants[0].files[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0400u);
  Reopen();
  const auto models = List();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, "a");
  EXPECT_EQ(models[0].variants[0].descriptor.architecture, "model a");
  EXPECT_EQ(models[0].variants[0].added_unix_s, 1234);
  EXPECT_EQ(models[0].variants[0].state, "complete");
}

TEST_F(StoreTest, VariantsStandBesideEachOther) {
  const auto one = Import({.path = Write("q4", "model four"), .name = "m", .variant = "q4"});
  ASSERT_TRUE(one.ok()) << one.status();
  const auto two = Import({.path = Write("q8", "model eight"), .name = "m", .variant = "q8"});
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_EQ(two->variants.size(), 2u);
  EXPECT_EQ(two->variants[0].id, "q4");
  EXPECT_EQ(two->variants[1].id, "q8");
  EXPECT_EQ(Import({.path = Write("x", "model other"), .name = "m", .variant = "q8"}).status().code(),
            absl::StatusCode::kAlreadyExists);
  const auto replaced =
      Import({.path = Write("x", "model other"), .name = "m", .replace = true, .variant = "q8"});
  ASSERT_TRUE(replaced.ok());
  EXPECT_EQ(replaced->variants.size(), 2u);
  EXPECT_EQ(Import({.path = Write("y", "model only"), .name = "m"}).status().code(),
            absl::StatusCode::kAlreadyExists);
  const auto only = Import({.path = Write("y", "model only"), .name = "m", .replace = true});
  ASSERT_TRUE(only.ok());
  EXPECT_EQ(only->variants.size(), 1u);
  EXPECT_FALSE(Import({.path = Write("z", "z"), .name = "m", .variant = "../x"}).ok());
}

TEST_F(StoreTest, SameContentIsStoredOnceAndFreedWithItsLastName) {
  const std::string path = Write("a", "model a");
  ASSERT_TRUE(Import({.path = path, .name = "a"}).ok());
  ASSERT_TRUE(Import({.path = path, .name = "b"}).ok());
  EXPECT_EQ(BlobCount(), 1);
  EXPECT_EQ(*Delete("a"), 0u);
  EXPECT_EQ(BlobCount(), 1);
  EXPECT_EQ(*Delete("b"), 7u);
  EXPECT_EQ(BlobCount(), 0);
  EXPECT_EQ(ReasonOf(Delete("b").status()), Reason::kModelNotFound);
}

TEST_F(StoreTest, NameOfOtherContentIsRefusedUnlessReplaced) {
  ASSERT_TRUE(Import({.path = Write("a", "model a"), .name = "m"}).ok());
  const std::string other = Write("b", "model bb");
  EXPECT_EQ(ReasonOf(Import({.path = other, .name = "m"}).status()), Reason::kModelExists);
  EXPECT_EQ(BlobCount(), 1);
  EXPECT_TRUE(Import({.path = other, .name = "m", .replace = true}).ok());
  EXPECT_TRUE(Import({.path = other, .name = "m"}).ok()) << "the same content again is fine";
}

TEST_F(StoreTest, NothingIsLeftOfWhatWasRefused) {
  EXPECT_EQ(ReasonOf(Import({.path = Write("x", "junk"), .name = "x"}).status()), Reason::kModelInvalid);
  EXPECT_EQ(ReasonOf(Import({.path = dir_, .name = "x"}).status()), Reason::kNotAFile);
  EXPECT_EQ(ReasonOf(Import({.path = dir_ + "/none", .name = "x"}).status()), Reason::kFileNotFound);
  const std::string good = Write("g", "model g");
  EXPECT_EQ(ReasonOf(Import({.path = good, .name = "x", .expected_sha256 = "00"}).status()),
            Reason::kHashMismatch);
  EXPECT_EQ(ReasonOf(Import({.path = good, .name = "x"}, true).status()), Reason::kCancelled);
  EXPECT_EQ(BlobCount(), 0);
  EXPECT_TRUE(List().empty());
}

TEST_F(StoreTest, HostileNamesAreRefused) {
  const std::string good = Write("g", "model g");
  for (const std::string& name :
       {std::string(), std::string("../x"), std::string("a/../b"), std::string("/a"), std::string("a//b"),
        std::string("-rf"), std::string("a\nb"), std::string("a\0b", 3), std::string("a/"),
        std::string(201, 'a')}) {
    EXPECT_EQ(ReasonOf(Import({.path = good, .name = name}).status()), Reason::kInvalidArgument) << name;
  }
  EXPECT_TRUE(Import({.path = good, .name = "org/model:q4_k_m@v1"}).ok());
}

TEST_F(StoreTest, LeftoversOfAnInterruptedImportGoAtTheNextStart) {
  List();
  std::ofstream(dir_ + "/state/blobs/tmp-1-1") << "half";
  Reopen();
  List();
  EXPECT_EQ(BlobCount(), 0);
}

TEST_F(StoreTest, ACutBlobIsListedAsDamaged) {
  const auto model = Import({.path = Write("a", "model a"), .name = "a"});
  ASSERT_TRUE(model.ok());
  const std::string blob = model->variants[0].files[0];
  ::chmod(blob.c_str(), 0600);
  fs::resize_file(blob, 3);
  EXPECT_EQ(List()[0].variants[0].state, "damaged");
}

TEST_F(StoreTest, SplitSetIsOneModelUnderItsOwnNames) {
  Write("m-00001-of-00002.gguf", "model part one");
  Write("m-00002-of-00002.gguf", "and part two");
  const auto model = Import({.path = dir_ + "/m-00001-of-00002.gguf", .name = "m"});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<std::string>& files = model->variants[0].files;
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(fs::path(files[0]).filename(), "m-00001-of-00002.gguf");
  EXPECT_EQ(fs::path(files[1]).filename(), "m-00002-of-00002.gguf");
  EXPECT_EQ(fs::hard_link_count(files[0]), 2u);
  EXPECT_EQ(model->variants[0].descriptor.file_bytes, 26u);
  EXPECT_EQ(BlobCount(), 2);
  fs::remove(files[1]);
  EXPECT_EQ(List()[0].variants[0].state, "damaged");
  EXPECT_EQ(*Delete("m"), 26u);
  EXPECT_EQ(BlobCount(), 0);
  EXPECT_TRUE(fs::is_empty(dir_ + "/state/sets"));
}

TEST_F(StoreTest, SplitSetsAreRefusedByWhatIsMissing) {
  Write("m-00001-of-00003.gguf", "model part one");
  Write("m-00002-of-00003.gguf", "model part two");
  const auto missing = Import({.path = dir_ + "/m-00001-of-00003.gguf", .name = "m"});
  EXPECT_NE(MessageOf(missing.status()).find("part 3 of 3 is missing"), std::string::npos)
      << missing.status();
  Write("m-00003-of-00003.gguf", "model part three");
  const auto second = Import({.path = dir_ + "/m-00002-of-00003.gguf", .name = "m"});
  EXPECT_EQ(ReasonOf(second.status()), Reason::kInvalidArgument);
  EXPECT_EQ(BlobCount(), 0);
}

TEST_F(StoreTest, FoldersOfSafetensorsAreTakenAndPicklesRefused) {
  fs::create_directory(dir_ + "/f");
  Write("f/config.json", "{}");
  Write("f/pytorch_model.bin", "code");
  EXPECT_NE(MessageOf(Import({.path = dir_ + "/f", .name = "f"}).status()).find("pickle"), std::string::npos);
  Write("f/model.safetensors", "model s");
  const auto model = Import({.path = dir_ + "/f", .name = "f"});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->variants[0].files.size(), 2u);
  EXPECT_EQ(BlobCount(), 2);
  EXPECT_NE(MessageOf(Import({.path = Write("x.pt", "model"), .name = "x"}).status()).find("pickle"),
            std::string::npos);
}

TEST_F(StoreTest, AdoptedFilesStayWhereTheyAre) {
  const std::string path = Write("theirs.gguf", "model t");
  const auto model = Import({.path = "link:" + path, .name = "t"});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->variants[0].files[0], path);
  EXPECT_EQ(BlobCount(), 0);
  EXPECT_EQ(*Delete("t"), 0u);
  EXPECT_TRUE(fs::exists(path));
  const std::string rotten = Write("sha256-" + std::string(64, 'a'), "model r");
  EXPECT_EQ(ReasonOf(Import({.path = "link:" + rotten, .name = "r"}).status()), Reason::kHashMismatch);
}

TEST_F(StoreTest, AChangedBlobIsNotLaunched) {
  const auto model = Import({.path = Write("a", "model a"), .name = "a"});
  ASSERT_TRUE(model.ok());
  const std::string blob = model->variants[0].files[0];
  EXPECT_TRUE(store_->CheckUnchanged({blob, "/unknown"}).ok());
  ::chmod(blob.c_str(), 0600);
  fs::last_write_time(blob, fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(store_->CheckUnchanged({blob}).ok()) << "touched, not changed";
  std::ofstream(blob, std::ios::binary) << "model b";
  fs::last_write_time(blob, fs::file_time_type::clock::now() + std::chrono::hours(2));
  EXPECT_EQ(ReasonOf(store_->CheckUnchanged({blob})), Reason::kHashMismatch);
  EXPECT_EQ(List()[0].variants[0].state, "damaged");
}

TEST_F(StoreTest, ReferenceCountsAndGarbage) {
  ASSERT_TRUE(Import({.path = Write("a", "model a"), .name = "a"}).ok());
  std::ofstream(dir_ + "/state/blobs/sha256-" + std::string(64, '0')) << "stray";
  for (const bool dry : {true, false}) {
    absl::StatusOr<Garbage> garbage = Internal("no answer");
    store_->Collect(dry, {}, [&](absl::StatusOr<Garbage> found) { garbage = std::move(found); });
    executor_.RunReady();
    ASSERT_TRUE(garbage.ok()) << garbage.status();
    EXPECT_EQ(garbage->items.size(), 1u);
    EXPECT_EQ(BlobCount(), dry ? 2 : 1);
  }
}

TEST_F(StoreTest, QuotaIsKept) {
  store_ = NewModelStore(
      {.dir = dir_ + "/state", .quota = 1},
      [](const std::string&) { return ModelDescriptor{.format = "gguf"}; }, &executor_, this);
  const auto result = Import({.path = Write("a", "model a"), .name = "a"});
  EXPECT_EQ(ReasonOf(result.status()), Reason::kDiskFull) << result.status();
  EXPECT_EQ(BlobCount(), 0);
}

TEST_F(StoreTest, FullDiskIsSaidAndLeavesNothing) {
  if (::geteuid() != 0 || ::system("mountpoint -q /dev/shm") != 0)
    GTEST_SKIP() << "needs root to mount a small tmpfs";
  const std::string state = dir_ + "/state";
  fs::create_directories(state);
  if (::system(("mount -t tmpfs -o size=256k none " + state).c_str()) != 0)
    GTEST_SKIP() << "cannot mount here";
  const auto result = Import({.path = Write("big", "model " + std::string(400000, 'x')), .name = "big"});
  EXPECT_EQ(ReasonOf(result.status()), Reason::kDiskFull) << result.status();
  EXPECT_EQ(BlobCount(), 0);
  EXPECT_TRUE(Import({.path = Write("small", "model s"), .name = "small"}).ok()) << "the store works on";
  store_.reset();
  ASSERT_EQ(::system(("umount " + state).c_str()), 0);
}

}  // namespace
}  // namespace rumbo
