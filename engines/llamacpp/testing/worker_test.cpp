// The llama.cpp worker as the daemon sees it: real processes, real models, over a socketpair.
// Models are smollm2.gguf (has a chat template) and gemma.gguf (sliding window) in the folder
// RUMBO_TEST_MODELS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/status.h"
#include "base/utf8.h"
#include "engines/worker_kit/grpc_status.h"
#include "engines/worker_kit/testing/worker_process.h"

namespace rumbo {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string ModelsDir() {
  const char* dir = std::getenv("RUMBO_TEST_MODELS");
  if (dir != nullptr) return dir;
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.cache/rumbo-dev/models";
}

std::vector<std::string> Packs() {
  std::vector<std::string> packs;
  std::stringstream words(RUMBO_TEST_PACKS);
  for (std::string word; std::getline(words, word, ',');) packs.push_back(word);
  return packs;
}

class WorkerTest : public testing::TestWithParam<std::string> {
 protected:
  std::string Program(const char* name) const {
    return std::string(RUMBO_BIN_DIR "/engines/llamacpp-") + GetParam() + "/" + name;
  }
  std::string Model(const char* name) const { return ModelsDir() + "/" + name; }

  void Spawn() {
    auto worker = WorkerProcess::Start(Program("rumbo-llamacpp"));
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
  }

  engine::v1::LoadRequest LoadOf(const char* model, uint32_t sessions = 4, uint32_t context = 1024) const {
    engine::v1::LoadRequest load;
    load.add_files(Model(model));
    load.set_backend("cpu");
    load.mutable_settings()->set_sessions(sessions);
    load.mutable_settings()->set_context_per_session(context);
    load.mutable_settings()->set_threads(1);
    return load;
  }
  // Starts a worker with the model; skips the test where the model is not there.
  void Start(const char* model, uint32_t sessions = 4, uint32_t context = 1024, bool unified = false) {
    if (!fs::exists(Model(model))) GTEST_SKIP() << Model(model) << " is missing: run ./dev setup";
    Spawn();
    engine::v1::LoadRequest load = LoadOf(model, sessions, context);
    load.mutable_settings()->set_kv_unified(unified);
    auto loaded = worker_->Load(load);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    loaded_ = *loaded;
  }

  static engine::v1::GenerateRequest Greedy(const std::string& prompt, uint32_t max_tokens) {
    engine::v1::GenerateRequest request;
    request.set_prompt(prompt);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_sampling()->set_max_tokens(max_tokens);
    return request;
  }
  static engine::v1::GenerateRequest WithLogprobs(const std::string& prompt) {
    engine::v1::GenerateRequest request = Greedy(prompt, 24);
    request.mutable_sampling()->set_logprobs(2);
    return request;
  }
  CollectedAnswer Ask(const engine::v1::GenerateRequest& request) {
    return Collect(worker_->stub(), request);
  }

  std::string Text(const std::vector<int32_t>& ids) {
    engine::v1::DetokenizeRequest request;
    for (const int32_t id : ids) request.add_ids(id);
    engine::v1::DetokenizeResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(worker_->stub().Detokenize(&context, request, &response).ok());
    return SanitizeUtf8(response.raw());
  }

  // Long computations run with one pack only: what they test does not differ between builds.
  bool IsFirstPack() const { return GetParam() == Packs().front(); }

  // What the plain loop over the same libllama answers to each line.
  std::vector<std::vector<int32_t>> Reference(const char* model, const std::vector<std::string>& prompts,
                                              int tokens) {
    const fs::path in = fs::temp_directory_path() / ("rumbo-raw-" + std::to_string(getpid()));
    std::ofstream(in) << [&] {
      std::string all;
      for (const auto& p : prompts) all += p + "\n";
      return all;
    }();
    const std::string command = Program("rumbo-llama-raw") + " " + Model(model) + " " +
                                std::to_string(tokens) + " 1 1024 < " + in.string() + " 2>/dev/null";
    std::vector<std::vector<int32_t>> answers;
    FILE* pipe = popen(command.c_str(), "r");
    std::string line;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) {
      if (c != '\n') {
        line.push_back(static_cast<char>(c));
        continue;
      }
      std::stringstream words(line);
      answers.emplace_back();
      for (int32_t id; words >> id;) answers.back().push_back(id);
      line.clear();
    }
    pclose(pipe);
    fs::remove(in);
    return answers;
  }

