#include "engines/llamacpp/service/load_call.h"

#include "base/status.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {
namespace {

constexpr auto kBeat = std::chrono::seconds(2);
// Progress closer together than this is not sent.
constexpr double kMinStep = 0.01;

}  // namespace

LoadCall* LoadCall::Start(WorkerService* service, const engine::v1::LoadRequest& request) {
  std::shared_ptr<LoadCall> call(new LoadCall);
  call->self_ = call;
  if (service->load_started_.exchange(true)) {
    call->End(Error(absl::StatusCode::kFailedPrecondition, Reason::kInvalidArgument,
                    "a model is loaded already", "One process runs one model."));
    return call.get();
  }
  {
    const std::lock_guard lock(call->mutex_);
    call->BeatLater();
  }
  service->loop_.Run([service, call, request] {
    auto result = service->DoLoad(
        request, [&](double fraction, const char* step) { return call->Progress(fraction, step); });
    const bool loaded = result.ok();
    call->End(std::move(result));
    // Nobody waits for this: a request that comes meanwhile would have paid for it in its first step.
    if (loaded) WarmUp(*service->model_);
  });
  return call.get();
}

void LoadCall::BeatLater() {
  alarm_.Set(std::chrono::system_clock::now() + kBeat, [keep = self_](bool ok) {
    const std::lock_guard lock(keep->mutex_);
    if (!ok || keep->closed_ || keep->result_) return;
    keep->has_progress_ = true;
    keep->Advance();
    keep->BeatLater();
  });
}

bool LoadCall::Progress(double fraction, const char* step) {
  const std::lock_guard lock(mutex_);
  if (newest_.step() != step || fraction >= newest_.fraction() + kMinStep) {
    newest_.set_fraction(std::max(fraction, newest_.fraction()));
    newest_.set_step(step);
    has_progress_ = true;
    Advance();
  }
  return !cancelled_;
}

void LoadCall::End(absl::StatusOr<engine::v1::LoadedInfo> result) {
  const std::lock_guard lock(mutex_);
  result_ = std::make_unique<absl::StatusOr<engine::v1::LoadedInfo>>(std::move(result));
  alarm_.Cancel();
  Advance();
}

void LoadCall::Advance() {
  if (write_in_flight_ || closed_) return;
  if (result_) {
    closed_ = true;
    if (!result_->ok()) {
      Finish(ToGrpcStatus(result_->status()));
      return;
    }
    *writing_.mutable_loaded() = *std::move(*result_);
    StartWriteAndFinish(&writing_, grpc::WriteOptions(), grpc::Status::OK);
  } else if (has_progress_) {
    has_progress_ = false;
    *writing_.mutable_progress() = newest_;
    write_in_flight_ = true;
    StartWrite(&writing_);
  }
}

void LoadCall::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  write_in_flight_ = false;
  if (!ok) cancelled_ = true;
  Advance();
}

void LoadCall::OnDone() {
  std::shared_ptr<LoadCall> last;
  last.swap(self_);
}

}  // namespace rumbo
