// Embed and Rerank of the llama.cpp worker: real processes, tiny encoders and a real decoder; values compared
// with libllama's own pooling of one text at a time.
#include <gmock/gmock.h>

#include <cmath>
#include <thread>

#include "base/status.h"
#include "engines/llamacpp/testing/worker_fixture.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Row = std::vector<double>;

class VectorsTest : public WorkerFixture {
 protected:
  std::vector<Row> Raw(const std::string& model, const std::string& pooling,
                       const std::vector<std::string>& lines) {
    std::vector<Row> rows;
    for (const std::string& line :
         Output(Program("rumbo-llama-raw-embed") + " " + model + " " + pooling, lines)) {
      std::stringstream words(line);
      rows.emplace_back();
      for (double value; words >> value;) rows.back().push_back(value);
    }
    return rows;
  }

  absl::StatusOr<engine::v1::EmbedResponse> Embed(const std::vector<std::string>& inputs,
                                                  const std::string& pooling = "", bool normalize = false) {
    engine::v1::EmbedRequest request;
    for (const auto& input : inputs) request.add_inputs(input);
    request.set_pooling(pooling);
    request.set_normalize(normalize);
    engine::v1::EmbedResponse response;
    grpc::ClientContext context;
    const grpc::Status status = worker_->stub().Embed(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  static void ExpectRows(const engine::v1::EmbedResponse& got, const std::vector<Row>& want, double most) {
    ASSERT_EQ(static_cast<size_t>(got.embeddings_size()), want.size());
    double worst = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const auto& values = got.embeddings(static_cast<int>(i)).values();
      ASSERT_EQ(static_cast<size_t>(values.size()), want[i].size());
      for (size_t k = 0; k < want[i].size(); ++k) {
        worst = std::max(worst, std::abs(values[static_cast<int>(k)] - want[i][k]));
        size = std::max(size, std::abs(want[i][k]));
      }
    }
    EXPECT_LE(worst, most * size) << "relative to values up to " << size;
  }
};

const std::vector<std::string>& Texts() {
  static const std::vector<std::string> texts = {"the ship sails", "the sea is blue", "wind",
                                                 "the course the ship sails is the sea the wind is blue"};
  return texts;
}

TEST_P(VectorsTest, EncoderVectorsEqualThoseOfLlamaCppItself) {
  for (const char* file : {"bert-mean.gguf", "bert-none.gguf"}) {
    const auto loaded = Load(LoadOf(Tiny(file)));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_THAT(loaded->capabilities(), ElementsAre("embed"));
    for (const char* pooling : {"mean", "cls", "last"}) {
      const auto raw = Raw(Tiny(file), pooling, Texts());
      ASSERT_EQ(raw.size(), Texts().size());
      const auto got = Embed(Texts(), pooling);
      ASSERT_TRUE(got.ok()) << got.status();
      // All four in one batch; alone in the reference.
      ExpectRows(*got, raw, 2e-4);
      for (const auto& text : Texts()) {
        const auto one = Embed({text}, pooling);
        ASSERT_TRUE(one.ok());
      }
    }
  }
}

TEST_P(VectorsTest, PoolingIsTheModelsOwnUnlessAskedFor) {
  ASSERT_TRUE(Load(LoadOf(Tiny("bert-mean.gguf"))).ok());
  const auto own = Embed(Texts());
  ASSERT_TRUE(own.ok()) << own.status();
  ExpectRows(*own, Raw(Tiny("bert-mean.gguf"), "mean", Texts()), 2e-4);
  const auto other = Embed({"wind"}, "rank");
  EXPECT_EQ(ReasonOf(other.status()), Reason::kInvalidArgument);

  ASSERT_TRUE(Load(LoadOf(Tiny("bert-none.gguf"))).ok());
  const auto none = Embed(Texts());
  EXPECT_EQ(ReasonOf(none.status()), Reason::kInvalidArgument);
  EXPECT_THAT(NextStepOf(none.status()), HasSubstr("mean"));
}

TEST_P(VectorsTest, UnitLengthWhereAskedFor) {
  ASSERT_TRUE(Load(LoadOf(Tiny("bert-mean.gguf"))).ok());
  const auto plain = Embed({"the sea"}), unit = Embed({"the sea"}, "", true);
  ASSERT_TRUE(plain.ok() && unit.ok());
  double sum = 0, length = 0;
  for (const float v : unit->embeddings(0).values()) sum += double{v} * v;
  for (const float v : plain->embeddings(0).values()) length += double{v} * v;
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_NEAR(plain->embeddings(0).values(3) / std::sqrt(length), unit->embeddings(0).values(3), 1e-5);
  EXPECT_EQ(plain->prompt_tokens(), unit->prompt_tokens());
  EXPECT_GE(plain->prompt_tokens(), 4u);
}

TEST_P(VectorsTest, InputsThatCannotBeEmbeddedAreTypedErrors) {
  ASSERT_TRUE(Load(LoadOf(Tiny("bert-mean.gguf"))).ok());
  std::string many;
  for (int i = 0; i < 200; ++i) many += "the sea ";
  const auto too_long = Embed({"the", many});
  EXPECT_EQ(ReasonOf(too_long.status()), Reason::kPromptTooLong);
  EXPECT_THAT(MessageOf(too_long.status()), HasSubstr("inputs[1]"));
  EXPECT_FALSE(Embed({"a\xff"}).ok());
  EXPECT_TRUE(Embed({""}).ok());  // its marks alone
  EXPECT_TRUE(Embed({"the"}).ok());

  engine::v1::GenerateRequest generate;
  generate.set_prompt("the");
  EXPECT_EQ(ReasonOf(FromGrpcStatus(Collect(worker_->stub(), generate).status)), Reason::kCapabilityMissing);
  engine::v1::LoadRequest rank = LoadOf(Tiny("bert-mean.gguf"));
  (*rank.mutable_settings()->mutable_extra())["pooling"] = "rank";
  EXPECT_EQ(ReasonOf(Load(rank).status()), Reason::kCapabilityMissing);
  (*rank.mutable_settings()->mutable_extra())["pooling"] = "most";
  EXPECT_EQ(ReasonOf(Load(rank).status()), Reason::kInvalidArgument);
}

TEST_P(VectorsTest, ManyCallersAtOnceGetTheirOwnVectors) {
  ASSERT_TRUE(Load(LoadOf(Tiny("bert-mean.gguf"))).ok());
  const auto raw = Raw(Tiny("bert-mean.gguf"), "mean", Texts());
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      std::vector<std::string> texts(50, Texts()[static_cast<size_t>(i % 4)]);
      const auto got = Embed(texts);
      ASSERT_TRUE(got.ok()) << got.status();
      ExpectRows(*got, std::vector<Row>(50, raw[static_cast<size_t>(i % 4)]), 2e-4);
    });
  }
  for (auto& c : clients) c.join();
}