  std::unique_ptr<WorkerProcess> worker_;
  engine::v1::LoadedInfo loaded_;
};

const std::vector<std::string>& FixedPrompts() {
  static const std::vector<std::string> prompts = {
      "The capital of France is", "Once upon a time, in a small village by the sea,",
      "def fibonacci(n):",        "1, 2, 3, 4,",
      "El rumbo de un barco es",  "Water boils at",
  };
  return prompts;
}

TEST_P(WorkerTest, GreedyAnswersEqualThoseOfLlamaCppItself) {
  for (const char* model : {"smollm2.gguf", "gemma.gguf"}) {
    Start(model);
    if (IsSkipped() || HasFatalFailure()) return;
    const auto reference = Reference(model, FixedPrompts(), 48);
    ASSERT_EQ(reference.size(), FixedPrompts().size());
    for (size_t i = 0; i < reference.size(); ++i) {
      const CollectedAnswer answer = Ask(Greedy(FixedPrompts()[i], 48));
      ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
      EXPECT_EQ(answer.text, Text(reference[i])) << model << ": " << FixedPrompts()[i];
    }
  }
}

TEST_P(WorkerTest, LoadReportsWhatItTookAndItsSettings) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  EXPECT_THAT(loaded_.engine_version(), HasSubstr("llama.cpp 0.5.0"));
  EXPECT_FALSE(loaded_.backend_variant().empty());
  EXPECT_TRUE(loaded_.has_chat_template());
  EXPECT_EQ(loaded_.context_trained(), 8192u);
  EXPECT_EQ(loaded_.settings().sessions(), 4u);
  EXPECT_EQ(loaded_.settings().context_total(), 4096u);
  uint64_t weights = 0, cache = 0;
  for (const auto& item : loaded_.memory()) {
    if (item.what() == "weights") weights += item.bytes();
    if (item.what() == "kv_cache") cache += item.bytes();
  }
  EXPECT_NEAR(static_cast<double>(weights), 97e6, 10e6);
  // 30 layers, 3 KV heads of 64, K and V in f16.
  EXPECT_EQ(cache, uint64_t{30} * 3 * 64 * 2 * 2 * 4096);
}

