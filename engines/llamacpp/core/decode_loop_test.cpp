#include "engines/llamacpp/core/decode_loop.h"

#include <gtest/gtest.h>

#include <future>

#include "base/status.h"
#include "engines/llamacpp/core/testing/fake_port.h"

namespace rumbo {
namespace {

class PromiseSink final : public GenerateSink {
 public:
  void OnStarted(const StartedEvent&) override { started.set_value(); }
  bool OnChunk(ChunkEvent& chunk) override {
    text += chunk.text;
    return true;
  }
  void OnEnd(const absl::Status& status, const FinishedEvent*) override { end.set_value(status); }
  std::promise<void> started;
  std::promise<absl::Status> end;
  std::string text;
};

class DecodeLoopTest : public testing::Test {
 protected:
  DecodeLoopTest() {
    PortTraits traits;
    traits.sequences = 4;
    traits.context_total = 4096;
    traits.context_per_sequence = 1024;
    traits.batch = 512;
    port_ = std::make_unique<FakePort>(traits);
  }
  void Adopt() {
    loop_.Run([this] {
      SchedulerOptions options;
      options.sessions = 4;
      options.context_per_session = 1024;
      loop_.Adopt(std::make_unique<Scheduler>(port_.get(), &clock_, options));
    });
  }
  std::shared_ptr<PromiseSink> Submit(uint64_t id, uint32_t max_tokens) {
    Job job;
    job.id = id;
    job.prompt = {1, 2, 3};
    job.max_tokens = max_tokens;
    job.sampler = std::make_unique<FakeSampler>();
    job.submitted = clock_.Now();
    auto sink = std::make_shared<PromiseSink>();
    job.sink = sink;
    loop_.Submit(std::move(job));
    return sink;
  }

  SteadyClock clock_;
  std::unique_ptr<ModelPort> port_;
  DecodeLoop loop_;
};

TEST_F(DecodeLoopTest, AnswersFromManyThreads) {
  Adopt();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 20; ++i) {
        const auto sink = Submit(static_cast<uint64_t>(100 * t + i + 1), 20);
        EXPECT_TRUE(sink->end.get_future().get().ok());
      }
    });
  }
  for (auto& t : threads) t.join();
}

TEST_F(DecodeLoopTest, CancelEndsARunningAnswer) {
  Adopt();
  const auto sink = Submit(1, 1000);
  sink->started.get_future().get();
  loop_.Cancel(1);
  const absl::Status status = sink->end.get_future().get();
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kCancelled);
}

TEST_F(DecodeLoopTest, WithoutAModelRequestsAreRefused) {
  const auto sink = Submit(1, 5);
  EXPECT_EQ(sink->end.get_future().get().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace rumbo
