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
constexpr std::chrono::seconds kSuspectGrace{2};
// An idle worker ends by itself within milliseconds; five seconds are for one that hangs.
constexpr std::chrono::seconds kStopGrace{5};

// Expected work, for fair shares: tokens to read and to write.
double CostOf(const GenerateRequest& request) {
  const GenerateInput& input = request.input;
  double bytes = static_cast<double>(input.prompt.size());
  for (const ChatMessage& message : input.chat.messages) {
    for (const ContentPart& part : message.content) bytes += static_cast<double>(part.text.size());
  }
  return 1 + bytes / 4 + static_cast<double>(input.tokens.size()) +
         4.0 * request.sampling.max_tokens.value_or(256);
}

}  // namespace

class CoreImpl::RequestCall final : public GenerateCall {
 public:
  RequestCall(CoreImpl* core, Door door, std::shared_ptr<ActiveRequest> request)
      : core_(core), door_(std::move(door)), request_(std::move(request)) {}
  ~RequestCall() override { Cancel(); }

  void Cancel() override {
    if (request_->ended()) return;
    request_->CancelAttempt();
    door_.Post([core = core_, id = request_->id()] { core->CancelWaiting(id); });
  }
  void Resume() override { request_->Resume(); }

 private:
  CoreImpl* const core_;  // used inside the door only
  const Door door_;
  const std::shared_ptr<ActiveRequest> request_;
};

std::unique_ptr<GenerateCall> CoreImpl::Generate(InferenceRequest request, std::shared_ptr<AnswerSink> sink) {
  if (request.idempotency_key.empty()) return GenerateOnce(std::move(request), std::move(sink));
  return repeats_->Generate(std::move(request), std::move(sink),
                            [this](InferenceRequest first, std::shared_ptr<AnswerSink> all) {
                              return GenerateOnce(std::move(first), std::move(all));
                            });
}

std::unique_ptr<GenerateCall> CoreImpl::GenerateOnce(InferenceRequest request,
                                                     std::shared_ptr<AnswerSink> sink) {
  if (request.id.empty()) request.id = NewRequestId();
  const absl::Status gone =
      Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down");
  auto active = std::make_shared<ActiveRequest>(
      std::move(request), std::move(sink), parts_.executor->clock(),
      [this, door = door(), gone](std::shared_ptr<ActiveRequest> ended, const absl::Status& status,
                                  bool replayable) {
        door.executor->Post([this, alive = door.alive, gone, ended = std::move(ended), status, replayable] {
          if (alive.expired()) {
            ended->EndWith(gone);  // it would have been replayed
            return;
          }
          const auto it = request_instance_.find(ended->id());
          if (it == request_instance_.end()) {
            ended->EndWith(gone);
            return;
          }
          OnAttemptEnd(std::string(it->second), ended, status, replayable);
        });
      });
  auto call = std::make_unique<RequestCall>(this, door(), active);
  parts_.executor->Post([this, alive = std::weak_ptr<int>(alive_), active, gone] {
    if (alive.expired()) {
      active->EndWith(gone);
    } else if (models_loaded_) {
      Submit(active);
    } else {
      early_requests_.push_back(active);
    }
  });
  return call;
}

void CoreImpl::Submit(std::shared_ptr<ActiveRequest> request) {
  if (request->cancelled()) {
    request->EndWith(Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the request was cancelled"));
    return;
  }
  if (draining_) {
    request->EndWith(RetryableError(absl::StatusCode::kUnavailable, Reason::kDraining,
                                    "the daemon is shutting down", "Try again in a moment.",
                                    std::chrono::seconds(2)));
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
  const LoadSpec spec{r.model, r.workload, r.contract, r.overrides, r.keep_alive_s, InstanceUse::kAnswers};
  absl::StatusOr<Instance*> instance = EnsureInstance(spec, false);
  if (!instance.ok()) {
    request->EndWith(instance.status());
    return;
  }
  if (r.keep_alive_s) (*instance)->keep_alive = std::chrono::seconds(*r.keep_alive_s);
  ArmDeadline(request);
  Enqueue(**instance, std::move(request));
}

void CoreImpl::Enqueue(Instance& instance, std::shared_ptr<ActiveRequest> request) {
  const InferenceRequest& r = request->request();
  request_instance_[r.id] = instance.info.id;
  instance.queue.Push({r.id, r.client.key(), r.generate.priority, request->arrived(), CostOf(r.generate)});
  instance.waiting[r.id] = request;
  ++queued_;
  Dispatch(instance);
}

void CoreImpl::ArmDeadline(const std::shared_ptr<ActiveRequest>& request) {
  const TimePoint deadline = request->request().deadline;
  if (deadline == TimePoint::max()) return;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now());
  PostAfter(left, [this, weak = std::weak_ptr<ActiveRequest>(request)] {
    const auto late = weak.lock();
    if (!late || late->ended()) return;
    const auto it = request_instance_.find(late->id());
    Instance* instance = it == request_instance_.end() ? nullptr : Find(it->second);
    if (instance == nullptr || !TakeWaiting(*instance, late->id()))
      return;  // runs: the engine knows the deadline
    late->EndWith(Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded,
                        "the deadline passed while the request waited for " + instance->info.model,
                        "Allow more time, or load the model beforehand."));
    Rested(*instance);
    CheckDrained();
  });
}