TEST_P(WorkerTest, LoadShowsProgressThatNeverFalls) {
  if (!fs::exists(Model("smollm2.gguf"))) GTEST_SKIP() << "no model: run ./dev setup";
  Spawn();
  grpc::ClientContext context;
  auto reader = worker_->stub().Load(&context, LoadOf("smollm2.gguf"));
  engine::v1::LoadResponse response;
  double last = 0;
  int progress = 0, loaded = 0;
  while (reader->Read(&response)) {
    if (response.has_loaded()) {
      ++loaded;
      continue;
    }
    EXPECT_EQ(loaded, 0);
    EXPECT_GE(response.progress().fraction(), last);
    last = response.progress().fraction();
    ++progress;
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(loaded, 1);
  EXPECT_GT(progress, 1);
}

TEST_P(WorkerTest, BadLoadsAreTypedErrors) {
  const auto reason = [this](const engine::v1::LoadRequest& load) {
    Spawn();
    return ReasonOf(worker_->Load(load).status());
  };
  engine::v1::LoadRequest missing;
  missing.add_files("/nonexistent/model.gguf");
  EXPECT_EQ(reason(missing), Reason::kFileNotFound);
  engine::v1::LoadRequest folder;
  folder.add_files("/tmp");
  EXPECT_EQ(reason(folder), Reason::kNotAFile);
  engine::v1::LoadRequest junk;
  const fs::path path = fs::temp_directory_path() / ("rumbo-junk-" + std::to_string(getpid()) + ".gguf");
  std::ofstream(path) << "GGUF and then nothing of the kind";
  junk.add_files(path.string());
  Spawn();
  const absl::Status status = worker_->Load(junk).status();
  EXPECT_EQ(ReasonOf(status), Reason::kModelInvalid);
  EXPECT_THAT(MessageOf(status), testing::Not(HasSubstr(path.string())));
  fs::remove(path);
  if (!fs::exists(Model("smollm2.gguf"))) return;
  EXPECT_EQ(reason(LoadOf("smollm2.gguf", 1, 100000)), Reason::kContextTooLarge);
  engine::v1::LoadRequest unknown = LoadOf("smollm2.gguf");
  (*unknown.mutable_settings()->mutable_extra())["no_such"] = "1";
  EXPECT_EQ(reason(unknown), Reason::kInvalidArgument);
  engine::v1::LoadRequest device = LoadOf("smollm2.gguf");
  device.set_backend("vulkan");
  device.add_device_selectors("Vulkan99");
  EXPECT_EQ(reason(device), Reason::kDeviceNotUsable);
}

TEST_P(WorkerTest, RequestsBeforeTheLoadAreRefused) {
  Spawn();
  EXPECT_EQ(Ask(Greedy("x", 1)).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

// Seen with four-bit weights between batches of different sizes; where one pair of answers is too little to
// measure it.
constexpr double kFourBitRounding = 0.5;

// Batch size changes rounding, so a greedy answer may part from its twin where the two best tokens were
// nearly equal. Returns how many answers part anywhere else. The rounding is measured where both still agree.
int PartWithoutATie(const std::vector<CollectedAnswer>& alone, const std::vector<CollectedAnswer>& together,
                    double rounding = 0) {
  std::vector<double> gaps;  // between the two best tokens where answers part
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_TRUE(alone[i].status.ok() && together[i].status.ok());
    const auto& a = alone[i].logprobs;
    const auto& b = together[i].logprobs;
    for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
      for (int j = 0; j < 2; ++j) {
        if (a[k].top(j).id() == b[k].top(j).id()) {
          rounding = std::max<double>(rounding, std::abs(a[k].top(j).logprob() - b[k].top(j).logprob()));
        }
      }
      if (a[k].id() == b[k].id()) continue;
      gaps.push_back(a[k].top(0).logprob() - a[k].top(1).logprob());
      break;
    }
  }
  int parted = 0;
  for (const double gap : gaps) parted += gap > rounding;
  std::printf("%zu of %zu parted, %d of them without a tie; rounding up to %.4f\n", gaps.size(), alone.size(),
              parted, rounding);
  // Four-bit weights with eight-bit activations round by up to 0.5; more than this is no rounding.
  EXPECT_LT(rounding, 1.0);
  return parted;
}

TEST_P(WorkerTest, ConcurrentAnswersEqualThoseAlone) {
  if (!IsFirstPack()) GTEST_SKIP() << "run with the first pack only";
  for (const bool unified : {false, true}) {
    Start("gemma.gguf", 6, 512, unified);
    if (IsSkipped()) return;
    std::vector<CollectedAnswer> alone;
    for (const auto& prompt : FixedPrompts()) alone.push_back(Ask(WithLogprobs(prompt)));
    std::vector<CollectedAnswer> together(FixedPrompts().size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < together.size(); ++i) {
      clients.emplace_back([&, i] { together[i] = Ask(WithLogprobs(FixedPrompts()[i])); });
    }
    for (auto& c : clients) c.join();
    EXPECT_EQ(PartWithoutATie(alone, together), 0) << "unified " << unified;
  }
}

TEST_P(WorkerTest, SharedPrefixesGiveTheSameAnswers) {
  if (!IsFirstPack()) GTEST_SKIP() << "run with the first pack only";
  for (const bool unified : {false, true}) {
    Start("gemma.gguf", 4, 1024, unified);
    if (IsSkipped()) return;
    std::string shared;
    for (int i = 0; i < 100; ++i) shared += "word" + std::to_string(i) + " ";
    std::vector<CollectedAnswer> together(4), alone(4);
    std::vector<std::thread> clients;
    for (size_t i = 0; i < together.size(); ++i) {
      clients.emplace_back([&, i] { together[i] = Ask(WithLogprobs(shared + FixedPrompts()[i])); });
    }
    for (auto& c : clients) c.join();
    int with_cache = 0;
    for (const auto& answer : together) with_cache += answer.started.cached_tokens() > 100;
    EXPECT_GE(with_cache, 3);
    for (size_t i = 0; i < alone.size(); ++i) {
      engine::v1::GenerateRequest fresh = WithLogprobs(shared + FixedPrompts()[i]);
      fresh.set_owner("stranger " + std::to_string(i));
      alone[i] = Ask(fresh);
      EXPECT_EQ(alone[i].started.cached_tokens(), 0u);
    }
    EXPECT_EQ(PartWithoutATie(alone, together), 0) << "unified " << unified;
  }
}

std::string Numbered(const char* word, int from, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += word + std::to_string(from + i) + " ";
  return text;
}

// Gemma's window is 512 tokens, the prompts are longer.
TEST_P(WorkerTest, OtherEndingOfALongPromptReusesItsBeginning) {
  if (!IsFirstPack()) GTEST_SKIP() << "run with the first pack only";
  for (const bool unified : {false, true}) {
    Start("gemma.gguf", 1, 2048, unified);
    if (IsSkipped()) return;
    const std::string beginning = Numbered("w", 100, 250);
    const CollectedAnswer first = Ask(Greedy(beginning + "The capital of France is", 8));
    ASSERT_TRUE(first.status.ok()) << first.status.error_message();
    ASSERT_GT(first.started.prompt_tokens(), 800u);
    const CollectedAnswer second = Ask(WithLogprobs(beginning + "Water boils at"));
    EXPECT_GE(second.started.cached_tokens(), 0.95 * (first.started.prompt_tokens() - 6));
    engine::v1::GenerateRequest fresh = WithLogprobs(beginning + "Water boils at");
    fresh.set_owner("stranger");
    EXPECT_EQ(PartWithoutATie({Ask(fresh)}, {second}, kFourBitRounding), 0);
  }
}

TEST_P(WorkerTest, ConversationComesBackFromHostMemory) {
  if (!IsFirstPack()) GTEST_SKIP() << "run with the first pack only";
  for (const bool unified : {false, true}) {
    Start("gemma.gguf", 1, 2048, unified);
    if (IsSkipped()) return;
    const std::string a = Numbered("w", 100, 200) + "The capital of France is";
    const std::string b = Numbered("v", 500, 200) + "Water boils at";
    const CollectedAnswer first = Ask(Greedy(a, 8));
    Ask(Greedy(b, 8));
    const std::string next = a + first.text + " and that of Spain is";
    const CollectedAnswer second = Ask(WithLogprobs(next));
    EXPECT_GE(second.started.cached_tokens(), first.started.prompt_tokens());
    engine::v1::GenerateRequest fresh = WithLogprobs(next);
    fresh.set_owner("stranger");
    EXPECT_EQ(PartWithoutATie({Ask(fresh)}, {second}, kFourBitRounding), 0);
  }
}

TEST_P(WorkerTest, GuessedTokensChangeNothing) {
  if (!IsFirstPack()) GTEST_SKIP() << "run with the first pack only";
  if (!fs::exists(Model("gemma.gguf"))) GTEST_SKIP() << "no model: run ./dev setup";
  const std::string line =
      "The river by the old mill was calm and the miller counted his sacks of flour before noon.\n";
  const std::string prompt = line + line + line + "The river by";
  std::vector<CollectedAnswer> answers;
  for (const char* guesses : {"0", "8"}) {
    Spawn();
    engine::v1::LoadRequest load = LoadOf("gemma.gguf", 1, 512);
    (*load.mutable_settings()->mutable_extra())["ngram_draft"] = guesses;
    const auto loaded = worker_->Load(load);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    answers.push_back(Ask(WithLogprobs(prompt)));
  }
  EXPECT_EQ(answers[0].finished.usage().drafted_tokens(), 0u);
  EXPECT_GT(answers[1].finished.usage().accepted_tokens(), 6u);
  EXPECT_EQ(PartWithoutATie({answers[0]}, {answers[1]}, kFourBitRounding), 0);
}

TEST_P(WorkerTest, SameSeedGivesTheSameAnswer) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  engine::v1::GenerateRequest request = Greedy("Tell me a story about a", 32);
  request.mutable_sampling()->set_temperature(1.2f);
  request.mutable_sampling()->set_seed(uint64_t{1} << 40);
  const std::string first = Ask(request).text;
  EXPECT_EQ(Ask(request).text, first);
  request.mutable_sampling()->set_seed(7);
  EXPECT_NE(Ask(request).text, first);
}

