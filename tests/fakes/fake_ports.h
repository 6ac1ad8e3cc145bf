#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "daemon/core/ports.h"

// The outside world of daemon/core, in memory. Answers come later on the given executor, as those of real
// ports do.
namespace rumbo {

class FakeModelStore final : public ModelStore {
 public:
  explicit FakeModelStore(Executor* executor) : executor_(executor) {}

  std::map<std::string, StoredModel> models;
  absl::Status list_status;  // what List answers where not OK
  bool hold_list = false;    // List answers at Release only

  void Release() {
    hold_list = false;
    if (held_) std::exchange(held_, nullptr)(Contents());
  }

  void List(Callback<std::vector<StoredModel>> done) override {
    if (hold_list) {
      held_ = std::move(done);
      return;
    }
    executor_->Post([this, done = std::move(done)] { done(Contents()); });
  }
  void Import(ImportSpec spec, std::shared_ptr<std::atomic<bool>>,
              std::function<void(const StepProgress&)> progress, Callback<StoredModel> done) override {
    executor_->Post([this, spec = std::move(spec), progress = std::move(progress), done = std::move(done)] {
      progress({"hash", 1, 2, 0.5});
      StoredModel model = models[spec.name];
      model.name = spec.name;
      if (model.variants.empty()) model.variants.emplace_back();
      models[spec.name] = model;
      done(model);
    });
  }
  void Delete(std::string name, Callback<Bytes> done) override {
    executor_->Post([this, name = std::move(name), done = std::move(done)] {
      if (!delete_status.ok()) return done(delete_status);
      models.erase(name);
      done(Bytes{100});
    });
  }
  void SetPinned(std::string name, bool pinned, Callback<bool> done) override {
    executor_->Post([this, name = std::move(name), pinned, done = std::move(done)] {
      models[name].pinned = pinned;
      done(pinned);
    });
  }
  absl::Status delete_status;

 private:
  absl::StatusOr<std::vector<StoredModel>> Contents() const {
    if (!list_status.ok()) return list_status;
    std::vector<StoredModel> out;
    for (const auto& [name, model] : models) out.push_back(model);
    return out;
  }

  Executor* const executor_;
  Callback<std::vector<StoredModel>> held_;
};

class FakeModelInspector final : public ModelInspector {
 public:
  explicit FakeModelInspector(Executor* executor) : executor_(executor) {}
  std::map<std::string, ModelDescriptor> files;

  void Inspect(std::string path, Callback<ModelDescriptor> done) override {
    executor_->Post([this, path = std::move(path), done = std::move(done)] {
      const auto it = files.find(path);
      if (it != files.end()) return done(it->second);
      done(Error(absl::StatusCode::kNotFound, Reason::kFileNotFound, "there is no such file"));
    });
  }

 private:
  Executor* const executor_;
};

class FakeTopologySource final : public TopologySource {
 public:
  explicit FakeTopologySource(Executor* executor) : executor_(executor) {}

  Topology topology;                       // what Probe answers
  absl::Status probe_status;               // instead, where not OK
  std::map<std::string, Bytes> free;       // pool id -> what RefreshMemory reports
  std::map<int64_t, Bytes> process_bytes;  // by pid
  std::map<std::string, Topology> profiles;
  int probes = 0;

  void Probe(Callback<Topology> done) override {
    ++probes;
    executor_->Post([this, done = std::move(done)] {
      if (!probe_status.ok()) return done(probe_status);
      done(topology);
    });
  }
  bool changed = false;  // what RefreshMemory answers, once
  bool RefreshMemory(Topology& t) override {
    for (MemoryPool& pool : t.pools) {
      if (const auto it = free.find(pool.id); it != free.end()) pool.free_bytes = it->second;
    }
    return std::exchange(changed, false);
  }
  std::optional<Bytes> ProcessBytes(int64_t pid, const MemoryPool&) override {
    const auto it = process_bytes.find(pid);
    return it == process_bytes.end() ? std::nullopt : std::optional<Bytes>(it->second);
  }
  absl::StatusOr<Topology> Profile(const std::string& name) override {
    const auto it = profiles.find(name);
    if (it != profiles.end()) return it->second;
    return Error(absl::StatusCode::kNotFound, Reason::kProfileNotFound, "no such profile");
  }
  std::vector<std::string> ProfileNames() override {
    std::vector<std::string> names;
    for (const auto& [name, profile] : profiles) names.push_back(name);
    return names;
  }

 private:
  Executor* const executor_;
};

class FakeWallClock final : public WallClock {
 public:
  int64_t now = 1700000000;
  int64_t UnixSeconds() const override { return now; }
};

}  // namespace rumbo
