#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/manual_executor.h"
#include "daemon/core/calibration.h"
#include "daemon/core/core.h"
#include "daemon/core/testing/plan_fixtures.h"
#include "engines/api/catalog.h"
#include "tests/fakes/fake_launcher.h"
#include "tests/fakes/fake_ports.h"

namespace rumbo::testing {

inline constexpr Bytes kSlot = 16 * kMiB;            // the unit of memory in these tests
inline constexpr Bytes kSystemReserve = 256 * kMiB;  // what the ledger keeps back

// Engines "s", "m" and "l", which take one, two and four slots for the models of the format of that name, and
// one session each unless the request says otherwise; beside them the built-in "fake".
inline const EngineCatalog& SlotCatalog() {
  static const EngineCatalog* catalog = [] {
    auto* out = new EngineCatalog;
    out->maturity = BuiltInCatalog().maturity;
    out->engines.push_back(*BuiltInCatalog().Find("fake"));
    for (const auto& [name, slots] : {std::pair{"s", 1}, std::pair{"m", 2}, std::pair{"l", 4}}) {
      CatalogEngine engine = *BuiltInCatalog().Find("fake");
      engine.name = engine.title = name;
      engine.formats = {name};
      engine.automatic = true;
      engine.fixed_bytes = kSlot * slots;
      out->engines.push_back(std::move(engine));
    }
    return out;
  }();
  return *catalog;
}

// What one client saw of its answer, with a check of the contract of AnswerSink.
struct Heard final : AnswerSink {
  std::optional<Placement> placement;
  int started = 0, ends = 0;
  uint32_t tokens = 0;
  bool in_order = true;    // tokens came as 1, 2, 3 ...
  bool after_end = false;  // something came after the end
  absl::Status status;
  std::optional<FinishedEvent> finished;
  bool pause = false;  // asks for a pause at each chunk

  void OnPlaced(const Placement& p) override {
    after_end = after_end || ends > 0;
    placement = p;
  }
  void OnStarted(const StartedEvent&) override {
    after_end = after_end || ends > 0;
    ++started;
  }
  bool OnChunk(ChunkEvent& chunk) override {
    after_end = after_end || ends > 0;
    tokens += chunk.tokens;
    in_order = in_order && started == 1 && chunk.text == std::to_string(tokens) + " ";
    return !pause;
  }
  void OnEnd(const absl::Status& s, const FinishedEvent* f) override {
    ++ends;
    status = s;
    if (f != nullptr) finished = *f;
  }
  bool ended() const { return ends > 0; }
};

// A daemon's core with everything around it faked. Time and tasks move only when told.
class CoreWorld {
 public:
  explicit CoreWorld(int slots, CoreOptions options = {},
                     const std::function<void(Core::Parts&)>& more = nullptr) {
    topology.topology = CpuMachine(kSystemReserve + kSlot * static_cast<Bytes>(slots));
    Core::Parts parts;
    parts.executor = &executor;
    parts.launcher = &launcher;
    parts.store = &store;
    parts.inspector = &inspector;
    parts.topology = &topology;
    parts.wall = &wall;
    parts.catalog = &SlotCatalog();
    parts.calibration = &calibration;
    parts.engines = {{"s", "", "1", {"cpu"}},
                     {"m", "", "1", {"cpu"}},
                     {"l", "", "1", {"cpu"}},
                     {"fake", "", "1", {"cpu"}}};
    if (more) more(parts);
    core = Core::Create(std::move(options), parts);
  }

  // A model of the size `format` ("s", "m", "l"). Before Start.
  void AddModel(const std::string& name, const std::string& format = "s", bool pinned = false) {
    StoredModel model;
    model.name = name;
    model.pinned = pinned;
    StoredVariant variant;
    variant.files = {"/models/" + name};
    variant.descriptor.format = format;
    variant.descriptor.tensor_bytes = variant.descriptor.file_bytes = 1;
    variant.descriptor.capabilities = {"generate", "chat", "embed"};
    model.variants.push_back(variant);
    store.models[name] = model;
  }
  void Start() {
    core->Start();
    Run();
  }
  void Run() { executor.RunReady(); }
  void Advance(std::chrono::milliseconds step) { executor.Advance(step); }
  TimePoint Now() const { return executor.clock().Now(); }