TEST_P(WorkerTest, StopStringsAndLengthEndAnswers) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  const CollectedAnswer whole = Ask(Greedy("1, 2, 3, 4,", 24));
  EXPECT_EQ(whole.finished.reason(), "length");
  EXPECT_EQ(whole.tokens, 24u);
  engine::v1::GenerateRequest request = Greedy("1, 2, 3, 4,", 24);
  request.mutable_sampling()->add_stop("7,");
  const CollectedAnswer cut = Ask(request);
  EXPECT_EQ(cut.finished.reason(), "stop_string");
  EXPECT_EQ(cut.finished.stop_string(), "7,");
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find("7,")));
}

TEST_P(WorkerTest, ChatGoesThroughTheTemplate) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  engine::v1::GenerateRequest request;
  auto* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->add_content()->set_text("Say hello.");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_max_tokens(40);
  const CollectedAnswer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_FALSE(answer.text.empty());
  engine::v1::ApplyTemplateRequest apply;
  *apply.mutable_chat() = request.chat();
  engine::v1::ApplyTemplateResponse rendered;
  grpc::ClientContext context;
  ASSERT_TRUE(worker_->stub().ApplyTemplate(&context, apply, &rendered).ok());
  EXPECT_THAT(rendered.prompt(), HasSubstr("<|im_start|>user\nSay hello.<|im_end|>"));
  EXPECT_EQ(rendered.tokens(), answer.started.prompt_tokens());
}

