// Requests: admission, dispatch, replay, cancellation.
#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "daemon/core/core_impl.h"
#include "engines/api/sampling_limits.h"

namespace rumbo {
namespace {

// A replay doubles the work of one request; more would hide a broken engine.
constexpr int kMaxAttempts = 2;
constexpr size_t kHistory = 1000;

// Expected work, for fair shares: tokens to read and to write.
double CostOf(const GenerateRequest& request) {
  const GenerateInput& input = request.input;
  double bytes = static_cast<double>(input.prompt.size());
  for (const ChatMessage& message : input.chat.messages) {
    for (const ContentPart& part : message.content) bytes += static_cast<double>(part.text.size());
  }
  return 1 + bytes / 4 + static_cast<double>(input.tokens.size()) + 4.0 * request.sampling.max_tokens.value_or(256);
}

}  // namespace

class CoreImpl::RequestCall final : public GenerateCall {
 public:
  RequestCall(CoreImpl* core, std::weak_ptr<int> alive, std::shared_ptr<ActiveRequest> request)
      : core_(core), alive_(std::move(alive)), request_(std::move(request)) {}
  ~RequestCall() override { Cancel(); }

  void Cancel() override {
    if (request_->ended()) return;
    request_->CancelAttempt();
    if (alive_.lock()) core_->Post([core = core_, id = request_->id()] { core->CancelWaiting(id); });
  }
  void Resume() override { request_->Resume(); }

 private:
  CoreImpl* const core_;
  const std::weak_ptr<int> alive_;
  const std::shared_ptr<ActiveRequest> request_;
};

std::unique_ptr<GenerateCall> CoreImpl::Generate(InferenceRequest request, std::shared_ptr<AnswerSink> sink) {
  if (request.id.empty()) request.id = NewRequestId();
  auto active = std::make_shared<ActiveRequest>(
      std::move(request), std::move(sink), Now(),
      [this, alive = std::weak_ptr<int>(alive_)](std::shared_ptr<ActiveRequest> ended, const absl::Status& status,
                                                 bool replayable) {
        if (!alive.lock()) return;
        Post([this, ended = std::move(ended), status, replayable] {
          const auto it = request_instance_.find(ended->id());
          if (it == request_instance_.end()) return;
          OnAttemptEnd(it->second, ended, status, replayable);
        });
      });
  auto call = std::make_unique<RequestCall>(this, alive_, active);
  Post([this, active] { WhenModels([this, active] { Submit(active); }); });
  return call;
}

void CoreImpl::Submit(std::shared_ptr<ActiveRequest> request) {
  if (request->cancelled()) {
    request->EndWith(Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the request was cancelled"));
    return;
  }
  if (draining_) {
    request->EndWith(RetryableError(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down",
                                    "Try again in a moment.", std::chrono::seconds(2)));
    return;
  }
  if (absl::Status valid = ValidateGenerateRequest(request->request().generate); !valid.ok()) {
    request->EndWith(valid);
    return;
  }
  if (request->request().deadline <= Now()) {
    request->EndWith(Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded,
                           "the deadline had passed before the request arrived", "Allow more time."));
    return;
  }
  if (queued_ >= options_.queue_limit) {
    request->EndWith(RetryableError(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                                    std::to_string(queued_) + " requests wait already", "Try again later.",
                                    std::chrono::seconds(1)));
    return;
  }
  const InferenceRequest& r = request->request();
  const LoadSpec spec{r.model, r.workload, r.contract, r.overrides, r.keep_alive_s};
  absl::StatusOr<Instance*> instance = EnsureInstance(spec, false);
  if (!instance.ok()) {
    request->EndWith(instance.status());
    return;
  }
  Enqueue(**instance, std::move(request));
}

void CoreImpl::Enqueue(Instance& instance, std::shared_ptr<ActiveRequest> request) {
  const InferenceRequest& r = request->request();
  if (r.keep_alive_s) {
    instance.keep_alive = std::chrono::seconds(*r.keep_alive_s);
  }
  request_instance_[r.id] = instance.info.id;
  instance.queue.Push({r.id, r.client.key(), r.generate.priority, Now(), CostOf(r.generate)});
  instance.waiting[r.id] = request;
  ++queued_;
  Dispatch(instance);
  if (r.deadline != TimePoint::max() && instance.waiting.count(r.id) > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(r.deadline - Now());
    PostAfter(left, [this, weak = std::weak_ptr<ActiveRequest>(request)] {
      const auto waiting = weak.lock();
      if (!waiting || waiting->ended()) return;
      const auto it = request_instance_.find(waiting->id());
      Instance* instance = it == request_instance_.end() ? nullptr : Find(it->second);
      if (instance == nullptr || instance->waiting.erase(waiting->id()) == 0) return;
      instance->queue.Remove(waiting->id());
      request_instance_.erase(waiting->id());
      --queued_;
      waiting->EndWith(Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded,
                             "the deadline passed while the request waited for " + instance->info.model,
                             "Allow more time, or load the model beforehand."));
      CheckDrained();
    });
  }
}