// Out of the queue; null where it does not wait there.
std::shared_ptr<ActiveRequest> CoreImpl::TakeWaiting(Instance& instance, const std::string& request_id) {
  const auto it = instance.waiting.find(request_id);
  if (it == instance.waiting.end()) return nullptr;
  std::shared_ptr<ActiveRequest> request = std::move(it->second);
  instance.waiting.erase(it);
  instance.queue.Remove(request_id);
  instance.info.queue = instance.queue.size();
  request_instance_.erase(request_id);
  --queued_;
  return request;
}

// What waits for an instance that goes waits for another one of its model.
void CoreImpl::Rehouse(Instance& instance) {
  std::vector<std::shared_ptr<ActiveRequest>> moving;
  for (const auto& [id, request] : instance.waiting) moving.push_back(request);
  std::sort(moving.begin(), moving.end(),
            [](const auto& a, const auto& b) { return a->arrived() < b->arrived(); });
  for (const auto& request : moving) TakeWaiting(instance, request->id());
  for (auto& request : moving) {
    const InferenceRequest& r = request->request();
    const auto home = EnsureInstance({r.model, r.workload, r.contract, r.overrides, r.keep_alive_s}, false);
    if (home.ok()) {
      Enqueue(**home, std::move(request));
    } else {
      request->EndWith(home.status());
    }
  }
  CheckDrained();
}

void CoreImpl::Dispatch(Instance& instance) {
  while (instance.engine && !instance.suspect && !instance.stopping && !instance.yielding &&
         instance.info.state == InstanceState::kReady && instance.running.size() < instance.info.sessions) {
    const auto item = instance.queue.Pop(Now(), HoldsBatch());
    if (!item) break;
    const auto it = instance.waiting.find(item->id);
    RUMBO_CHECK(it != instance.waiting.end());
    std::shared_ptr<ActiveRequest> request = std::move(it->second);
    instance.waiting.erase(it);
    --queued_;
    request->set_running_mark(RunningSeconds(instance));
    instance.running[request->id()] = request;
    instance.last_used = Now();
    if (request->attempts() == 0) request->sink().OnPlaced(PlacementOf(instance, request->id()));
    request->Dispatch(*instance.engine, instance.launch);
  }
  instance.info.queue = instance.queue.size();
  instance.info.running = instance.running.size();
  if (!instance.running.empty()) ArmHangWatch(instance);
}

void CoreImpl::OnAttemptEnd(const std::string& instance_id, std::shared_ptr<ActiveRequest> request,
                            const absl::Status& status, bool replayable) {
  Instance* instance = Find(instance_id);
  if (instance != nullptr) {
    if (status.ok()) LearnRun(*instance, *request);
    RunningSeconds(*instance);
    instance->running.erase(request->id());
    instance->last_used = Now();
    if (request->tokens() > 0) instance->failures = 0;
    const Reason reason = ReasonOf(status);
    if ((reason == Reason::kEngineCrashed || reason == Reason::kEngineProtocol) && instance->engine &&
        instance->launch == request->launch() && !instance->suspect) {
      // The process is dying or must die; until the supervisor says so, nothing else is sent there.
      instance->suspect = true;
      PostAfter(kSuspectGrace, [this, instance_id, launch = instance->launch] {
        Instance* late = Find(instance_id);
        if (late == nullptr || late->launch != launch || !late->suspect) return;
        EndForFault(*late, Error(absl::StatusCode::kUnavailable, Reason::kEngineProtocol,
                                 "the engine dropped a request and did not end"));
      });
    }
    // Gave up on an engine that said nothing for a while: is it alive at all?
    if ((reason == Reason::kDeadlineExceeded || reason == Reason::kCancelled) && instance->engine &&
        instance->launch == request->launch() && Now() - request->last_event() > kSuspectGrace) {
      AskForLife(*instance);
    }
  }
  if (replayable && !request->cancelled() && request->attempts() < kMaxAttempts && instance != nullptr &&
      !instance->stopping) {
    Replay(*instance, std::move(request));
  } else {
    if (replayable) {
      request->EndWith(request->cancelled() ? Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                                                    "the request was cancelled")
                                            : status);
    }
    Account(instance, instance_id, *request, status);
  }
  if (instance != nullptr) {
    Dispatch(*instance);
    Rested(*instance);
    if (instance->stopping && instance->running.empty() && instance->process)
      instance->process->Stop(kStopGrace);
  }
  CheckDrained();
}