TEST_P(WorkerTest, CancelFreesTheSlot) {
  Start("smollm2.gguf", 1, 2048);
  if (IsSkipped()) return;
  engine::v1::GenerateRequest endless = Greedy("Once", 2000);
  endless.mutable_sampling()->set_ignore_eos(true);
  grpc::ClientContext context;
  auto reader = worker_->stub().Generate(&context, endless);
  engine::v1::GenerateResponse response;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  const CollectedAnswer next = Ask(Greedy("1, 2, 3,", 4));
  EXPECT_TRUE(next.status.ok());
  EXPECT_LT(next.finished.timings().queue_ms(), 1000);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_P(WorkerTest, BadRequestsAreTypedErrorsAndTheWorkerGoesOn) {
  Start("smollm2.gguf", 2, 256);
  if (IsSkipped()) return;
  const auto code = [this](auto change) {
    engine::v1::GenerateRequest request = Greedy("x", 2);
    change(request);
    return ReasonOf(FromGrpcStatus(Ask(request).status));
  };
  EXPECT_EQ(code([](auto& r) { r.mutable_sampling()->set_temperature(-1); }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.mutable_sampling()->set_max_tokens(0); }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.set_prompt(std::string(5000, 'a') + " b c d"); }), Reason::kPromptTooLong);
  EXPECT_EQ(code([](auto& r) { r.mutable_tokens()->add_ids(99999999); }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.mutable_tokens(); }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.mutable_sampling()->add_logit_bias()->set_token(1 << 30); }),
            Reason::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.mutable_sampling()->set_grammar("root ::= ("); }), Reason::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.mutable_chat(); }), Reason::kInvalidArgument);
  EXPECT_TRUE(Ask(Greedy("x", 2)).status.ok());
}

TEST_P(WorkerTest, GrammarConstrainsAndKeepsCharactersWhole) {
  Start("gemma.gguf");
  if (IsSkipped()) return;
  engine::v1::GenerateRequest request = Greedy("x", 24);
  request.mutable_sampling()->set_grammar(
      "root ::= \"\xF0\xA0\xAE\xB7\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB\xC3\xA9\"");
  request.mutable_sampling()->set_logprobs(2);
  const CollectedAnswer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "\xF0\xA0\xAE\xB7\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB\xC3\xA9");
  EXPECT_EQ(answer.finished.reason(), "stop");
  std::string pieces;
  for (const auto& l : answer.logprobs) pieces += l.piece();
  EXPECT_EQ(pieces, answer.text);
  ASSERT_FALSE(answer.logprobs.empty());
  EXPECT_EQ(answer.logprobs.front().top_size(), 2);
  request.mutable_sampling()->set_max_tokens(2);
  const CollectedAnswer cut = Ask(request);
  EXPECT_EQ(cut.finished.reason(), "length");
  EXPECT_TRUE(IsValidUtf8(cut.text));
}

