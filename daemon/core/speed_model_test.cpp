#include "daemon/core/speed_model.h"

#include <gtest/gtest.h>

#include "daemon/core/testing/plan_fixtures.h"

namespace rumbo {
namespace {

using testing::AddCard;
using testing::CpuMachine;
using testing::DenseModel;

class SpeedModelTest : public ::testing::Test {
 protected:
  SpeedModelTest() : machine_(CpuMachine(64 * kGiB)) {
    AddCard(machine_, 32 * kGiB);
    in_.model = &model_;
    in_.catalog = &BuiltInCatalog();
    in_.engine = BuiltInCatalog().Find("llamacpp");
    in_.backend = "vulkan";
    in_.sides = {{&machine_.devices[1], 1, false}};
  }

  double Decode() { return *EstimateSpeed(in_).predicted.decode_tok_s; }
  double Ttft() { return *EstimateSpeed(in_).predicted.ttft_ms; }

  Topology machine_;
  ModelDescriptor model_ = DenseModel(8 * kGiB);
  SpeedInput in_;
};

TEST_F(SpeedModelTest, OneSessionIsBoundByBandwidth) {
  const double bytes = 8.0 * kGiB * 0.95;
  EXPECT_NEAR(Decode(), 600e9 * 0.926 / bytes, 0.15 * 600e9 / bytes);
}

TEST_F(SpeedModelTest, MoreSessionsShareTheWeightsButNotTheTime) {
  const double one = Decode();
  in_.sessions = in_.shape.sessions = 8;
  const auto eight = EstimateSpeed(in_).predicted;
  EXPECT_LT(*eight.decode_tok_s, one);
  EXPECT_GT(*eight.aggregate_tok_s, 2 * one);
}

TEST_F(SpeedModelTest, AnEngineThatRunsOneAtATimeDividesItsSpeed) {
  CatalogEngine serial = *in_.engine;
  serial.batches = false;
  const double one = Decode();
  in_.engine = &serial;
  in_.sessions = 4;
  EXPECT_NEAR(Decode(), one / 4, 0.1 * one);
}

TEST_F(SpeedModelTest, LongerPromptsAndContextsCost) {
  const double short_ttft = Ttft(), fast = Decode();
  in_.prompt_tokens = 8192;
  EXPECT_GT(Ttft(), 8 * short_ttft);
  EXPECT_LT(Decode(), fast);
}

TEST_F(SpeedModelTest, DraftsPayByAcceptance) {
  LayerDescriptor draft;
  draft.mtp = true;
  draft.dense_ffn_bytes = 100 * kMiB;
  model_.layers.push_back(draft);
  const double none = Decode();
  in_.shape.draft_tokens = 2;
  in_.draft_acceptance = 0.9;
  EXPECT_GT(Decode(), 1.5 * none);
  in_.draft_acceptance = 0;
  EXPECT_LT(Decode(), none);
}

TEST_F(SpeedModelTest, ExpectedTokensPerStep) {
  EXPECT_DOUBLE_EQ(TokensPerStep(0.5, 0), 1);
  EXPECT_DOUBLE_EQ(TokensPerStep(0.5, 2), 1.75);
  EXPECT_DOUBLE_EQ(TokensPerStep(1, 4), 5);
  EXPECT_DOUBLE_EQ(TokensPerStep(0, 4), 1);
}

TEST_F(SpeedModelTest, SparseExpertsReadOnlyTheirShare) {
  ModelDescriptor dense = model_;
  for (LayerDescriptor& layer : model_.layers) std::swap(layer.expert_bytes, layer.dense_ffn_bytes);
  model_.experts = 64;
  model_.experts_used = 4;
  model_.active_parameters = model_.parameters / 8;
  const double sparse = Decode();
  in_.model = &dense;
  EXPECT_GT(sparse, 2 * Decode());
}

TEST_F(SpeedModelTest, UnknownBandwidthIsUnknownSpeed) {
  machine_.devices[1].bandwidth_bytes_s.value.reset();
  const SpeedEstimate e = EstimateSpeed(in_);
  EXPECT_FALSE(e.predicted.decode_tok_s);
  EXPECT_FALSE(e.predicted.ttft_ms);
  ASSERT_FALSE(e.assumptions.empty());
  EXPECT_NE(e.assumptions[0].find("unknown"), std::string::npos);
}

TEST_F(SpeedModelTest, UnknownPeakIsAssumedAndSaid) {
  machine_.devices[1].fp16_flops.value.reset();
  const SpeedEstimate e = EstimateSpeed(in_);
  EXPECT_TRUE(e.predicted.decode_tok_s);
  ASSERT_FALSE(e.assumptions.empty());
  EXPECT_NE(e.assumptions[0].find("assumed"), std::string::npos);
}

TEST_F(SpeedModelTest, UnknownPowerIsUnknownEnergy) {
  EXPECT_FALSE(EstimateSpeed(in_).predicted.energy_j_per_tok);
  machine_.devices[1].power_watts.value = 300;
  EXPECT_NEAR(*EstimateSpeed(in_).predicted.energy_j_per_tok, 300 / Decode(), 1e-6);
}

TEST_F(SpeedModelTest, AUnitForBf16PaysInBatchesOnACpuThatHasIt) {
  Device cpu = machine_.devices[0];
  cpu.isa = {"avx2", "avx512f", "avx512_bf16"};
  in_.backend = "cpu";
  in_.sides = {{&cpu, 1, false}};
  ModelDescriptor q4 = DenseModel(1 * kGiB), bf16 = DenseModel(3 * kGiB);
  bf16.quantization = "BF16";
  bf16.parameters = bf16.active_parameters = q4.active_parameters;
  const auto aggregate = [&](const ModelDescriptor& m, uint32_t sessions) {
    in_.model = &m;
    in_.sessions = in_.shape.sessions = sessions;
    return *EstimateSpeed(in_).predicted.aggregate_tok_s;
  };
  EXPECT_GT(aggregate(q4, 1), aggregate(bf16, 1));
  EXPECT_LT(aggregate(q4, 16), aggregate(bf16, 16));
}

}  // namespace
}  // namespace rumbo
