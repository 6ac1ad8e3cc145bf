#pragma once

#include <grpcpp/alarm.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "engines/llamacpp/service/worker_service.h"

namespace rumbo {

// The stream of one Load: the newest progress while the loop's thread loads, a repeat of it every two seconds
// as a sign of life, then the result.
class LoadCall final : public grpc::ServerWriteReactor<engine::v1::LoadResponse> {
 public:
  static LoadCall* Start(WorkerService* service, const engine::v1::LoadRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override;

 private:
  LoadCall() = default;

  // On the loop's thread.
  bool Progress(double fraction, const char* step);
  void End(absl::StatusOr<engine::v1::LoadedInfo> result);

  void BeatLater();
  void Advance();  // with mutex_ held

  std::shared_ptr<LoadCall> self_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  grpc::Alarm alarm_;
  engine::v1::LoadResponse writing_;
  engine::v1::LoadProgress newest_;
  bool has_progress_ = false;
  bool write_in_flight_ = false;
  bool closed_ = false;
  std::unique_ptr<absl::StatusOr<engine::v1::LoadedInfo>> result_;
};

}  // namespace rumbo
