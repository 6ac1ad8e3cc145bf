#include "engines/llamacpp/core/decode_loop.h"

#include <pthread.h>

#include "base/status.h"

namespace rumbo {

DecodeLoop::DecodeLoop() : thread_([this] { Loop(); }) {}

DecodeLoop::~DecodeLoop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    has_mail_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void DecodeLoop::Post(Message message) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
    has_mail_.store(true, std::memory_order_release);
  }
  wake_.notify_one();
}

void DecodeLoop::Run(std::function<void()> task) { Post(std::move(task)); }
void DecodeLoop::Submit(Job job) { Post(std::move(job)); }
void DecodeLoop::Cancel(uint64_t id) { Post(CancelId{id}); }
void DecodeLoop::Resume(uint64_t id) { Post(ResumeId{id}); }

void DecodeLoop::Adopt(std::unique_ptr<Scheduler> scheduler) { scheduler_ = std::move(scheduler); }

EngineStats DecodeLoop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void DecodeLoop::PublishStats() {
  if (!scheduler_) return;
  const EngineStats now = scheduler_->stats();
  const std::lock_guard lock(mutex_);
  stats_ = now;
}

void DecodeLoop::Handle(Message* message) {
  if (auto* task = std::get_if<std::function<void()>>(message)) {
    (*task)();
  } else if (auto* job = std::get_if<Job>(message)) {
    if (scheduler_) {
      scheduler_->Submit(std::move(*job));
    } else {
      job->sink->OnEnd(Error(absl::StatusCode::kFailedPrecondition, Reason::kInstanceStopped,
                             "no model is loaded", "Call Load first."),
                       nullptr);
    }
  } else if (const auto* cancel = std::get_if<CancelId>(message)) {
    if (scheduler_) scheduler_->Cancel(cancel->id);
  } else if (const auto* resume = std::get_if<ResumeId>(message)) {
    if (scheduler_) scheduler_->Resume(resume->id);
  }
}

void DecodeLoop::Loop() {
  pthread_setname_np(pthread_self(), "decode");
  bool work = false;
  std::vector<Message> mail;
  for (;;) {
    if (!work || has_mail_.load(std::memory_order_acquire)) {
      std::unique_lock lock(mutex_);
      while (!work && inbox_.empty() && !stop_) wake_.wait(lock);
      if (stop_) break;
      mail.swap(inbox_);
      has_mail_ = false;
    }
    for (Message& message : mail) Handle(&message);
    mail.clear();
    work = scheduler_ && scheduler_->Step();
    PublishStats();
  }
  scheduler_.reset();
}

}  // namespace rumbo
