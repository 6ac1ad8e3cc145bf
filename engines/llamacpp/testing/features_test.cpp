// What the llama.cpp worker can do beside plain answers: adapters, guesses ahead, a cache on disk, experts in
// host memory. Real processes; a real model and tiny ones with its vocabulary.
#include <gmock/gmock.h>

#include <thread>

#include "base/status.h"
#include "engines/llamacpp/testing/worker_fixture.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

engine::v1::GenerateRequest Greedy(const std::string& prompt, uint32_t tokens = 48) {
  engine::v1::GenerateRequest request;
  request.set_prompt(prompt);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_max_tokens(tokens);
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

const std::vector<std::string>& Prompts() {
  static const std::vector<std::string> prompts = {"The capital of France is", "1, 2, 3, 4,",
                                                   "def fibonacci(n):", "Once upon a time, by the sea,"};
  return prompts;
}

class FeaturesTest : public WorkerFixture {
 protected:
  void SetUp() override {
    source_ = ModelFile("smollm2.gguf");
    if (!fs::exists(source_)) GTEST_SKIP() << source_ << " is missing: run ./dev setup";
  }

  static engine::v1::LoadRequest LoadSessions(const std::string& file, uint32_t sessions = 4,
                                              uint32_t context = 1024) {
    engine::v1::LoadRequest load = LoadOf(file);
    load.mutable_settings()->set_sessions(sessions);
    load.mutable_settings()->set_context_per_session(context);
    return load;
  }
  void Start(const engine::v1::LoadRequest& load) {
    const auto loaded = Load(load);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    loaded_ = *loaded;
  }
  CollectedAnswer Ask(const engine::v1::GenerateRequest& request) {
    return Collect(worker_->stub(), request);
  }
  std::string Answer(const engine::v1::GenerateRequest& request) {
    const CollectedAnswer answer = Ask(request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    return answer.text;
  }
  std::vector<std::string> Together(const std::vector<engine::v1::GenerateRequest>& requests) {
    std::vector<std::string> texts(requests.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < texts.size(); ++i)
      clients.emplace_back([&, i] { texts[i] = Answer(requests[i]); });
    for (auto& c : clients) c.join();
    return texts;
  }
  engine::v1::GetStatsResponse Stats() {
    engine::v1::GetStatsResponse stats;
    grpc::ClientContext context;
    EXPECT_TRUE(worker_->stub().GetStats(&context, {}, &stats).ok());
    return stats;
  }
  uint64_t Bytes(const char* what) const {
    uint64_t sum = 0;
    for (const auto& item : loaded_.memory()) sum += item.what() == what ? item.bytes() : 0;
    return sum;
  }

  std::string source_;
  engine::v1::LoadedInfo loaded_;
};

// ---- Adapters ----

engine::v1::GenerateRequest With(engine::v1::GenerateRequest request, const std::string& name, float scale) {
  auto* adapter = request.add_adapters();
  adapter->set_name(name);
  adapter->set_scale(scale);
  return request;
}

TEST_P(FeaturesTest, AdaptersApplyToTheRequestThatNamesThemAlone) {
  engine::v1::LoadRequest load = LoadSessions(source_);
  for (const char* name : {"lora", "lora-width", "lora-kind"}) {
    auto* file = load.add_adapters();
    file->set_name(name);
    file->set_file(Tiny(std::string(name) + ".gguf"));
  }
  Start(load);
  const engine::v1::GenerateRequest plain = Greedy(Prompts()[0], 24);
  const std::string without = Answer(plain);
  const std::string whole = Answer(With(plain, "lora", 1));
  const std::string more = Answer(With(plain, "lora", 4));
  EXPECT_NE(whole, without);
  EXPECT_NE(more, whole);
  EXPECT_EQ(Answer(With(plain, "lora", 0)), without);
  EXPECT_EQ(Answer(plain), without);
  // Side by side, each as alone.
  const auto together = Together({plain, With(plain, "lora", 1), plain, With(plain, "lora", 4)});
  EXPECT_EQ(together[0], without);
  EXPECT_EQ(together[1], whole);
  EXPECT_EQ(together[2], without);
  EXPECT_EQ(together[3], more);
}

TEST_P(FeaturesTest, CachedPromptsAreNotSharedBetweenAdapters) {
  engine::v1::LoadRequest load = LoadSessions(source_);
  auto* file = load.add_adapters();
  file->set_name("lora");
  file->set_file(Tiny("lora.gguf"));
  Start(load);
  std::string prompt;
  for (int i = 0; i < 80; ++i) prompt += "word" + std::to_string(i) + " ";
  Answer(Greedy(prompt, 4));
  EXPECT_EQ(Ask(With(Greedy(prompt, 4), "lora", 1)).started.cached_tokens(), 0u);
  EXPECT_GT(Ask(With(Greedy(prompt, 4), "lora", 1)).started.cached_tokens(), 100u);
  EXPECT_EQ(Ask(With(Greedy(prompt, 4), "lora", 0.5)).started.cached_tokens(), 0u);
}

TEST_P(FeaturesTest, AdaptersOfOtherModelsAreRefusedForTheirRequest) {
  engine::v1::LoadRequest load = LoadSessions(source_);
  for (const char* name : {"lora", "lora-width", "lora-kind"}) {
    auto* file = load.add_adapters();
    file->set_name(name);
    file->set_file(Tiny(std::string(name) + ".gguf"));
  }
  auto* missing = load.add_adapters();
  missing->set_name("missing");
  missing->set_file("/nonexistent/adapter.gguf");
  Start(load);
  const auto reason = [&](const engine::v1::GenerateRequest& request) {
    const absl::Status status = FromGrpcStatus(Ask(request).status);
    EXPECT_THAT(MessageOf(status), testing::Not(HasSubstr("/")));
    return ReasonOf(status);
  };
  const engine::v1::GenerateRequest plain = Greedy(Prompts()[0], 4);
  EXPECT_EQ(reason(With(plain, "lora-width", 1)), Reason::kModelInvalid);
  EXPECT_EQ(reason(With(plain, "lora-kind", 1)), Reason::kModelInvalid);
  EXPECT_EQ(reason(With(plain, "missing", 1)), Reason::kModelInvalid);
  EXPECT_EQ(reason(With(plain, "nobody", 1)), Reason::kModelNotFound);
  EXPECT_EQ(reason(With(With(plain, "lora", 1), "lora", 0.5)), Reason::kInvalidArgument);
  EXPECT_EQ(reason(With(plain, "lora", NAN)), Reason::kInvalidArgument);
  EXPECT_FALSE(Answer(plain).empty());
}

// ---- Guesses ahead ----

TEST_P(FeaturesTest, DraftsOfAnEqualModelAreRightAndChangeNothing) {
  Start(LoadSessions(source_));
  std::vector<std::string> alone;
  for (const auto& prompt : Prompts()) alone.push_back(Answer(Greedy(prompt)));
  engine::v1::LoadRequest load = LoadSessions(source_);
  load.mutable_settings()->set_draft_tokens(4);
  (*load.mutable_settings()->mutable_extra())["draft_always"] = "1";
  load.add_draft_files(source_);
  Start(load);
  EXPECT_GT(Bytes("draft"), uint64_t{90} << 20);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(Answer(Greedy(Prompts()[i])), alone[i]);
  std::vector<engine::v1::GenerateRequest> requests;
  for (const auto& prompt : Prompts()) requests.push_back(Greedy(prompt));
  EXPECT_EQ(Together(requests), alone);
  const auto stats = Stats();
  std::printf("%llu of %llu guesses right\n", static_cast<unsigned long long>(stats.accepted_tokens()),
              static_cast<unsigned long long>(stats.drafted_tokens()));
  EXPECT_GT(stats.drafted_tokens(), 200u);
  EXPECT_GE(stats.accepted_tokens(), 0.8 * static_cast<double>(stats.drafted_tokens()));
}

TEST_P(FeaturesTest, BadDraftsChangeNothingAndStop) {
  Start(LoadSessions(source_, 1));
  const std::string alone = Answer(Greedy(Prompts()[3], 160));
  engine::v1::LoadRequest load = LoadSessions(source_, 1);
  load.mutable_settings()->set_draft_tokens(4);
  load.add_draft_files(Tiny("draft.gguf"));
  Start(load);
  const CollectedAnswer answer = Ask(Greedy(Prompts()[3], 160));
  EXPECT_EQ(answer.text, alone);
  std::printf("%u of %u guesses right\n", answer.finished.usage().accepted_tokens(),
              answer.finished.usage().drafted_tokens());
  EXPECT_GT(answer.finished.usage().drafted_tokens(), 0u);
  EXPECT_LT(answer.finished.usage().drafted_tokens(), 100u)
      << "four layers of thirty guess badly: it must stop";
}

TEST_P(FeaturesTest, DraftOfAnotherVocabularyIsRefused) {
  engine::v1::LoadRequest load = LoadSessions(source_);
  load.mutable_settings()->set_draft_tokens(4);
  load.add_draft_files(Tiny("bert-mean.gguf"));
  EXPECT_EQ(ReasonOf(Load(load).status()), Reason::kCapabilityMissing);
  load.clear_draft_files();  // the model has no heads of its own
  EXPECT_EQ(ReasonOf(Load(load).status()), Reason::kCapabilityMissing);
  (*load.mutable_settings()->mutable_extra())["draft_optional"] = "1";
  const auto loaded = Load(load);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->settings().draft_tokens(), 0u);
}

TEST_P(FeaturesTest, HeadsOfTheModelGuessAndChangeNothing) {
  Start(LoadSessions(Tiny("mtp.gguf")));
  std::vector<std::string> alone;
  for (const auto& prompt : Prompts()) alone.push_back(Answer(Greedy(prompt)));
  engine::v1::LoadRequest load = LoadSessions(Tiny("mtp.gguf"));
  load.mutable_settings()->set_draft_tokens(3);
  (*load.mutable_settings()->mutable_extra())["draft_always"] = "1";
  Start(load);
  EXPECT_GT(Bytes("draft"), 0u);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(Answer(Greedy(Prompts()[i])), alone[i]);
  std::vector<engine::v1::GenerateRequest> requests;
  for (const auto& prompt : Prompts()) requests.push_back(Greedy(prompt));
  EXPECT_EQ(Together(requests), alone);
  const auto stats = Stats();
  std::printf("%llu of %llu guesses right\n", static_cast<unsigned long long>(stats.accepted_tokens()),
              static_cast<unsigned long long>(stats.drafted_tokens()));
  EXPECT_GT(stats.drafted_tokens(), 100u);
  EXPECT_GT(stats.accepted_tokens(), 50u);
}

// ---- The cache on disk ----

class DiskTest : public FeaturesTest {
 protected:
  void SetUp() override {
    FeaturesTest::SetUp();
    folder_ = tiny_dir_ / "prompts";
    fs::remove_all(folder_);
  }
  engine::v1::LoadRequest LoadWithDisk(const std::string& kv = "f16") const {
    engine::v1::LoadRequest load = LoadSessions(source_, 2);
    load.set_cache_dir(folder_.string());
    load.set_model_sha256("b179c952");
    load.mutable_settings()->set_kv_type_k(kv);
    load.mutable_settings()->set_host_cache_bytes(64 << 20);
    (*load.mutable_settings()->mutable_extra())["disk_cache_bytes"] = "100000000";
    return load;
  }
  // Waits until so many sequences are written; the worker does so when nothing runs.
  void AwaitWrites(uint64_t count) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (Stats().disk_cache_writes() < count && std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    EXPECT_GE(Stats().disk_cache_writes(), count);
  }
  static std::string Long(int from) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "item " + std::to_string(from + i) + ", ";
    return text;
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) files.push_back(entry.path());
    return files;
  }

  fs::path folder_;
};