TEST_P(WorkerTest, SchemasAndExpressionsAreKept) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  for (const bool chat : {false, true}) {
    engine::v1::GenerateRequest request = Greedy("A person:", 60);
    if (chat) {
      auto* message = request.mutable_chat()->add_messages();
      message->set_role("user");
      message->add_content()->set_text("Invent a person.");
    }
    request.mutable_sampling()->set_temperature(1.0f);
    request.mutable_sampling()->set_seed(3);
    request.mutable_sampling()->set_json_schema(
        R"({"type":"object","properties":{"age":{"type":"integer","minimum":10,"maximum":99},"id":{"type":"string",)"
        R"("pattern":"^[a-z]{3}$"}},"required":["age","id"],"additionalProperties":false})");
    const CollectedAnswer object = Ask(request);
    ASSERT_TRUE(object.status.ok()) << object.status.error_message();
    EXPECT_THAT(object.text, testing::MatchesRegex(
                                 R"(\{\s*"age"\s*:\s*[1-9][0-9]\s*,\s*"id"\s*:\s*"[a-z][a-z][a-z]"\s*\})"));
    EXPECT_EQ(object.finished.reason(), "stop");
    request.mutable_sampling()->set_regex("(red|green|blue) [0-9]{3}");
    const CollectedAnswer expression = Ask(request);
    ASSERT_TRUE(expression.status.ok()) << expression.status.error_message();
    EXPECT_THAT(expression.text, testing::MatchesRegex("(red|green|blue) [0-9][0-9][0-9]"));
  }
}

TEST_P(WorkerTest, ConstraintsThatCannotBeKeptAreRefused) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  const auto message = [this](auto change) {
    engine::v1::GenerateRequest request = Greedy("x", 8);
    change(request.mutable_sampling());
    const grpc::Status status = Ask(request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    return status.error_message();
  };
  for (const char* pattern : {R"(^hello there indeed\\!$)", "(?i)abc", "^(?=a)b$"}) {
    const std::string schema =
        std::string(R"({"type":"object","properties":{"id":{"type":"string","pattern":")") + pattern +
        R"("}}})";
    EXPECT_THAT(message([&](auto* s) { s->set_json_schema(schema); }), HasSubstr("/properties/id/pattern"));
  }
  EXPECT_THAT(message([](auto* s) { s->set_json_schema(R"({"$ref":"#"})"); }), HasSubstr("json_schema"));
  EXPECT_THAT(message([](auto* s) { s->set_regex("a(?!b)"); }), HasSubstr("regex"));
  message([](auto* s) { s->set_grammar("root ::= root \"a\""); });
  message([](auto* s) { s->set_grammar("root ::= (\"a\"{0,2000}){0,2000}"); });
  message([](auto* s) {
    s->set_grammar("root ::= " + std::string(60000, '(') + "\"a\"" + std::string(60000, ')'));
  });
  std::string deep;
  for (int i = 0; i < 60000; ++i) deep += R"({"type":"array","items":)";
  message([&](auto* s) { s->set_json_schema(deep + "{}" + std::string(60000, '}')); });
  EXPECT_TRUE(Ask(Greedy("x", 2)).status.ok());
}

// A small template with tools and thinking in the style many models use.
constexpr char kToolTemplate[] =
    "{%- if tools %}<|im_start|>system\nTools:\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "Call one with <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call><|im_end|>\n{% endif %}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n"
    "{%- if message.role == 'assistant' and message.reasoning_content %}<think>\n{{ "
    "message.reasoning_content }}\n</think>\n{% endif %}"
    "{{ message.content }}"
    "{%- if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>\n"
    "{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson "
    "}}}\n</tool_call>{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and "
    "enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif %}";

TEST_P(WorkerTest, RequiredToolIsCalledWithArgumentsOfItsSchema) {
  if (!fs::exists(Model("smollm2.gguf"))) GTEST_SKIP() << "no model: run ./dev setup";
  Spawn();
  engine::v1::LoadRequest load = LoadOf("smollm2.gguf");
  load.set_chat_template(kToolTemplate);
  auto loaded = worker_->Load(load);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->capabilities(), testing::Contains("tools"));
  engine::v1::GenerateRequest request;
  const auto say = [&](const char* role, const char* text) {
    auto* message = request.mutable_chat()->add_messages();
    message->set_role(role);
    if (*text != 0) message->add_content()->set_text(text);
    return message;
  };
  // A few turns that a small model can imitate.
  for (const char* city : {"London", "Paris", "London"}) {
    say("user", (std::string("What is the weather in ") + city + "?").c_str());
    auto* call = say("assistant", "")->add_tool_calls();
    call->set_id("call_1");
    call->set_name("get_weather");
    call->set_arguments_json(std::string("{\"city\": \"") + city + "\"}");
    say("tool", "sunny")->set_tool_call_id("call_1");
    say("assistant", "It is sunny.");
  }
  say("user", "What is the weather in Paris?");
  auto* tool = request.mutable_chat()->add_tools();
  tool->set_name("get_weather");
  tool->set_description("The weather of a city");
  tool->set_parameters_json_schema(
      R"({"type":"object","properties":{"city":{"type":"string","enum":["Paris","London"]}},"required":["city"]})");
  request.mutable_chat()->set_tool_choice("required");
  request.mutable_chat()->set_thinking(false);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_max_tokens(80);
  const CollectedAnswer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_FALSE(answer.tool_calls.empty()) << answer.text;
  EXPECT_EQ(answer.tool_calls.front().name(), "get_weather");
  EXPECT_FALSE(answer.tool_calls.front().id().empty());
  std::string arguments;
  for (const auto& delta : answer.tool_calls) arguments += delta.arguments_json();
  EXPECT_THAT(arguments, testing::MatchesRegex(R"x(\{\s*"city"\s*:\s*"(Paris|London)"\s*\})x"));
  EXPECT_EQ(answer.finished.reason(), "tool_calls");
}

TEST_P(WorkerTest, ToolsWithoutTemplateSupportAreAnError) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  engine::v1::GenerateRequest request;
  auto* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->add_content()->set_text("hi");
  request.mutable_chat()->add_tools()->set_name("f");
  EXPECT_EQ(ReasonOf(FromGrpcStatus(Ask(request).status)), Reason::kCapabilityMissing);
}

TEST_P(WorkerTest, ThinkingIsReportedApartFromTheAnswer) {
  if (!fs::exists(Model("smollm2.gguf"))) GTEST_SKIP() << "no model: run ./dev setup";
  Spawn();
  engine::v1::LoadRequest load = LoadOf("smollm2.gguf");
  load.set_chat_template(kToolTemplate);
  ASSERT_TRUE(worker_->Load(load).ok());
  engine::v1::GenerateRequest request;
  auto* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->add_content()->set_text("hi");
  auto* last = request.mutable_chat()->add_messages();
  last->set_role("assistant");
  last->set_reasoning("I was greeted, so");
  request.mutable_chat()->set_continue_final_message(true);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_max_tokens(12);
  const CollectedAnswer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_FALSE(answer.reasoning.empty());
  EXPECT_THAT(answer.reasoning, testing::Not(HasSubstr("I was greeted")));
}

TEST_P(WorkerTest, TokenizeAndDetokenizeAreInverse) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  engine::v1::TokenizeRequest request;
  request.set_text("Gr\xC3\xBC\xC3\x9F Gott, \xF0\x9F\x98\x8A!");
  engine::v1::TokenizeResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(worker_->stub().Tokenize(&context, request, &response).ok());
  std::string pieces;
  for (const auto& piece : response.pieces()) pieces += piece;
  EXPECT_EQ(pieces, request.text());
  EXPECT_EQ(Text({response.ids().begin(), response.ids().end()}), request.text());
}

