#include "daemon/store/measurement_log.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

#include "base/status.h"

namespace rumbo {
namespace {

constexpr std::chrono::seconds kBatchTime{2};
constexpr size_t kBatch = 64, kMost = 1024;

// What the executor's tasks share with the log: they may run after its end.
class Queue {
 public:
  explicit Queue(std::unique_ptr<CalibrationStore> store) : store_(std::move(store)) {}

  // When a write is due that none was scheduled for.
  enum class Schedule { kNothing, kSoon, kNow };
  Schedule Push(Measurement m) {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMost) waiting_.erase(waiting_.begin());
    waiting_.push_back(std::move(m));
    if (waiting_.size() == kBatch) return Schedule::kNow;
    return waiting_.size() == 1 ? Schedule::kSoon : Schedule::kNothing;
  }

  void Write() {
    std::lock_guard writing(write_mutex_);
    std::vector<Measurement> batch;
    {
      std::lock_guard lock(mutex_);
      batch.swap(waiting_);
    }
    if (const absl::Status status = store_->Add(batch); !status.ok())
      spdlog::warn("{} measurements could not be kept: {}", batch.size(), MessageOf(status));
  }

 private:
  std::mutex write_mutex_;  // guards store_
  const std::unique_ptr<CalibrationStore> store_;
  std::mutex mutex_;
  std::vector<Measurement> waiting_;  // guarded by mutex_
};

class BatchedLog final : public MeasurementLog {
 public:
  BatchedLog(std::unique_ptr<CalibrationStore> store, Executor* executor)
      : queue_(std::make_shared<Queue>(std::move(store))), executor_(executor) {}
  ~BatchedLog() override { queue_->Write(); }

  void Add(Measurement m) override {
    const auto write = [weak = std::weak_ptr<Queue>(queue_)] {
      if (const auto queue = weak.lock()) queue->Write();
    };
    switch (queue_->Push(std::move(m))) {
      case Queue::Schedule::kNow:
        return executor_->Post(write);
      case Queue::Schedule::kSoon:
        return executor_->PostAfter(kBatchTime, write);
      case Queue::Schedule::kNothing:
        return;
    }
  }

 private:
  const std::shared_ptr<Queue> queue_;
  Executor* const executor_;
};

}  // namespace

std::unique_ptr<MeasurementLog> NewMeasurementLog(std::unique_ptr<CalibrationStore> store,
                                                  Executor* executor) {
  return std::make_unique<BatchedLog>(std::move(store), executor);
}

}  // namespace rumbo