TEST_P(DiskTest, ConversationsGoOnAfterARestart) {
  Start(LoadWithDisk());
  engine::v1::GenerateRequest first = Greedy(Long(100), 16);
  first.set_owner("ann");
  const std::string said = Answer(first);
  AwaitWrites(1);
  for (const auto& file : Files()) {
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
  engine::v1::GenerateRequest next = Greedy(Long(100) + said + " and then", 16);
  next.set_owner("ann");
  const CollectedAnswer same_process = Ask(next);

  Start(LoadWithDisk());  // another process
  engine::v1::GenerateRequest stranger = next;
  stranger.set_owner("bob");
  EXPECT_EQ(Ask(stranger).started.cached_tokens(), 0u);
  const CollectedAnswer answer = Ask(next);
  EXPECT_EQ(answer.text, same_process.text);
  EXPECT_GE(answer.started.cached_tokens(), 0.9 * answer.started.prompt_tokens());
  EXPECT_EQ(Stats().disk_cache_loads(), 1u);
}

TEST_P(DiskTest, BrokenAndForeignFilesAreNoHarm) {
  Start(LoadWithDisk());
  for (int i = 0; i < 2; ++i) Answer(Greedy(Long(1000 * i), 8));
  AwaitWrites(2);
  worker_.reset();
  ASSERT_EQ(Files().size(), 2u);
  fs::resize_file(Files()[0], fs::file_size(Files()[0]) / 2);
  {
    std::fstream stream(Files()[1], std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<long>(fs::file_size(Files()[1])) - 1000);
    for (int i = 0; i < 100; ++i) stream.put('x');
  }
  std::ofstream(folder_ / "noise.kv") << std::string(10000, 'n');
  Start(LoadWithDisk());
  for (int i = 0; i < 2; ++i) {
    const CollectedAnswer answer = Ask(Greedy(Long(1000 * i), 8));
    EXPECT_TRUE(answer.status.ok());
    EXPECT_LT(answer.started.cached_tokens(), 10u);  // the two begin alike
  }
  EXPECT_GE(Stats().disk_cache_failures(), 3u);
  EXPECT_FALSE(fs::exists(folder_ / "noise.kv"));

  AwaitWrites(2);
  Start(LoadWithDisk("q8_0"));
  EXPECT_EQ(Ask(Greedy(Long(0), 8)).started.cached_tokens(), 0u);
  EXPECT_EQ(Stats().disk_cache_loads(), 0u);
}

TEST_P(DiskTest, FolderOpenToOthersIsNotUsed) {
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms::all);
  Start(LoadWithDisk());
  EXPECT_FALSE(Answer(Greedy(Long(0), 8)).empty());
  EXPECT_TRUE(Files().empty());
}

// ---- Placement of tensors ----

TEST_P(FeaturesTest, ExpertsStayInPlainHostMemoryWhereAskedFor) {
  Start(LoadSessions(Tiny("moe.gguf")));
  const std::string before = Answer(Greedy(Prompts()[0], 16));
  engine::v1::LoadRequest load = LoadSessions(Tiny("moe.gguf"));
  auto& extra = *load.mutable_settings()->mutable_extra();
  extra["experts_on_host"] = "2";
  Start(load);
  EXPECT_EQ(Answer(Greedy(Prompts()[0], 16)), before);
  extra["experts_on_host"] = "many";
  EXPECT_EQ(ReasonOf(Load(load).status()), Reason::kInvalidArgument);
  extra["experts_on_host"] = "0";
  extra["tensor_split"] = "0.5,0.5";
  EXPECT_EQ(ReasonOf(Load(load).status()), Reason::kInvalidArgument) << "there is no second device";
}

INSTANTIATE_TEST_SUITE_P(Packs, FeaturesTest, testing::ValuesIn(WorkerPacks()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Packs, DiskTest, testing::ValuesIn(WorkerPacks()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rumbo
