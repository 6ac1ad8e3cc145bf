#include "engines/fake/fake_answer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "base/status.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {
namespace {

double Millis(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

}  // namespace

FakeAnswer* FakeAnswer::Start(FakeService* service, const engine::v1::GenerateRequest& request) {
  std::shared_ptr<FakeAnswer> answer(new FakeAnswer(service));
  answer->self_ = answer;
  const absl::Status status = answer->Prepare(request);
  const std::lock_guard lock(answer->mutex_);
  if (!status.ok()) {
    answer->FinishOnce(ToGrpcStatus(status));
  } else {
    answer->counted_ = true;
    ++service->counters_.running;
    service->counters_.prompt_tokens += answer->prompt_tokens_;
    service->counters_.kv_used += answer->prompt_tokens_;
    answer->Next();
  }
  return answer.get();
}

absl::Status FakeAnswer::CountPrompt(const engine::v1::GenerateRequest& request, std::string* text) {
  using Request = engine::v1::GenerateRequest;
  switch (request.input_case()) {
    case Request::kPrompt:
      *text = request.prompt();
      break;
    case Request::kChat:
      if (request.chat().messages().empty()) return InvalidArgument("messages is empty");
      *text = RenderFakeChat(request.chat());
      break;
    case Request::kTokens:
      prompt_tokens_ = static_cast<uint32_t>(request.tokens().ids_size());
      return absl::OkStatus();
    case Request::INPUT_NOT_SET:
      return InvalidArgument("input is missing: give a prompt, tokens or messages");
  }
  prompt_tokens_ = FakeTokenizer::Count(*text);
  return absl::OkStatus();
}

absl::Status FakeAnswer::Prepare(const engine::v1::GenerateRequest& request) {
  RUMBO_ASSIGN_OR_RETURN(options_, service_->Loaded());
  std::string text;
  RUMBO_RETURN_IF_ERROR(CountPrompt(request, &text));
  RUMBO_ASSIGN_OR_RETURN(options_, WithPromptFaults(options_, text));
  if (prompt_tokens_ == 0) return InvalidArgument("the prompt is empty");
  const uint32_t context = service_->ContextPerSession();
  if (prompt_tokens_ >= context) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kPromptTooLong,
                 "the prompt has " + std::to_string(prompt_tokens_) + " tokens and a session's context " +
                     std::to_string(context),
                 "Shorten the prompt or load the model with more context.");
  }
  const uint32_t room = context - prompt_tokens_;
  limit_ = request.sampling().has_max_tokens() ? request.sampling().max_tokens()
                                               : std::numeric_limits<uint32_t>::max();
  if (limit_ == 0) return InvalidArgument("max_tokens must be at least 1");
  context_limited_ = limit_ > room;
  limit_ = std::min(limit_, room);
  return absl::OkStatus();
}

