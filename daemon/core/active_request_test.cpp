#include "daemon/core/active_request.h"

#include <gtest/gtest.h>

#include "tests/fakes/fake_engine.h"

namespace rumbo {
namespace {

class StoppedClock final : public Clock {
 public:
  TimePoint Now() const override { return {}; }
};

class IgnoringSink final : public AnswerSink {
 public:
  void OnPlaced(const Placement&) override {}
  void OnStarted(const StartedEvent&) override {}
  bool OnChunk(ChunkEvent&) override { return true; }
  void OnEnd(const absl::Status&, const FinishedEvent*) override {}
};

// A call that keeps its sink as long as it lives, as the worker's client does.
struct KeepingCall final : GenerateCall {
  explicit KeepingCall(std::shared_ptr<GenerateSink> s) : sink(std::move(s)) {}
  void Cancel() override {}
  void Resume() override { ++resumes; }
  std::shared_ptr<GenerateSink> sink;
  int resumes = 0;
};

class KeepingEngine final : public FakeEngine {
 public:
  std::unique_ptr<GenerateCall> Generate(const GenerateRequest&, Deadline,
                                         std::shared_ptr<GenerateSink> sink) override {
    if (end_at_once) sink->OnEnd(absl::OkStatus(), &finished);
    last = sink;
    return std::make_unique<KeepingCall>(std::move(sink));
  }
  bool end_at_once = false;
  FinishedEvent finished;
  std::weak_ptr<GenerateSink> last;
};

std::shared_ptr<ActiveRequest> MakeRequest(const Clock& clock) {
  return std::make_shared<ActiveRequest>(InferenceRequest(), std::make_shared<IgnoringSink>(), clock,
                                         [](auto, const absl::Status&, bool) {});
}

TEST(ActiveRequestTest, NothingIsKeptAfterTheEnd) {
  StoppedClock clock;
  KeepingEngine engine;
  for (const bool at_once : {false, true}) {  // the end may come before Generate has returned
    engine.end_at_once = at_once;
    auto request = MakeRequest(clock);
    request->Dispatch(engine, 1);
    if (!at_once) request->OnEnd(absl::OkStatus(), &engine.finished);
    request->Resume();  // late; for nobody
    const std::weak_ptr<ActiveRequest> watched = request;
    request.reset();
    EXPECT_TRUE(watched.expired()) << at_once;
    EXPECT_TRUE(engine.last.expired()) << at_once;
  }
}

TEST(ActiveRequestTest, RunsAgainAfterAnAttemptEnded) {
  StoppedClock clock;
  KeepingEngine engine;
  auto request = MakeRequest(clock);
  request->Dispatch(engine, 1);
  request->OnEnd(Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed, "it died"), nullptr);
  request->Dispatch(engine, 2);
  EXPECT_FALSE(engine.last.expired());  // the new attempt is under way
  EXPECT_EQ(request->attempts(), 2);
  request->OnEnd(absl::OkStatus(), &engine.finished);
  const std::weak_ptr<ActiveRequest> watched = request;
  request.reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace rumbo