// The attempt died before the client saw anything of it: once more, on a fresh process.
void CoreImpl::Replay(Instance& instance, std::shared_ptr<ActiveRequest> request) {
  const InferenceRequest& r = request->request();
  instance.queue.PutBack({r.id, r.client.key(), r.generate.priority, request->arrived(), CostOf(r.generate)});
  instance.waiting[r.id] = std::move(request);
  ++queued_;
  if (instance.info.state == InstanceState::kFailed) Restart(instance);
}

// Books an ended request; `instance` null where it is gone already.
void CoreImpl::Account(Instance* instance, const std::string& instance_id, const ActiveRequest& request,
                       const absl::Status& status) {
  request_instance_.erase(request.id());
  history_.emplace_back(request.id(), instance_id);
  if (history_.size() > kHistory) history_.pop_front();
  const FinishedEvent& finished = request.finished();
  ++finished_requests_;
  Log(instance_id, request, status);
  generated_tokens_ += request.tokens();
  prompt_tokens_ += finished.prompt_tokens;
  if (instance == nullptr) return;
  ++instance->info.requests;
  ++instance->measured.requests;
  instance->info.generated_tokens += request.tokens();
  if (!status.ok() || finished.completion_tokens <= 1) return;
  const auto average = [](std::optional<double>& into, double value) {
    into = into ? *into * 0.8 + value * 0.2 : value;
  };
  average(instance->measured.ttft_ms, finished.ttft_ms);
  average(instance->measured.decode_tok_s, finished.decode_tok_s);
}

void CoreImpl::Log(const std::string& instance_id, const ActiveRequest& request, const absl::Status& status) {
  const InferenceRequest& asked = request.request();
  const FinishedEvent& finished = request.finished();
  const Priority priority = asked.generate.priority;
  RequestRecord record;
  record.ended_unix_s = parts_.wall->UnixSeconds();
  record.id = asked.id;
  record.model = asked.model;
  record.instance_id = instance_id;
  record.app = asked.client.app;
  record.uid = asked.client.uid;
  record.priority = priority == Priority::kInteractive ? "interactive"
                    : priority == Priority::kBatch     ? "batch"
                                                       : "normal";
  record.ok = status.ok();
  record.outcome = status.ok() ? finished.reason : std::string(ReasonCode(ReasonOf(status)));
  record.prompt_tokens = finished.prompt_tokens;
  record.cached_tokens = finished.cached_tokens;
  record.completion_tokens = static_cast<uint32_t>(request.tokens());
  record.queue_ms = finished.queue_ms;
  record.ttft_ms = finished.ttft_ms;
  record.total_ms = std::chrono::duration<double, std::milli>(Now() - request.arrived()).count();
  record.decode_tok_s = finished.decode_tok_s;
  request_log_.Add(std::move(record));
}

void CoreImpl::CancelWaiting(const std::string& request_id) {
  const auto early = std::find_if(early_requests_.begin(), early_requests_.end(),
                                  [&](const auto& request) { return request->id() == request_id; });
  const absl::Status cancelled =
      Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the request was cancelled");
  if (early != early_requests_.end()) {
    const std::shared_ptr<ActiveRequest> request = *early;
    early_requests_.erase(early);
    request->EndWith(cancelled);
    return;
  }
  const auto it = request_instance_.find(request_id);
  Instance* instance = it == request_instance_.end() ? nullptr : Find(it->second);
  if (instance == nullptr) return;
  const std::shared_ptr<ActiveRequest> request = TakeWaiting(*instance, request_id);
  if (!request) return;  // runs: its attempt was cancelled and will end
  request->EndWith(cancelled);
  Rested(*instance);
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
  if (instance.plan.chosen && !instance.plan.chosen->reasons.empty())
    placement.reason = instance.plan.chosen->reasons.front();
  return placement;
}

void CoreImpl::CheckDrained() {
  if (!draining_ || !request_instance_.empty()) return;
  auto waiters = std::move(drain_waiters_);
  drain_waiters_.clear();
  for (auto& waiter : waiters) waiter();
}

}  // namespace rumbo
