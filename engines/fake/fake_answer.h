#pragma once

#include <grpcpp/alarm.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "engines/fake/fake_service.h"

namespace rumbo {

// One answer of the fake engine. Owned by itself until OnDone and by a running alarm.
class FakeAnswer final : public grpc::ServerWriteReactor<engine::v1::GenerateResponse> {
 public:
  static FakeAnswer* Start(FakeService* service, const engine::v1::GenerateRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kStarted, kTokens, kFinished };

  explicit FakeAnswer(FakeService* service) : service_(service), begun_(Clock::now()) {}

  absl::Status Prepare(const engine::v1::GenerateRequest& request);
  absl::Status CountPrompt(const engine::v1::GenerateRequest& request, std::string* text);

  // All below with mutex_ held. Each leaves at most one operation under way.
  void Next();
  void NextToken();
  void SendToken();
  void SendFinished();
  void WaitThenSendToken(Clock::time_point due);
  void WriteGarbageToSocket();
  void AnswerAnotherRequest();
  void FinishOnce(const grpc::Status& status);
  void Write();

  FakeService* const service_;
  const Clock::time_point begun_;
  std::shared_ptr<FakeAnswer> self_;
  FakeOptions options_;
  uint32_t prompt_tokens_ = 0;
  uint32_t limit_ = 0;  // tokens until "length" or "context"
  bool context_limited_ = false;
  bool counted_ = false;

  std::mutex mutex_;
  grpc::Alarm alarm_;
  engine::v1::GenerateResponse message_;
  Phase phase_ = Phase::kStarted;
  uint32_t sent_ = 0;
  Clock::time_point first_token_{};
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

}  // namespace rumbo
