#include "tests/simulation/simulation.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <set>

#include "tests/fakes/core_world.h"

namespace rumbo::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CoreWorld;
using testing::Heard;
using testing::kSlot;

constexpr size_t kTrace = 400;  // steps shown of a schedule that broke an invariant

struct Model {
  std::string name;
  int slots;
  bool pinned = false;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed), world_(SlotsOf(seed), Options(seed), [this](Core::Parts& parts) {
          parts.power = &power_;
          parts.promises = &promises_;
        }) {
    slots_ = SlotsOf(seed);
    const std::pair<const char*, int> sizes[] = {{"s", 1}, {"m", 2}, {"l", 4}};
    const int models = 2 + static_cast<int>(Below(6));
    for (int i = 0; i < models; ++i) {
      const auto& [format, slots] = sizes[Below(10) < 6 ? 0 : Below(10) < 7 ? 1 : 2];
      models_.push_back({"model" + std::to_string(i), slots, Below(10) == 0});
      world_.AddModel(models_.back().name, format, models_.back().pinned);
    }
    world_.launcher.auto_ready = false;
    world_.launcher.on_launch = [this](FakeProcess& process) { OnLaunch(process); };
  }

  Result Run() {
    world_.core->Start();
    watch_ = world_.core->WatchInstances([this](const InstanceInfo& info, bool) { OnChange(info); });
    const uint64_t steps = 50 + Below(200);
    for (uint64_t i = 0; i < steps && ok(); ++i) {
      Step();
      Check();
    }
    const uint64_t ending = Below(10);
    if (ok() && ending == 0) EndByDrain();
    if (ok() && ending == 1) EndByDestruction();
    if (ok() && ending >= 2) Settle(ending);
    result_.launches = world_.launcher.processes.size();
    if (!ok()) {
      for (const std::string& line : trace_) result_.trace += line + "\n";
    }
    return std::move(result_);
  }

 private:
  struct Request {
    CoreWorld::Call call;
    TimePoint deadline = TimePoint::max();
    bool cancelled = false;
  };

  // One lease, as its holder sees it.
  struct Lease {
    std::string model;
    std::shared_ptr<void> token;
    std::string instance;  // while it has its model
    bool granted = false, ended = false, dropped = false;
    bool going = false;              // let go; what was on its way may still come
    std::optional<TimePoint> asked;  // to yield
  };
  struct Power final : PowerSource {
    PowerState Read() override { return state; }
    PowerState state;
  };
  struct Promises final : PromiseBoard {
    void Enter() override {}
    void Leave() override {}
    std::map<std::string, Bytes> Exchange(const std::map<std::string, Bytes>&) override { return others; }
    std::map<std::string, Bytes> others;
  };

  static int SlotsOf(uint64_t seed) { return 1 + static_cast<int>(seed % 7); }
  static CoreOptions Options(uint64_t seed) {
    CoreOptions options;
    options.queue_limit = seed % 3 == 0 ? 8 : 1000;
    options.keep_alive = seconds(seed % 2 == 0 ? 300 : 5);
    return options;
  }

  uint64_t Below(uint64_t n) { return random_() % n; }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }
  Model& AnyModel() { return models_[Below(models_.size())]; }
  bool ok() const { return result_.violation.empty(); }
  void Violated(const std::string& what) {
    if (ok()) result_.violation = what;
  }
  void Note(const std::string& what) {
    trace_.push_back(
        std::to_string(std::chrono::duration_cast<milliseconds>(world_.Now() - TimePoint{}).count()) +
        " ms: " + what);
    if (trace_.size() > kTrace) trace_.pop_front();
  }

  // ---- What happens ----

  void Step() {
    ++result_.steps;
    const uint64_t what = Below(100);
    if (what < 22) {
      Submit();
    } else if (what < 28) {
      CancelOne();
    } else if (what < 34) {
      Manage();
    } else if (what < 80) {
      EngineStep();
    } else if (what < 83) {
      Pressure();
    } else {
      const milliseconds steps[] = {milliseconds(1), milliseconds(20), milliseconds(300),
                                    seconds(1),      seconds(4),       seconds(20)};
      const milliseconds step = steps[Below(6)];
      Note("time +" + std::to_string(step.count()));
      world_.Advance(step);
    }
    if (Chance(85)) world_.Run();  // else the next thing happens before the core has looked
  }

  LoadSpec Spec(const std::string& model) {
    LoadSpec spec;
    spec.model = model;
    if (Chance(25)) spec.workload.sessions = 1 + static_cast<uint32_t>(Below(3));
    if (Chance(5)) spec.contract.device_kind = "gpu";
    if (Chance(10)) spec.keep_alive_s = static_cast<int64_t>(Below(20));
    return spec;
  }

  void Submit() {
    const LoadSpec spec = Spec(Chance(3) ? "nonesuch" : AnyModel().name);
    InferenceRequest request = world_.Request(spec.model);
    request.workload = spec.workload;
    request.contract = spec.contract;
    request.keep_alive_s = spec.keep_alive_s;
    request.client.app = "app" + std::to_string(Below(3));
    request.generate.priority = static_cast<Priority>(Below(3));
    Request entry;
    if (Chance(25)) request.deadline = entry.deadline = world_.Now() + milliseconds(1 + Below(30000));
    Note("submit " + request.id + " for " + spec.model);
    entry.call.heard->pause = Chance(10);
    entry.call.handle = world_.core->Generate(std::move(request), entry.call.heard);
    requests_.push_back(std::move(entry));
    ++result_.requests;
  }

  void CancelOne() {
    if (requests_.empty()) return;
    const size_t index = Below(requests_.size());
    Request& request = requests_[index];
    if (!request.call.handle) return;
    Note("cancel #" + std::to_string(index + 1));
    if (Chance(50)) {
      request.call.handle->Resume();
      request.call.heard->pause = false;
      return;
    }
    request.cancelled = true;
    if (Chance(50)) {
      request.call.handle->Cancel();
    } else {
      request.call.handle.reset();
    }
    world_.Run();
  }

  void Manage() {
    Model& model = AnyModel();
    switch (Below(11)) {
      case 7:
      case 8:
        TakeLease(model.name);
        break;
      case 9:
        DropLease();
        break;
      case 10:
        power_.state.on_battery = Chance(50);
        power_.state.battery_percent = static_cast<double>(Below(100));
        Note(std::string(power_.state.on_battery ? "on battery" : "on mains"));
        break;
      case 0:
        Note("load " + model.name);
        loads_.emplace_back();
        world_.core->LoadModel(Spec(model.name), nullptr, loads_.back().callback());
        break;
      case 1:
        Note("unload " + model.name);
        unloads_.emplace_back();
        world_.core->UnloadModel(model.name, milliseconds(Below(3) * 2000), unloads_.back().callback());
        break;
      case 2:
        Note("pin " + model.name);
        model.pinned = Chance(30);
        world_.core->PinModel(model.name, model.pinned, [](absl::StatusOr<bool>) {});
        world_.Run();
        break;
      case 3:
        Note("borrow " + model.name);
        borrows_.emplace_back();
        world_.core->WithEngine(Spec(model.name), {},
                                Chance(50) ? world_.Now() + seconds(Below(20)) : TimePoint::max(),
                                borrows_.back().callback());
        break;
      case 4:
        Note("give back");
        GiveBack();
        break;
      case 5: {
        PlanQuery query;
        query.model = model.name;
        world_.core->MakePlan(query, [](absl::StatusOr<Plan>) {});
        break;
      }
      default:
        Note("import " + model.name);
        world_.core->ImportModel({"/x", model.name, "", true}, std::make_shared<std::atomic<bool>>(false),
                                 nullptr, [](absl::StatusOr<StoredModel>) {});
    }
  }

  void TakeLease(const std::string& model) {
    auto lease = std::make_shared<Lease>();
    lease->model = model;
    LeaseSpec spec;
    spec.model = model;
    spec.priority = static_cast<Priority>(Below(3));
    Note("lease of " + model + ", priority " + std::to_string(static_cast<int>(spec.priority)));
    lease->token = world_.core->Lease(
        spec, [this, lease](const LeaseEvent& event) { OnLease(*lease, event); },
        [this, lease](const absl::Status& status) {
          Note("lease of " + lease->model + " ends: " + MessageOf(status));
          if (lease->ended || lease->dropped) Violated("a lease ended twice, or after it was let go");
          lease->ended = true;
          lease->instance.clear();
        });
    leases_.push_back(lease);
  }

  void DropLease() {
    if (leases_.empty()) return;
    const size_t index = Below(leases_.size());
    Note("the lease of " + leases_[index]->model + " is let go");
    leases_[index]->going = true;
    leases_[index]->token.reset();
    world_.Run();
    leases_[index]->dropped = true;
    leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void OnLease(Lease& lease, const LeaseEvent& event) {
    using Kind = LeaseEvent::Kind;
    const std::string who = "lease of " + lease.model;
    Note(who + ": " + Word(event.kind) + " " + event.instance_id + ": " + event.reason);
    if (lease.ended || lease.dropped) Violated(who + " hears of something after its end");
    if (lease.going) return;
    const bool has = !lease.instance.empty();
    if (event.kind == Kind::kGranted) {
      if (std::exchange(lease.granted, true)) Violated(who + " was granted twice");
      lease.instance = event.instance_id;
    } else if (event.kind == Kind::kYieldRequested) {
      if (!has && lease.granted) Violated(who + " is to yield what it has not");
      if (has) lease.asked = world_.Now();
    } else if (event.kind == Kind::kRevoked) {
      if (!has) Violated(who + " loses what it has not");
      lease.instance.clear();
      lease.asked.reset();
    } else if (event.kind == Kind::kRestored) {
      if (has && !lease.asked) Violated(who + " gets back what it has");
      lease.instance = event.instance_id;
      lease.asked.reset();
    }
  }

  void GiveBack() {
    for (auto& borrow : borrows_) {
      if (borrow.come() && borrow.status().ok()) borrow.get().engine.reset();
    }
  }

  // Another process takes memory, or gives it back.
  void Pressure() {
    foreign_ = Chance(50) ? 0 : static_cast<int>(Below(static_cast<uint64_t>(slots_)));
    Note("others take " + std::to_string(foreign_) + " slots");
    promises_.others.clear();
    if (Chance(20)) promises_.others["pool-system"] = kSlot * Below(static_cast<uint64_t>(slots_));
    Report();
  }
  // What the machine reports free: processes take their memory once they are ready.
  void Report() {
    int taken = foreign_;
    world_.topology.process_bytes.clear();
    for (const auto& process : world_.launcher.processes) {
      if (!process->alive() || !process->ready()) continue;
      taken += SlotsOf(*process);
      world_.topology.process_bytes[process->pid] = kSlot * static_cast<Bytes>(SlotsOf(*process));
    }
    const Bytes all = testing::kSystemReserve + kSlot * static_cast<Bytes>(slots_);
    world_.topology.free["pool-system"] = SaturatingSub(all, kSlot * static_cast<Bytes>(taken));
  }

  static int SlotsOf(const FakeProcess& process) {
    return process.spec.engine == "s" ? 1 : process.spec.engine == "m" ? 2 : 4;
  }

  FakeProcess* AnyProcess() {
    std::vector<FakeProcess*> alive;
    for (const auto& process : world_.launcher.processes) {
      if (process->alive()) alive.push_back(process.get());
    }
    return alive.empty() ? nullptr : alive[Below(alive.size())];
  }

  void EngineStep() {
    if (Chance(10)) BreakLateStreams();
    FakeProcess* process = AnyProcess();
    if (process == nullptr) return;
    const std::string who = "process " + std::to_string(process->pid);
    const uint64_t what = Below(100);
    if (what < 3) {
      Note(who + " crashes");
      process->Crash(Chance(50));
    } else if (what < 5) {
      Note(who + " dies, its streams break later");
      process->ExitAlone(Error(absl::StatusCode::kUnavailable, Reason::kEngineCrashed, "gone"));
      late_.push_back(process);
    } else if (what < 6) {
      Note(who + "'s streams break first");
      process->CrashReplies();
    } else if (what < 8) {
      Note(who + " falls silent");
      process->silent = true;
    } else if (what < 10) {
      process->silent = false;
    } else if (!process->ready()) {
      LoadStep(*process, who);
    } else if (process->open_replies() > 0 && !process->silent) {
      AnswerStep(*process, who);
    }
    Report();
  }

  void LoadStep(FakeProcess& process, const std::string& who) {
    if (process.silent) return;
    switch (Below(6)) {
      case 0:
        process.Started();
        break;
      case 1:
        process.Progress(0.5);
        break;
      case 2:
        if (!Chance(30)) break;
        Note(who + " fails to load");
        process.Exit(Error(absl::StatusCode::kFailedPrecondition, Reason::kModelInvalid, "bad tensor"));
        break;
      default:
        Note(who + " is ready");
        process.Started();
        process.Ready();
    }
  }

  void AnswerStep(FakeProcess& process, const std::string& who) {
    FakeReply& reply = process.open_reply(Below(process.open_replies()));
    process.stats.generated_tokens++;
    switch (Below(8)) {
      case 0:
        reply.Start();
        break;
      case 1:
        reply.Finish();
        break;
      case 2:
        if (!Chance(20)) break;
        Note(who + " fails a request");
        reply.End(Error(absl::StatusCode::kInvalidArgument, Reason::kPromptTooLong, "too long"));
        break;
      default:
        reply.Token();
    }
  }

  void BreakLateStreams() {
    for (FakeProcess* process : std::exchange(late_, {})) process->CrashReplies();
  }

  // ---- What must hold ----

  void OnLaunch(const FakeProcess& started) {
    int taken = 0;
    for (const auto& process : world_.launcher.processes) {
      if (process->alive()) taken += SlotsOf(*process);
    }
    Note("process " + std::to_string(started.pid) + " starts for " + started.spec.files.front());
    if (taken > slots_)
      Violated("processes take " + std::to_string(taken) + " of " + std::to_string(slots_) + " slots");
  }

  void OnChange(const InstanceInfo& info) {
    Note(info.id + " " + info.model + ": " + Word(info.state) + ": " + info.reason);
    if (info.state == InstanceState::kReady) {
      ready_[info.id] = info.model;
    } else if (info.state != InstanceState::kDraining) {
      ready_.erase(info.id);
    }
    if (info.state != InstanceState::kDraining) {
      ending_.erase(info.id);
      return;
    }
    // What was decided before stays right when the model is pinned or leased after.
    if (!ending_.insert(info.id).second) return;
    const bool unwanted = info.reason.rfind("evicted", 0) == 0 || info.reason.rfind("idle", 0) == 0;
    if (!unwanted) {
      ready_.erase(info.id);
      return;
    }
    ready_.erase(info.id);
    const bool another = std::any_of(ready_.begin(), ready_.end(),
                                     [&](const auto& entry) { return entry.second == info.model; });
    if (info.pinned && !another) Violated("pinned " + info.id + ": " + info.reason);
    for (const auto& lease : leases_) {
      if (lease->instance != info.id || lease->going) continue;
      if (!lease->asked || world_.Now() - *lease->asked < seconds(5))
        Violated("leased " + info.id + ": " + info.reason);
    }
    for (const auto& process : world_.launcher.processes) {
      if (process->spec.instance_id == info.id && process->alive() && process->open_replies() > 0) {
        const FakeReply& reply = process->open_reply();
        Violated("busy " + info.id + ": " + info.reason + "; process " + std::to_string(process->pid) +
                 " of " + std::to_string(process->replies.size()) + " replies has " +
                 std::to_string(process->open_replies()) + " open, the first with " +
                 std::to_string(reply.tokens()) + " tokens" + (reply.paused() ? ", paused" : "") +
                 (reply.cancelled() ? ", cancelled" : "") + (process->silent ? ", silent" : ""));
      }
    }
  }

  void Check() {
    for (size_t i = checked_; i < requests_.size(); ++i) CheckRequest(i);
    while (checked_ < requests_.size() && requests_[checked_].call->ended()) ++checked_;
    for (const auto& process : world_.launcher.processes) {
      if (process->alive() && process->open_replies() > process->spec.settings.sessions.value_or(0)) {
        Violated("more requests than sessions in process " + std::to_string(process->pid));
      }
    }
  }

  void CheckRequest(size_t index) {
    const Request& request = requests_[index];
    const Heard& heard = *request.call.heard;
    const std::string who = "request #" + std::to_string(index + 1);
    if (heard.ends > 1) Violated(who + " ended twice");
    if (heard.after_end) Violated(who + " heard something after its end");
    if (!heard.in_order) Violated(who + " got tokens out of order");
    if (heard.started > 1) Violated(who + " began twice");
    if (heard.ended() && heard.status.ok() != heard.finished.has_value())
      Violated(who + " ended without a summary");
    if (heard.ended() && heard.status.code() == absl::StatusCode::kInternal)
      Violated(who + ": " + MessageOf(heard.status));
    if (!heard.ended() && request.cancelled) Violated(who + " was cancelled and goes on");
    if (!heard.ended() && request.deadline < world_.Now()) Violated(who + " outlived its deadline");
  }

  void CheckAllEnded(const std::string& when) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      CheckRequest(i);
      if (!requests_[i].call->ended())
        Violated("request #" + std::to_string(i + 1) + " never ended: " + when);
    }
  }

  // ---- The end ----

  // Engines work from now on; those that fell silent stay so.
  void Quiet(seconds time) {
    for (auto& request : requests_) {
      request.call.heard->pause = false;
      if (request.call.handle) request.call.handle->Resume();
    }
    milliseconds step{250};
    for (milliseconds passed{0}; passed < time && ok(); passed += step) {
      BreakLateStreams();
      bool busy = checked_ < requests_.size();
      // Processes may be started while we go through them.
      for (size_t i = 0; i < world_.launcher.processes.size(); ++i)
        busy = Work(*world_.launcher.processes[i]) || busy;
      Report();
      step = busy ? milliseconds(250) : milliseconds(5000);
      world_.Advance(step);
      Check();
    }
  }

  // True where it did something.
  bool Work(FakeProcess& process) {
    if (!process.alive()) return false;
    if (process.silent) {
      // Silence while loading is the supervisor's to end.
      if (!process.ready() && ++silent_[&process] > 240) {
        process.Exit(Error(absl::StatusCode::kUnavailable, Reason::kEngineHung, "silent while loading"));
      }
      return !process.ready();
    }
    const bool busy = !process.ready() || process.open_replies() > 0;
    if (!process.ready()) {
      process.Started();
      process.Ready();
    }
    const auto replies = process.replies;
    for (const auto& reply : replies) {
      if (!reply->open()) continue;
      if (reply->tokens() < 3) {
        reply->Token();
      } else {
        reply->Finish();
      }
    }
    return busy;
  }

  void Settle(uint64_t ending) {
    Note("---- the faults stop");
    foreign_ = 0;
    promises_.others.clear();
    power_.state = {};
    while (!leases_.empty()) DropLease();
    GiveBack();
    Quiet(seconds(240));
    GiveBack();
    CheckAllEnded("240 s after the last fault");
    for (const auto& load : loads_)
      if (!load.come()) Violated("a load never ended");
    for (const auto& unload : unloads_)
      if (!unload.come()) Violated("an unload never ended");
    for (const auto& borrow : borrows_)
      if (!borrow.come()) Violated("a short call never ended");
    const CoreStatus status = world_.Status();
    if (status.running_requests + status.queued_requests > 0)
      Violated("the status counts requests that ended");
    if (ok()) ServeAll();
    if (ok()) Leave(ending);
  }

  // Every model serves now, but for those that pinned ones leave no room for.
  void ServeAll() {
    Note("---- everybody is asked once");
    const size_t first = requests_.size();
    for (const Model& model : models_) {
      Request request;
      request.call.handle = world_.core->Generate(world_.Request(model.name), request.call.heard);
      requests_.push_back(std::move(request));
    }
    Quiet(seconds(130));
    for (size_t i = 0; i < models_.size() && ok(); ++i) {
      const Heard& heard = *requests_[first + i].call.heard;
      if (!heard.ended()) Violated(models_[i].name + " does not serve");
      if (heard.status.ok()) continue;
      int others = 0;
      for (const InstanceInfo& info : world_.Instances()) {
        if (info.pinned && info.model != models_[i].name && info.pid) others += SlotsOfModel(info.model);
      }
      if (ReasonOf(heard.status) == Reason::kDoesNotFit && others + models_[i].slots > slots_) continue;
      for (const InstanceInfo& info : world_.Instances()) {
        Note(info.id + " " + info.model + " " + Word(info.state) + (info.pinned ? " pinned" : "") +
             " running " + std::to_string(info.running) + " queue " + std::to_string(info.queue) + ": " +
             info.reason);
      }
      Violated(models_[i].name + " does not serve: " + heard.status.ToString());
    }
  }

  int SlotsOfModel(const std::string& name) const {
    const auto it =
        std::find_if(models_.begin(), models_.end(), [&](const Model& model) { return model.name == name; });
    return it == models_.end() ? 0 : it->slots;
  }

  // Nothing stays that nobody wants.
  void Leave(uint64_t ending) {
    Note("---- everybody leaves");
    for (Model& model : models_) world_.Pin(model.name, false);
    if (ending % 2 == 0) {
      for (const Model& model : models_) world_.Unload(model.name);
      Quiet(seconds(70));
    } else {
      Quiet(seconds(400));
    }
    for (const InstanceInfo& info : world_.Instances()) {
      Violated("left over: " + info.id + " " + info.model + " " + Word(info.state) + " " + info.reason);
    }
    if (world_.launcher.alive() > 0) Violated("a process is left over");
  }

  void EndByDrain() {
    Note("---- drain");
    int drained = 0;
    world_.core->Drain(seconds(5), [&drained] { ++drained; });
    Quiet(seconds(10));
    if (drained != 1) Violated("drained " + std::to_string(drained) + " times");
    Quiet(seconds(20));
    CheckAllEnded("after a drain");
    if (drained != 1) Violated("drained " + std::to_string(drained) + " times");
  }

  void EndByDestruction() {
    Note("---- the core goes");
    watch_.reset();
    world_.core.reset();
    world_.Run();
    BreakLateStreams();
    world_.Advance(seconds(1));
    CheckAllEnded("after the core went");
    if (world_.launcher.alive() > 0) Violated("a process outlives the core");
  }

  std::mt19937_64 random_;
  int slots_;
  int foreign_ = 0;
  std::vector<Model> models_;
  Result result_;
  std::deque<std::string> trace_;
  Power power_;
  Promises promises_;
  std::vector<std::shared_ptr<Lease>> leases_;
  CoreWorld world_;
  std::shared_ptr<void> watch_;
  std::vector<Request> requests_;
  size_t checked_ = 0;  // all before it have ended and were checked
  std::deque<CoreWorld::Answer<LoadResult>> loads_;
  std::deque<CoreWorld::Answer<std::vector<std::string>>> unloads_;
  std::deque<CoreWorld::Answer<Core::ReadyEngine>> borrows_;
  std::vector<FakeProcess*> late_;
  std::map<std::string, std::string> ready_;  // instance -> model
  std::set<std::string> ending_;              // drained already
  std::map<const FakeProcess*, int> silent_;  // quarter seconds
};

}  // namespace

Result RunSchedule(uint64_t seed) { return Simulation(seed).Run(); }

}  // namespace rumbo::simulation
