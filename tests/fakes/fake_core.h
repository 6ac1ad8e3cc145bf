#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/status.h"
#include "daemon/core/core.h"
#include "tests/fakes/fake_engine.h"

namespace rumbo {

// A Core for tests of the front doors: one model, "fake", whose answers the test writes. Answers run on their
// own thread, as engines' do. What was asked and what was cancelled is kept for the test to look at.
class FakeCore : public Core {
 public:
  // How one answer goes. Runs on an engine thread; returns when the answer has ended. `call` says when to
  // pause.
  class Call;
  using Script = std::function<void(const InferenceRequest&, AnswerSink&, Call&)>;

  // One answer under way, seen from its script.
  class Call {
   public:
    // Sends a chunk, waiting while the sink wants a pause. False once cancelled.
    bool Send(AnswerSink& sink, ChunkEvent chunk) {
      std::unique_lock lock(mutex_);
      if (cancelled_) return false;
      const uint64_t before = resumes_;
      lock.unlock();
      const bool go_on = sink.OnChunk(chunk);
      lock.lock();
      if (!go_on) {
        on_pause_();
        changed_.wait(lock, [&] { return cancelled_ || resumes_ != before; });
      }
      return !cancelled_;
    }
    // Blocks until the call is cancelled.
    void AwaitCancel() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return cancelled_; });
    }
    bool cancelled() {
      std::lock_guard lock(mutex_);
      return cancelled_;
    }
    void Cancel() {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      changed_.notify_all();
    }
    void Resume() {
      std::lock_guard lock(mutex_);
      ++resumes_;
      changed_.notify_all();
    }
    explicit Call(std::function<void()> on_pause) : on_pause_(std::move(on_pause)) {}

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool cancelled_ = false;
    uint64_t resumes_ = 0;
    const std::function<void()> on_pause_;
  };

  FakeCore() {
    script_ = [](const InferenceRequest& r, AnswerSink& s, Call& c) { Count(r, s, c); };
  }

  ~FakeCore() override {
    for (auto& call : calls_) call->Cancel();
    for (auto& thread : threads_) thread.join();
  }

  void SetScript(Script script) {
    std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }

  // The default script: max_tokens (default 5) chunks " 0", " 1", ...
  static void Count(const InferenceRequest& request, AnswerSink& sink, Call& call) {
    Begin(request, sink, 7);
    const uint32_t n = request.generate.sampling.max_tokens.value_or(5);
    for (uint32_t i = 0; i < n; ++i) {
      ChunkEvent chunk;
      chunk.text = " " + std::to_string(i);
      chunk.tokens = 1;
      if (!call.Send(sink, std::move(chunk))) return sink.OnEnd(Cancelled(), nullptr);
    }
    End(sink, "length", 7, n);
  }

  static void Begin(const InferenceRequest& request, AnswerSink& sink, uint32_t prompt_tokens) {
    Placement placement;
    placement.request_id = request.id;
    placement.instance_id = "inst-1";
    placement.model = request.model;
    placement.variant = "default";
    placement.engine = "fake";
    placement.backend = "cpu";
    placement.devices = {"cpu0"};
    placement.reason = "the only engine";
    sink.OnPlaced(placement);
    StartedEvent started;
    started.prompt_tokens = prompt_tokens;
    sink.OnStarted(started);
  }

  static void End(AnswerSink& sink, const std::string& reason, uint32_t prompt_tokens, uint32_t tokens) {
    FinishedEvent finished;
    finished.reason = reason;
    finished.prompt_tokens = prompt_tokens;
    finished.completion_tokens = tokens;
    sink.OnEnd(absl::OkStatus(), &finished);
  }

  static absl::Status Cancelled() {
    return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled");
  }

  // Waits until `count` requests have ended, in whatever way; a minute at most.
  bool AwaitEnded(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_ >= count; });
  }
  bool AwaitBegun(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return requests_.size() >= count; });
  }
  bool AwaitCancelled(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return cancelled_ >= count; });
  }

  std::vector<InferenceRequest> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }
  size_t cancelled() {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }
  size_t ended() {
    std::lock_guard lock(mutex_);
    return ended_;
  }
  // Waits until a sink has asked for a pause.
  bool AwaitPaused() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return pauses_ > 0; });
  }

  // ---- Core ----
  void Start() override {}

  std::unique_ptr<GenerateCall> Generate(InferenceRequest request,
                                         std::shared_ptr<AnswerSink> sink) override {
    auto call = std::make_shared<Call>([this] {
      std::lock_guard lock(mutex_);
      ++pauses_;
      changed_.notify_all();
    });
    auto handle = std::make_unique<Handle>(this, call);
    std::lock_guard lock(mutex_);
    if (request.id.empty()) request.id = "req-" + std::to_string(requests_.size() + 1);
    calls_.push_back(call);
    requests_.push_back(request);
    changed_.notify_all();
    threads_.emplace_back(
        [this, request = std::move(request), sink = std::move(sink), call, script = script_] {
          if (request.model != "fake") {
            sink->OnEnd(NoModel(request.model), nullptr);
          } else {
            script(request, *sink, *call);
          }
          std::lock_guard end_lock(mutex_);
          ++ended_;
          changed_.notify_all();
        });
    return handle;
  }

  void WithEngine(LoadSpec spec, ClientIdentity, TimePoint, Callback<ReadyEngine> done) override {
    if (spec.model != "fake") return done(NoModel(spec.model));
    ReadyEngine ready;
    ready.engine = std::make_shared<FakeEngine>();
    ready.placement.instance_id = "inst-1";
    ready.placement.engine = "fake";
    ready.info.context_trained = 2048;
    done(std::move(ready));
  }
  void ListModels(Callback<std::vector<StoredModel>> done) override {
    done(std::vector<StoredModel>{Model()});
  }
  void GetModel(std::string name, Callback<StoredModel> done) override {
    if (name != "fake") return done(NoModel(name));
    done(Model());
  }
  void ImportModel(ImportSpec, std::shared_ptr<std::atomic<bool>>, std::function<void(const StepProgress&)>,
                   Callback<StoredModel> done) override {
    done(NotImplemented("ImportModel"));
  }
  void DeleteModel(std::string name, Callback<Bytes> done) override { done(NoModel(name)); }
  void PinModel(std::string name, bool, Callback<bool> done) override { done(NoModel(name)); }
  void LoadModel(LoadSpec, std::function<void(const StepProgress&)>, Callback<LoadResult> done) override {
    done(LoadResult{});
  }
  void UnloadModel(std::string, std::optional<std::chrono::milliseconds>,
                   Callback<std::vector<std::string>> done) override {
    done(std::vector<std::string>{});
  }
  void MakePlan(PlanQuery, Callback<Plan> done) override { done(Plan{}); }
  void MakePlans(std::vector<PlanQuery> queries, Callback<std::vector<Plan>> done) override {
    done(std::vector<Plan>(queries.size()));
  }
  void TuneModel(TuneSpec spec, std::shared_ptr<std::atomic<bool>>, std::function<void(const TuneEvent&)>,
                 Callback<TuneResult> done) override {
    done(NoModel(spec.model));
  }
  void Explain(std::string, Callback<Explanation> done) override { done(Explanation{}); }
  void Advise(AdviceQuery, Callback<std::vector<AdviceRow>> done) override { done(std::vector<AdviceRow>{}); }
  void GetTopology(std::string, bool, Callback<Topology> done) override { done(Topology{}); }
  void GetLoads(Callback<std::vector<DeviceLoad>> done) override { done(std::vector<DeviceLoad>{}); }
  void ListInstances(Callback<std::vector<InstanceInfo>> done) override { done(std::vector<InstanceInfo>{}); }
  std::shared_ptr<void> WatchInstances(std::function<void(const InstanceInfo&, bool)>) override {
    return nullptr;
  }
  void GetEngineStats(TimePoint, Callback<std::map<std::string, EngineStats>> done) override {
    done(std::map<std::string, EngineStats>{});
  }
  void GetStatus(Callback<CoreStatus> done) override { done(CoreStatus{}); }
  void ListRequests(uint64_t, Callback<std::vector<RequestRecord>> done) override {
    done(std::vector<RequestRecord>{});
  }
  void ListProfiles(Callback<std::vector<ProfileInfo>> done) override { done(std::vector<ProfileInfo>{}); }
  void Drain(std::chrono::milliseconds, std::function<void()> done) override { done(); }
  std::shared_ptr<void> Lease(LeaseSpec spec, std::function<void(const LeaseEvent&)>,
                              std::function<void(absl::Status)> on_end) override {
    on_end(NoModel(spec.model));
    return nullptr;
  }
  void SetOptions(CoreOptions) override {}

  static absl::Status NoModel(const std::string& name) {
    return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound, "there is no model '" + name + "'",
                 "`rumbo models` lists what is there.");
  }

  static StoredModel Model() {
    StoredModel model;
    model.name = "fake";
    StoredVariant variant;
    variant.sha256 = std::string(64, 'a');
    variant.added_unix_s = 1700000000;
    variant.descriptor.format = "gguf";
    variant.descriptor.architecture = "llama";
    variant.descriptor.quantization = "Q4_1";
    variant.descriptor.file_bytes = 98000000;
    variant.descriptor.parameters = 135000000;
    variant.descriptor.context_trained = 2048;
    variant.descriptor.has_chat_template = true;
    variant.descriptor.chat_template = "{{ messages }}";
    variant.descriptor.capabilities = {"generate", "chat"};
    model.variants.push_back(variant);
    return model;
  }

 private:
  class Handle final : public GenerateCall {
   public:
    Handle(FakeCore* core, std::shared_ptr<Call> call) : core_(core), call_(std::move(call)) {}
    ~Handle() override { Cancel(); }
    void Cancel() override {
      if (done_.exchange(true)) return;
      core_->NoteDropped(*call_);
    }
    void Resume() override { call_->Resume(); }

   private:
    FakeCore* core_;
    std::shared_ptr<Call> call_;
    std::atomic<bool> done_{false};
  };

  void NoteDropped(Call& call) {
    call.Cancel();
    std::lock_guard lock(mutex_);
    ++cancelled_;  // dropped, after its end or before
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Script script_;
  std::vector<InferenceRequest> requests_;
  std::vector<std::shared_ptr<Call>> calls_;
  std::vector<std::thread> threads_;
  size_t cancelled_ = 0;
  size_t ended_ = 0;
  size_t pauses_ = 0;
};

}  // namespace rumbo