TEST_P(VectorsTest, CancelledCallLeavesTheOthers) {
  ASSERT_TRUE(Load(LoadOf(Tiny("bert-mean.gguf"))).ok());
  engine::v1::EmbedRequest request;
  for (int i = 0; i < 2000; ++i) request.add_inputs(Texts()[3]);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1));
  engine::v1::EmbedResponse response;
  EXPECT_EQ(worker_->stub().Embed(&context, request, &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Embed({"wind"}).ok());
}

// A model that answers, loaded for vectors: inputs longer than a batch go over several.
TEST_P(VectorsTest, DecoderVectorsEqualThoseOfLlamaCppItself) {
  const std::string file = ModelFile("smollm2.gguf");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is missing: run ./dev setup";
  engine::v1::LoadRequest load = LoadOf(file);
  auto& s = *load.mutable_settings();
  s.set_context_per_session(512);
  s.set_ubatch(64);
  (*s.mutable_extra())["pooling"] = "last";
  const auto loaded = Load(load);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->settings().extra().at("pooling"), "last");
  std::string long_text;
  for (int i = 0; i < 40; ++i) long_text += "The ship number " + std::to_string(i) + " sails. ";
  const std::vector<std::string> texts = {"The capital of France is Paris.", long_text, "Wind"};
  for (const char* pooling : {"last", "mean", "cls"}) {
    const auto got = Embed(texts, pooling == std::string("last") ? "" : pooling);
    ASSERT_TRUE(got.ok()) << got.status();
    // Four-bit weights with eight-bit activations: batches of other sizes round differently.
    ExpectRows(*got, Raw(file, pooling, texts), 0.02);
  }
  engine::v1::RerankRequest rerank;
  engine::v1::RerankResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(worker_->stub().Rerank(&context, rerank, &response).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_P(VectorsTest, ModelThatAnswersSaysHowToLoadItForVectors) {
  const std::string file = ModelFile("smollm2.gguf");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is missing: run ./dev setup";
  ASSERT_TRUE(Load(LoadOf(file)).ok());
  const absl::Status status = Embed({"x"}, "mean").status();
  EXPECT_EQ(ReasonOf(status), Reason::kCapabilityMissing);
  EXPECT_THAT(NextStepOf(status), HasSubstr("--pooling"));
}

TEST_P(VectorsTest, ScoresEqualThoseOfLlamaCppItself) {
  const auto loaded = Load(LoadOf(Tiny("bert-rank.gguf")));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->capabilities(), ElementsAre("rerank"));
  engine::v1::RerankRequest request;
  request.set_query("the blue ship");
  std::vector<std::string> pairs;
  for (const auto& text : Texts()) {
    request.add_documents(text);
    pairs.push_back("the blue ship\t" + text);
  }
  const auto raw = Raw(Tiny("bert-rank.gguf"), "rank", pairs);
  ASSERT_EQ(raw.size(), pairs.size());
  engine::v1::RerankResponse response;
  grpc::ClientContext context;
  const grpc::Status status = worker_->stub().Rerank(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(static_cast<size_t>(response.scores_size()), raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    EXPECT_NEAR(response.scores(static_cast<int>(i)), raw[i][0], 1e-4 + 2e-3 * std::abs(raw[i][0]));
  }
  EXPECT_NE(response.scores(0), response.scores(1));
  EXPECT_GT(response.prompt_tokens(), 20u);
  EXPECT_EQ(ReasonOf(Embed({"wind"}).status()), Reason::kCapabilityMissing);
}

INSTANTIATE_TEST_SUITE_P(Packs, VectorsTest, testing::ValuesIn(WorkerPacks()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rumbo