  struct Call {
    std::shared_ptr<Heard> heard = std::make_shared<Heard>();
    std::unique_ptr<GenerateCall> handle;
    Heard* operator->() const { return heard.get(); }
    void Cancel() { handle->Cancel(); }
  };
  InferenceRequest Request(const std::string& model) {
    InferenceRequest request;
    request.id = "req-" + std::to_string(++requests_);
    request.model = model;
    request.generate.input.prompt = "hello";
    request.generate.sampling.max_tokens = 8;
    return request;
  }
  Call Ask(InferenceRequest request) {
    Call call;
    call.handle = core->Generate(std::move(request), call.heard);
    Run();
    return call;
  }
  Call Ask(const std::string& model) { return Ask(Request(model)); }

  // The answers of the short calls, once run.
  template <typename T>
  struct Answer {
    std::shared_ptr<std::optional<absl::StatusOr<T>>> value =
        std::make_shared<std::optional<absl::StatusOr<T>>>();
    bool come() const { return value->has_value(); }
    absl::Status status() const { return (*value)->status(); }
    T& get() const { return ***value; }
    std::function<void(absl::StatusOr<T>)> callback() const {
      return [value = value](absl::StatusOr<T> result) {
        if (value->has_value()) std::abort();  // answered twice
        *value = std::move(result);
      };
    }
  };
  Answer<LoadResult> Load(LoadSpec spec) {
    Answer<LoadResult> answer;
    core->LoadModel(std::move(spec), nullptr, answer.callback());
    Run();
    return answer;
  }
  Answer<LoadResult> Load(const std::string& model) {
    LoadSpec spec;
    spec.model = model;
    return Load(std::move(spec));
  }
  Answer<std::vector<std::string>> Unload(const std::string& name,
                                          std::optional<std::chrono::milliseconds> drain = {}) {
    Answer<std::vector<std::string>> answer;
    core->UnloadModel(name, drain, answer.callback());
    Run();
    return answer;
  }
  void Pin(const std::string& model, bool pinned) {
    core->PinModel(model, pinned, [](absl::StatusOr<bool>) {});
    Run();
  }
  std::vector<InstanceInfo> Instances() {
    std::vector<InstanceInfo> out;
    core->ListInstances([&out](absl::StatusOr<std::vector<InstanceInfo>> list) { out = std::move(*list); });
    Run();
    return out;
  }
  std::optional<InstanceInfo> InstanceOf(const std::string& model) {
    for (InstanceInfo& info : Instances()) {
      if (info.model == model) return std::move(info);
    }
    return std::nullopt;
  }
  CoreStatus Status() {
    CoreStatus out;
    core->GetStatus([&out](absl::StatusOr<CoreStatus> status) { out = std::move(*status); });
    Run();
    return out;
  }
  // The last process that was started for `model`; null where there was none.
  FakeProcess* ProcessOf(const std::string& model) {
    for (size_t i = launcher.processes.size(); i-- > 0;) {
      const LaunchSpec& spec = launcher.processes[i]->spec;
      if (!spec.files.empty() && spec.files.front() == "/models/" + model) return launcher.processes[i].get();
    }
    return nullptr;
  }
  // Plays one answer of `model` to its end.
  void Answer3(FakeReply& reply) {
    for (int i = 0; i < 3; ++i) reply.Token();
    reply.Finish();
    Run();
  }

  ManualExecutor executor;
  FakeLauncher launcher{&executor};
  FakeModelStore store{&executor};
  FakeModelInspector inspector{&executor};
  FakeTopologySource topology{&executor};
  FakeWallClock wall;
  Calibration calibration;
  std::unique_ptr<Core> core;

 private:
  int requests_ = 0;
};

}  // namespace rumbo::testing