void CoreImpl::Dispatch(Instance& instance) {
  while (instance.engine && !instance.suspect && !instance.stopping && instance.info.state == InstanceState::kReady &&
         instance.running.size() < instance.info.sessions) {
    const auto item = instance.queue.Pop(Now());
    if (!item) break;
    const auto it = instance.waiting.find(item->id);
    RUMBO_CHECK(it != instance.waiting.end());
    std::shared_ptr<ActiveRequest> request = std::move(it->second);
    instance.waiting.erase(it);
    --queued_;
    instance.running[request->id()] = request;
    instance.last_used = Now();
    if (request->attempts() == 0) request->sink().OnPlaced(PlacementOf(instance, request->id()));
    request->Dispatch(*instance.engine, Now() - request->arrived());
  }
  instance.info.queue = instance.queue.size();
  instance.info.running = instance.running.size();
  if (!instance.running.empty()) ArmHangWatch(instance);
}

void CoreImpl::OnAttemptEnd(const std::string& instance_id, std::shared_ptr<ActiveRequest> request,
                            const absl::Status& status, bool replayable) {
  Instance* instance = Find(instance_id);
  if (instance == nullptr || instance->running.erase(request->id()) == 0) return;
  instance->last_used = Now();
  if (request->tokens() > 0) instance->failures = 0;
  const bool again = replayable && request->attempts() < kMaxAttempts && !instance->stopping && !request->ended();
  if (replayable && instance->engine) {
    // The process is dying or must die; until the supervisor says so, nothing else is sent there.
    instance->suspect = true;
    PostAfter(std::chrono::seconds(2), [this, instance_id, launch = instance->launch] {
      Instance* late = Find(instance_id);
      if (late == nullptr || late->launch != launch || !late->suspect) return;
      EndForFault(*late, Error(absl::StatusCode::kUnavailable, Reason::kEngineProtocol,
                               "the engine dropped a request and did not end"));
    });
  }
  if (again) {
    const InferenceRequest& r = request->request();
    instance->queue.PushFront({r.id, r.client.key(), r.generate.priority, request->arrived(), CostOf(r.generate)});
    instance->waiting[r.id] = request;
    ++queued_;
    if (instance->info.state == InstanceState::kFailed) Restart(*instance);
  } else {
    if (replayable) request->EndWith(status);
    request_instance_.erase(request->id());
    history_.emplace_back(request->id(), instance_id);
    if (history_.size() > kHistory) history_.pop_front();
    ++finished_requests_;
    ++instance->info.requests;
    ++instance->measured.requests;
    const FinishedEvent& finished = request->finished();
    generated_tokens_ += request->tokens();
    prompt_tokens_ += finished.prompt_tokens;
    instance->info.generated_tokens += request->tokens();
    if (status.ok() && finished.completion_tokens > 1) {
      const auto average = [](std::optional<double>& into, double value) {
        into = into ? *into * 0.8 + value * 0.2 : value;
      };
      average(instance->measured.ttft_ms, finished.ttft_ms);
      average(instance->measured.decode_tok_s, finished.decode_tok_s);
    }
  }
  Dispatch(*instance);
  if (instance->idle()) ArmKeepAlive(*instance);
  if (instance->info.state == InstanceState::kDraining && instance->running.empty() && instance->process) {
    instance->process->Stop(std::chrono::seconds(5));
  }
  CheckDrained();
}

void CoreImpl::CancelWaiting(const std::string& request_id) {
  const auto it = request_instance_.find(request_id);
  Instance* instance = it == request_instance_.end() ? nullptr : Find(it->second);
  if (instance == nullptr) return;
  const auto waiting = instance->waiting.find(request_id);
  if (waiting == instance->waiting.end()) return;  // runs: its attempt was cancelled and will end
  std::shared_ptr<ActiveRequest> request = std::move(waiting->second);
  instance->waiting.erase(waiting);
  instance->queue.Remove(request_id);
  instance->info.queue = instance->queue.size();
  request_instance_.erase(request_id);
  --queued_;
  request->EndWith(Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the request was cancelled"));
  if (instance->idle()) ArmKeepAlive(*instance);
  CheckDrained();
}

void CoreImpl::FailWaiting(Instance& instance, const absl::Status& status) {
  for (const std::string& id : instance.queue.RemoveAll()) {
    const auto it = instance.waiting.find(id);
    if (it == instance.waiting.end()) continue;
    std::shared_ptr<ActiveRequest> request = std::move(it->second);
    instance.waiting.erase(it);
    request_instance_.erase(id);
    --queued_;
    request->EndWith(status);
  }
  instance.info.queue = 0;
  CheckDrained();
}

Placement CoreImpl::PlacementOf(const Instance& instance, const std::string& request_id) const {
  Placement placement;
  placement.request_id = request_id;
  placement.instance_id = instance.info.id;
  placement.model = instance.info.model;
  placement.variant = instance.info.variant;
  placement.engine = instance.info.engine;
  placement.backend = instance.info.backend;
  placement.devices = instance.info.devices;
  if (instance.plan.chosen && !instance.plan.chosen->reasons.empty()) placement.reason = instance.plan.chosen->reasons.front();
  return placement;
}

void CoreImpl::CheckDrained() {
  if (!draining_ || !request_instance_.empty()) return;
  auto waiters = std::move(drain_waiters_);
  drain_waiters_.clear();
  for (auto& waiter : waiters) waiter();
}

}  // namespace rumbo