TEST_P(WorkerTest, StatsCount) {
  Start("smollm2.gguf");
  if (IsSkipped()) return;
  Ask(Greedy("one two three", 5));
  engine::v1::GetStatsResponse stats;
  for (int i = 0; i < 1000; ++i) {  // they are those of the last whole step
    grpc::ClientContext context;
    ASSERT_TRUE(worker_->stub().GetStats(&context, {}, &stats).ok());
    if (stats.generated_tokens() == 5 && stats.running() == 0) break;
  }
  EXPECT_EQ(stats.generated_tokens(), 5u);
  EXPECT_EQ(stats.prompt_tokens(), 3u);
  EXPECT_EQ(stats.running(), 0u);
  EXPECT_GT(stats.kv_total(), 0u);
}

TEST_P(WorkerTest, ExitsWhenTheDaemonIsGoneInTheMiddleOfAnAnswer) {
  Start("smollm2.gguf", 1, 2048);
  if (IsSkipped()) return;
  engine::v1::GenerateRequest endless = Greedy("Once", 2000);
  endless.mutable_sampling()->set_ignore_eos(true);
  {
    grpc::ClientContext context;
    auto reader = worker_->stub().Generate(&context, endless);
    engine::v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    context.TryCancel();
    reader->Finish();
  }
  worker_->CloseSocket();
  const auto status = worker_->WaitExit();
  ASSERT_TRUE(status.ok());
  EXPECT_TRUE(WIFEXITED(*status));
}

INSTANTIATE_TEST_SUITE_P(Packs, WorkerTest, testing::ValuesIn(Packs()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WorkerTest);

}  // namespace
}  // namespace rumbo