void FakeAnswer::Next() {
  if (cancelled_) {
    FinishOnce(
        ToGrpcStatus(Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled by the caller")));
    return;
  }
  switch (phase_) {
    case Phase::kStarted: {
      phase_ = Phase::kTokens;
      auto* started = message_.mutable_started();
      started->set_prompt_tokens(prompt_tokens_);
      started->set_engine("fake");
      Write();
      return;
    }
    case Phase::kTokens:
      NextToken();
      return;
    case Phase::kFinished:
      return;
  }
}

void FakeAnswer::NextToken() {
  const bool stopped = options_.stop_at_token != 0 && sent_ >= options_.stop_at_token;
  if (sent_ >= limit_ || stopped) {
    SendFinished();
    return;
  }
  const uint32_t next = sent_ + 1;
  if (options_.crash_at_token == next) std::abort();
  if (options_.hang_at_token == next) return;  // until OnCancel
  if (options_.error_at_token == next) {
    FinishOnce(ToGrpcStatus(Internal("the fake engine was told to fail at token " + std::to_string(next))));
    return;
  }
  if (options_.garbage == "wire") {
    WriteGarbageToSocket();
    return;
  }
  if (options_.garbage == "stream") AnswerAnotherRequest();
  if (options_.garbage == "stderr" && sent_ == 0) {
    for (int i = 0; i < 200'000; ++i) std::fputs("a worker that has much to say about nothing\n", stderr);
  }
  using std::chrono::microseconds;
  const Clock::time_point due =
      sent_ == 0 ? begun_ + microseconds(uint64_t{options_.prefill_us} * prompt_tokens_ + options_.token_us)
                 : first_token_ + microseconds(uint64_t{options_.token_us} * sent_);
  if (due > Clock::now()) {
    WaitThenSendToken(due);
  } else {
    SendToken();
  }
}

void FakeAnswer::WaitThenSendToken(Clock::time_point due) {
  const auto wall = std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(due - Clock::now());
  alarm_.Set(wall, [keep = self_](bool) {
    const std::lock_guard lock(keep->mutex_);
    if (!keep->finished_) keep->SendToken();
  });
}

void FakeAnswer::SendToken() {
  if (sent_ == 0) first_token_ = Clock::now();
  ++sent_;
  ++service_->counters_.generated_tokens;
  ++service_->counters_.kv_used;
  if (options_.garbage == "order" && sent_ == 2) {
    message_.mutable_started()->set_prompt_tokens(prompt_tokens_);
    Write();
    return;
  }
  auto* chunk = message_.mutable_chunk();
  chunk->set_tokens(1);
  std::string* text = chunk->mutable_text();
  text->clear();
  if (sent_ > 1) text->push_back(' ');
  text->append(std::to_string(sent_));
  if (options_.garbage == "utf8") text->append("\xff\xfe");
  Write();
}

void FakeAnswer::SendFinished() {
  phase_ = Phase::kFinished;
  if (options_.garbage == "no_finish") {
    FinishOnce(grpc::Status::OK);
    return;
  }
  const Clock::time_point now = Clock::now();
  auto* finished = message_.mutable_finished();
  finished->set_reason(sent_ < limit_ ? "stop" : context_limited_ ? "context" : "length");
  finished->mutable_usage()->set_prompt_tokens(prompt_tokens_);
  finished->mutable_usage()->set_completion_tokens(sent_);
  auto* timings = finished->mutable_timings();
  if (sent_ > 0) {
    timings->set_ttft_ms(Millis(first_token_ - begun_));
    timings->set_prompt_ms(Millis(first_token_ - begun_));
    timings->set_decode_ms(Millis(now - first_token_));
    if (sent_ > 1)
      timings->set_decode_tok_s((sent_ - 1) * 1000.0 / std::max(1e-6, Millis(now - first_token_)));
  }
  timings->set_total_ms(Millis(now - begun_));
  finished_ = true;
  StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
}

void FakeAnswer::WriteGarbageToSocket() {
  static constexpr char kNoise[] = "this is not HTTP/2, not even close, and rather long for a frame header";
  for (int i = 0; i < 64; ++i) {
    if (send(service_->raw_fd_, kNoise, sizeof(kNoise), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
  }
}

// A DATA frame of one message for stream 99,999,999, which the client never opened.
void FakeAnswer::AnswerAnotherRequest() {
  static constexpr unsigned char kFrame[] = {0, 0, 7, 0, 0, 0x05, 0xf5, 0xe0, 0xff, 0, 0, 0, 0, 2, 0x12, 0};
  send(service_->raw_fd_, kFrame, sizeof kFrame, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void FakeAnswer::Write() {
  writing_ = true;
  StartWrite(&message_);
}

void FakeAnswer::FinishOnce(const grpc::Status& status) {
  if (finished_) return;
  finished_ = true;
  phase_ = Phase::kFinished;
  Finish(status);
}

void FakeAnswer::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (finished_) return;
  if (!ok) cancelled_ = true;
  Next();
}

void FakeAnswer::OnCancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (writing_ || finished_) return;
  alarm_.Cancel();
  Next();
}

void FakeAnswer::OnDone() {
  if (counted_) {
    --service_->counters_.running;
    service_->counters_.kv_used -= prompt_tokens_ + sent_;
  }
  std::shared_ptr<FakeAnswer> last;
  last.swap(self_);
}

}  // namespace rumbo
