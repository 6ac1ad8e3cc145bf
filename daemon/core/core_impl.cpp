// Models, plans, the machine, and the daemon as a whole.
#include "daemon/core/core_impl.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>

#include "base/check.h"
#include "base/nearest.h"
#include "base/status.h"
#include "daemon/core/plan_advice.h"
#include "daemon/core/plan_together.h"

namespace rumbo {
namespace {

constexpr std::chrono::minutes kRepeatable{10};

// Bytes of system memory that are never given out: room for the OS and for what nobody foresaw.
Bytes SystemReserve() { return 256 * kMiB; }

}  // namespace

const char* Word(InstanceState state) {
  switch (state) {
    case InstanceState::kStarting:
      return "starting";
    case InstanceState::kLoading:
      return "loading";
    case InstanceState::kReady:
      return "ready";
    case InstanceState::kDraining:
      return "draining";
    case InstanceState::kStopped:
      return "stopped";
    case InstanceState::kFailed:
      return "failed";
  }
  RUMBO_CHECK(false);
  return "";  // never: but some sanitizers hide that the line above does not return
}

std::unique_ptr<Core> Core::Create(CoreOptions options, Parts parts) {
  return std::make_unique<CoreImpl>(std::move(options), std::move(parts));
}

CoreImpl::CoreImpl(CoreOptions options, Parts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      ledger_(SystemReserve(), options_.memory_limit),
      calibration_(*parts_.calibration),
      repeats_(std::make_shared<RepeatTable>(parts_.executor)) {}

// State lives on the executor; it ends there.
CoreImpl::~CoreImpl() {
  if (parts_.executor->IsCurrent()) {
    Close();
    return;
  }
  std::promise<void> closed;
  parts_.executor->Post([this, &closed] {
    Close();
    closed.set_value();
  });
  closed.get_future().wait();
}

// Every request hears its end: what waits now, what runs when its process has ended (see Generate).
void CoreImpl::Close() {
  alive_.reset();
  const absl::Status end =
      Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down");
  for (const auto& request : std::exchange(early_requests_, {})) request->EndWith(end);
  for (auto& [id, instance] : instances_) {
    FailWaiting(*instance, end);
    for (const auto& [request_id, request] : instance->running) request->SetCauseOfDeath(end, false);
  }
  instances_.clear();
}

void CoreImpl::Door::Post(std::function<void()> task) const {
  executor->Post([alive = alive, task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

void CoreImpl::PostAfter(std::chrono::milliseconds delay, std::function<void()> task) {
  if (delay.count() <= 0) return Post(std::move(task));
  parts_.executor->PostAfter(delay, [alive = std::weak_ptr<int>(alive_), task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

void CoreImpl::Start() {
  Post([this] {
    parts_.store->List([this, door = door()](absl::StatusOr<std::vector<StoredModel>> models) {
      door.Post([this, models = std::move(models)]() mutable { OnModels(std::move(models)); });
    });
    StartProbe();
    CheckPower();
    WatchMachine();
  });
}

void CoreImpl::OnModels(absl::StatusOr<std::vector<StoredModel>> models) {
  models_loaded_ = true;
  models_status_ = models.status();
  if (models.ok()) {
    for (StoredModel& model : *models) models_[model.name] = std::move(model);
  } else {
    spdlog::error("the model index cannot be read: {}", MessageOf(models_status_));
  }
  for (auto& waiter : std::exchange(models_waiters_, {})) waiter();
  for (auto& request : std::exchange(early_requests_, {})) Submit(std::move(request));
  for (const auto& [name, model] : models_) {
    if (!model.pinned) continue;
    LoadSpec spec;
    spec.model = name;
    if (const auto instance = EnsureInstance(spec, false); !instance.ok()) {
      spdlog::error("pinned model {}: {}", name, MessageOf(instance.status()));
    }
  }
  ReloadLeases();
}

void CoreImpl::WhenModels(std::function<void()> task) {
  if (models_loaded_) {
    task();
  } else {
    models_waiters_.push_back(std::move(task));
  }
}

// `task` runs later on the executor, never inside this call.
void CoreImpl::WhenTopology(std::function<void(absl::Status)> task) {
  if (topology_) {
    Post([task = std::move(task)] { task(absl::OkStatus()); });
    return;
  }
  topology_waiters_.push_back(std::move(task));
  StartProbe();
}

// Notices hot-plug, lost devices and memory that others took, while nobody asks.
void CoreImpl::WatchMachine() {
  PostAfter(std::chrono::seconds(pressed_.empty() ? 10 : 2), [this] {
    if (topology_) {
      RefreshMemory();
      RelievePressure();
    }
    CheckPower();
    CheckContracts();
    WatchMachine();
  });
}

void CoreImpl::StartProbe() {
  if (probing_) return;
  probing_ = true;
  parts_.topology->Probe([this, door = door()](absl::StatusOr<Topology> topology) {
    door.Post([this, topology = std::move(topology)]() mutable {
      probing_ = false;
      if (topology.ok()) {
        topology_ = std::move(*topology);
        ledger_.SetTopology(*topology_);
        EndInstancesOfLostDevices();
      } else {
        spdlog::error("hardware probe: {}", MessageOf(topology.status()));
      }
      for (auto& waiter : std::exchange(topology_waiters_, {})) waiter(topology.status());
    });
  });
}

void CoreImpl::EndInstancesOfLostDevices() {
  // A device that is missing from a probe which could not ask everyone may still be there.
  const bool whole = std::none_of(topology_->findings.begin(), topology_->findings.end(),
                                  [](const Finding& f) { return f.code.rfind("probe.", 0) == 0; });
  for (const auto& [id, instance] : instances_) {
    for (const std::string& device_id : instance->info.devices) {
      const Device* device = topology_->FindDevice(device_id);
      if (!instance->process || instance->stopping) break;
      if (device == nullptr ? !whole : device->present) continue;
      EndForFault(*instance,
                  Error(absl::StatusCode::kUnavailable, Reason::kDeviceLost,
                        device_id + " is gone: " + (device == nullptr ? "no probe finds it" : device->reason),
                        "Check the card and its driver; `rumbo devices` shows what is left."));
    }
  }
}

void CoreImpl::RefreshMemory() {
  const bool changed = parts_.topology->RefreshMemory(*topology_);
  ledger_.SetTopology(*topology_);
  if (changed) {
    spdlog::info("the machine's devices changed; probing again");
    StartProbe();
  }
  EndInstancesOfLostDevices();
  for (const auto& [id, instance] : instances_) {
    if (!instance->info.pid) continue;
    std::map<std::string, Bytes> taken;
    for (const MemoryPool& pool : topology_->pools) {
      if (const auto bytes = parts_.topology->ProcessBytes(*instance->info.pid, pool))
        taken[pool.id] = *bytes;
    }
    ledger_.SetTaken(id, taken);
  }
  PublishPromises();
}

absl::StatusOr<const StoredModel*> CoreImpl::FindModel(const std::string& name) const {
  if (!models_status_.ok()) return models_status_;
  const auto it = models_.find(name);
  if (it != models_.end()) return &it->second;
  std::vector<std::string> known;
  for (const auto& [other, model] : models_) known.push_back(other);
  const std::string nearest = Nearest(name, known);
  const std::string next = nearest.empty()
                               ? "`rumbo models` lists the models; `rumbo import FILE --name NAME` adds one."
                               : "Did you mean " + nearest + "? `rumbo models` lists the models.";
  return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound,
               "no model is called " + name.substr(0, 200), next);
}

// ---- Models ----

void CoreImpl::ListModels(Callback<std::vector<StoredModel>> done) {
  Post([this, done = std::move(done)] {
    WhenModels([this, done] {
      if (!models_status_.ok()) return done(models_status_);
      std::vector<StoredModel> out;
      for (const auto& [name, model] : models_) out.push_back(model);
      done(std::move(out));
    });
  });
}

void CoreImpl::GetModel(std::string name, Callback<StoredModel> done) {
  Post([this, name = std::move(name), done = std::move(done)] {
    WhenModels([this, name, done] {
      const auto model = FindModel(name);
      if (model.ok()) {
        done(**model);
      } else {
        done(model.status());
      }
    });
  });
}

void CoreImpl::ImportModel(ImportSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
                           std::function<void(const StepProgress&)> progress, Callback<StoredModel> done) {
  Post([this, spec = std::move(spec), cancelled, progress = std::move(progress),
        done = std::move(done)]() mutable {
    parts_.store->Import(
        std::move(spec), cancelled,
        [door = door(), progress](const StepProgress& step) {
          if (progress) door.Post([progress, step] { progress(step); });
        },
        [this, door = door(), done](absl::StatusOr<StoredModel> model) {
          door.Post([this, done, model = std::move(model)]() mutable {
            if (model.ok()) {
              models_[model->name] = *model;
              // What failed with the file that was there before says nothing about this one.
              std::vector<std::string> failed;
              for (const auto& [id, instance] : instances_) {
                if (instance->info.model == model->name && instance->info.state == InstanceState::kFailed)
                  failed.push_back(id);
              }
              for (const std::string& id : failed)
                StopInstance(*Find(id), "imported anew", absl::OkStatus(), {});
            }
            done(std::move(model));
          });
        });
  });
}

void CoreImpl::DeleteModel(std::string name, Callback<Bytes> done) {
  Post([this, name = std::move(name), done = std::move(done)] {
    WhenModels([this, name, done] {
      if (const auto model = FindModel(name); !model.ok()) return done(model.status());
      for (const auto& [id, instance] : instances_) {
        if (instance->info.model == name && !instance->stopping &&
            instance->info.state != InstanceState::kFailed) {
          return done(Error(absl::StatusCode::kFailedPrecondition, Reason::kInvalidArgument,
                            name + " is loaded", "`rumbo unload " + name + "` first."));
        }
      }
      parts_.store->Delete(name, [this, door = door(), name, done](absl::StatusOr<Bytes> freed) {
        door.Post([this, name, done, freed] {
          if (freed.ok()) models_.erase(name);
          done(freed);
        });
      });
    });
  });
}

void CoreImpl::PinModel(std::string name, bool pinned, Callback<bool> done) {
  Post([this, name = std::move(name), pinned, done = std::move(done)] {
    WhenModels([this, name, pinned, done] {
      if (const auto model = FindModel(name); !model.ok()) return done(model.status());
      parts_.store->SetPinned(name, pinned,
                              [this, door = door(), name, pinned, done](absl::StatusOr<bool> stored) {
                                door.Post([this, name, pinned, done, stored] {
                                  if (stored.ok()) {
                                    if (const auto it = models_.find(name); it != models_.end())
                                      it->second.pinned = pinned;
                                    for (auto& [id, instance] : instances_) {
                                      if (instance->info.model != name) continue;
                                      instance->info.pinned = pinned;
                                      Notify(*instance);
                                      if (!pinned && instance->idle()) ArmKeepAlive(*instance);
                                    }
                                    RoomMayBeFree();
                                  }
                                  done(stored);
                                });
                              });
    });
  });
}

// Repeats of one key are one load; one that failed may be tried again.
void CoreImpl::LoadOnce(LoadSpec spec, std::function<void(const StepProgress&)> progress,
                        Callback<LoadResult> done) {
  std::erase_if(keyed_loads_, [&](const auto& entry) { return Now() - entry.second.begun > kRepeatable; });
  const auto key = std::pair(spec.uid, spec.idempotency_key);
  if (const auto it = keyed_loads_.find(key); it != keyed_loads_.end()) {
    if (!(it->second.spec == spec)) {
      return done(InvalidArgument("the idempotency key stood for another load before", "Use a new key."));
    }
    if (it->second.result) return done(*it->second.result);
    it->second.waiters.push_back(std::move(done));
    return;
  }
  keyed_loads_[key] = {spec, Now(), std::nullopt, {std::move(done)}};
  spec.idempotency_key.clear();
  LoadModel(std::move(spec), std::move(progress), [this, key](absl::StatusOr<LoadResult> result) {
    const auto it = keyed_loads_.find(key);
    if (it == keyed_loads_.end()) return;
    const auto waiters = std::exchange(it->second.waiters, {});
    if (result.ok()) {
      it->second.result = *result;
    } else {
      keyed_loads_.erase(it);
    }
    for (const auto& waiter : waiters) waiter(result);
  });
}

void CoreImpl::LoadModel(LoadSpec spec, std::function<void(const StepProgress&)> progress,
                         Callback<LoadResult> done) {
  Post([this, spec = std::move(spec), progress = std::move(progress), done = std::move(done)] {
    if (!spec.idempotency_key.empty()) return LoadOnce(spec, progress, done);
    WhenModels([this, spec, progress, done] {
      if (draining_) {
        return done(Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down"));
      }
      const absl::StatusOr<Instance*> ensured = EnsureInstance(spec, true);
      if (!ensured.ok()) return done(ensured.status());
      Instance& instance = **ensured;
      if (spec.keep_alive_s) instance.keep_alive = std::chrono::seconds(*spec.keep_alive_s);
      instance.last_used = Now();
      const auto finish = [this, id = instance.info.id, done](absl::Status status) {
        if (!status.ok()) return done(status);
        const Instance* loaded = Find(id);
        done(LoadResult{id, loaded->plan, loaded->measured});
      };
      if (instance.info.state == InstanceState::kReady) return finish(absl::OkStatus());
      if (progress) instance.progress_watchers.push_back(progress);
      instance.ready_waiters.push_back(finish);
    });
  });
}

void CoreImpl::UnloadModel(std::string name, std::optional<std::chrono::milliseconds> drain,
                           Callback<std::vector<std::string>> done) {
  Post([this, name = std::move(name), drain, done = std::move(done)] {
    WhenModels([this, name, drain, done] {
      std::vector<std::string> ids;
      for (const auto& [id, instance] : instances_) {
        if (id == name || instance->info.model == name) ids.push_back(id);
      }
      if (ids.empty()) {
        if (models_.count(name) > 0) return done(ids);  // known and not loaded: nothing to do
        return done(Error(absl::StatusCode::kNotFound, Reason::kInstanceNotFound,
                          "nothing loaded is called " + name.substr(0, 200),
                          "`rumbo ps` lists what is loaded."));
      }
      const auto left = std::make_shared<size_t>(ids.size());
      for (const std::string& id : ids) {
        removal_waiters_[id].push_back([left, done, ids] {
          if (--*left == 0) done(ids);
        });
        LeasesLost(*Find(id), "unloaded", false);
        StopInstance(*Find(id), "unloaded",
                     Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped, "the model was unloaded",
                           "Send the request again to load it anew."),
                     drain.value_or(options_.drain));
      }
    });
  });
}

void CoreImpl::WithEngine(LoadSpec spec, ClientIdentity, TimePoint deadline, Callback<ReadyEngine> done) {
  Post([this, spec = std::move(spec), deadline, done = std::move(done)] {
    WhenModels([this, spec, deadline, done] {
      if (draining_) {
        return done(Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down"));
      }
      const absl::StatusOr<Instance*> ensured = EnsureInstance(spec, false);
      if (!ensured.ok()) return done(ensured.status());
      const std::string id = (*ensured)->info.id;
      const auto answered = std::make_shared<bool>(false);
      const auto finish = [this, id, done, answered](absl::Status status) {
        if (std::exchange(*answered, true)) return;
        Instance* instance = Find(id);
        if (status.ok() && (instance == nullptr || !instance->engine)) {
          status = Error(absl::StatusCode::kUnavailable, Reason::kInstanceStopped,
                         "the model was unloaded meanwhile", "Try again.");
        }
        if (!status.ok()) return done(status);
        ++instance->borrowed;
        instance->last_used = Now();
        // Gives the instance back when the last user lets go, on whatever thread.
        std::shared_ptr<Engine> lent(instance->engine.get(),
                                     [this, door = door(), keep = instance->engine, id](Engine*) {
                                       door.Post([this, id] {
                                         Instance* back = Find(id);
                                         if (back == nullptr) return;
                                         --back->borrowed;
                                         back->last_used = Now();
                                         Rested(*back);
                                       });
                                     });
        done(ReadyEngine{std::move(lent), PlacementOf(*instance, ""), instance->engine_info});
      };
      Instance& instance = **ensured;
      if (instance.info.state == InstanceState::kReady && instance.engine) return finish(absl::OkStatus());
      instance.ready_waiters.push_back(finish);
      if (deadline != TimePoint::max()) {
        PostAfter(std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - Now()),
                           std::chrono::milliseconds(0)),
                  [finish] {
                    finish(Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded,
                                 "the deadline passed while the model loaded"));
                  });
      }
    });
  });
}

// ---- Plans ----

PlanRequest CoreImpl::MakePlanRequest(const std::string& model, std::vector<PlanVariant> variants,
                                      const Workload& workload, const Contract& contract,
                                      const PlanOverrides& overrides) const {
  PlanRequest request;
  request.model = model;
  request.variants = std::move(variants);
  request.workload = workload;
  request.contract = contract;
  request.overrides = overrides;
  request.ledger = ledger_.Snapshot();
  request.installed = parts_.engines;
  if (!options_.cache_dir.empty()) request.disk_cache = options_.disk_cache_bytes;
  const auto draft = models_.find(overrides.draft_model);
  if (draft != models_.end() && !draft->second.variants.empty())
    request.draft = &draft->second.variants.front().descriptor;
  return request;
}

void CoreImpl::PlanWith(PlanQuery query, std::vector<PlanVariant> variants, Callback<Plan> done) {
  if (!query.hardware.empty()) {
    const auto profile = parts_.topology->Profile(query.hardware);
    if (!profile.ok()) return done(profile.status());
    Ledger ledger;
    ledger.SetTopology(*profile);
    PlanRequest request =
        MakePlanRequest(query.model, std::move(variants), query.workload, query.contract, query.overrides);
    request.ledger = ledger.Snapshot();
    request.assume_installed = true;
    request.system = query.system;
    return done(rumbo::MakePlan(request, *profile, *parts_.catalog, calibration_));
  }
  WhenTopology([this, query, variants = std::move(variants), done](absl::Status status) mutable {
    if (!status.ok()) return done(status);
    RefreshMemory();
    PlanRequest request =
        MakePlanRequest(query.model, std::move(variants), query.workload, query.contract, query.overrides);
    request.evictable = Evictable(nullptr, false);
    request.system = query.system;
    done(rumbo::MakePlan(request, *topology_, *parts_.catalog, calibration_));
  });
}

void CoreImpl::MakePlan(PlanQuery query, Callback<Plan> done) {
  Post([this, query = std::move(query), done = std::move(done)] {
    WhenModels([this, query, done] {
      if (query.overrides.engine == "fake") return PlanWith(query, {}, done);
      const auto model = FindModel(query.model);
      if (model.ok()) {
        std::vector<PlanVariant> variants;
        for (const StoredVariant& v : (*model)->variants) variants.push_back({v.id, v.descriptor, v.sha256});
        return PlanWith(query, std::move(variants), done);
      }
      if (query.model.empty() || query.model.front() != '/') return done(model.status());
      parts_.inspector->Inspect(
          query.model, [this, door = door(), query, done](absl::StatusOr<ModelDescriptor> descriptor) {
            door.Post([this, query, done, descriptor = std::move(descriptor)] {
              if (!descriptor.ok()) return done(descriptor.status());
              PlanWith(query, {PlanVariant{"default", *descriptor, ""}}, done);
            });
          });
    });
  });
}

void CoreImpl::MakePlans(std::vector<PlanQuery> queries, Callback<std::vector<Plan>> done) {
  Post([this, queries = std::move(queries), done = std::move(done)] {
    WhenModels([this, queries, done] {
      std::vector<PlanRequest> requests;
      for (const PlanQuery& query : queries) {
        if (query.overrides.engine != "fake") {
          if (const auto model = FindModel(query.model); !model.ok()) return done(model.status());
        }
        requests.push_back(MakePlanRequest(query.model, VariantsOf(query.model), query.workload,
                                           query.contract, query.overrides));
        requests.back().system = query.system;
      }
      const auto answer = [this, done](std::vector<PlanRequest> all, const Topology& machine) {
        std::vector<Plan> plans;
        for (absl::StatusOr<Plan>& plan : PlanTogether(all, machine, *parts_.catalog, calibration_)) {
          if (!plan.ok()) return done(plan.status());
          plans.push_back(std::move(*plan));
        }
        done(std::move(plans));
      };
      if (!queries.empty() && !queries.front().hardware.empty()) {
        const auto profile = parts_.topology->Profile(queries.front().hardware);
        if (!profile.ok()) return done(profile.status());
        Ledger ledger;
        ledger.SetTopology(*profile);
        for (PlanRequest& request : requests) {
          request.ledger = ledger.Snapshot();
          request.assume_installed = true;
        }
        return answer(std::move(requests), *profile);
      }
      WhenTopology([this, requests = std::move(requests), done, answer](absl::Status status) mutable {
        if (!status.ok()) return done(status);
        RefreshMemory();
        for (PlanRequest& request : requests) {
          request.ledger = ledger_.Snapshot();
          request.evictable = Evictable(nullptr, false);
        }
        answer(std::move(requests), *topology_);
      });
    });
  });
}

void CoreImpl::Explain(std::string id, Callback<Explanation> done) {
  Post([this, id = std::move(id), done = std::move(done)] {
    std::string instance_id = id;
    if (const auto it = request_instance_.find(id); it != request_instance_.end()) instance_id = it->second;
    for (const auto& [request, instance] : history_) {
      if (request == id) instance_id = instance;
    }
    for (const auto& [other, instance] : instances_) {
      if (instance->info.model == id) instance_id = other;
    }
    const Instance* instance = Find(instance_id);
    if (instance == nullptr) {
      return done(Error(absl::StatusCode::kNotFound, Reason::kInstanceNotFound,
                        "no loaded instance or recent request is called " + id.substr(0, 200),
                        "`rumbo ps` lists instances."));
    }
    done(Explanation{instance_id, instance->info.model, instance->plan, instance->measured});
  });
}

void CoreImpl::Advise(AdviceQuery query, Callback<std::vector<AdviceRow>> done) {
  Post([this, query = std::move(query), done = std::move(done)] {
    WhenModels([this, query, done] {
      std::vector<PlanRequest> requests;
      for (const std::string& name : query.models) {
        const auto model = FindModel(name);
        if (!model.ok()) return done(model.status());
        std::vector<PlanVariant> variants;
        for (const StoredVariant& v : (*model)->variants) variants.push_back({v.id, v.descriptor, v.sha256});
        requests.push_back(MakePlanRequest(name, std::move(variants), query.workload, query.contract, {}));
        requests.back().assume_installed = true;
        requests.back().system = query.system;
      }
      std::vector<Topology> machines;
      for (const std::string& name : parts_.topology->ProfileNames()) {
        if (auto profile = parts_.topology->Profile(name); profile.ok())
          machines.push_back(std::move(*profile));
      }
      done(AdviseOver(requests, machines, *parts_.catalog, calibration_, {query.currency, query.budget}));
    });
  });
}

// ---- Machine, instances, status ----

void CoreImpl::GetTopology(std::string hardware, bool refresh, Callback<Topology> done) {
  Post([this, hardware = std::move(hardware), refresh, done = std::move(done)] {
    if (!hardware.empty()) return done(parts_.topology->Profile(hardware));
    const auto answer = [this, done](absl::Status status) {
      if (!topology_) return done(status.ok() ? Internal("no topology") : status);
      RefreshMemory();
      done(*topology_);
    };
    if (!refresh) return WhenTopology(answer);
    topology_waiters_.push_back(answer);
    StartProbe();
  });
}

void CoreImpl::GetLoads(Callback<std::vector<DeviceLoad>> done) {
  Post([this, done = std::move(done)] { done(parts_.topology->Loads()); });
}

void CoreImpl::ListInstances(Callback<std::vector<InstanceInfo>> done) {
  Post([this, done = std::move(done)] {
    std::vector<InstanceInfo> out;
    for (const auto& [id, instance] : instances_) {
      InstanceInfo info = instance->info;
      info.queue = instance->queue.size();
      info.running = instance->running.size();
      for (const auto& [request_id, request] : instance->running) info.generated_tokens += request->tokens();
      out.push_back(std::move(info));
    }
    done(std::move(out));
  });
}

std::shared_ptr<void> CoreImpl::WatchInstances(std::function<void(const InstanceInfo&, bool)> on_change) {
  const auto number = std::make_shared<uint64_t>(0);
  Post([this, number, on_change = std::move(on_change)] {
    *number = next_watcher_++;
    watchers_[*number] = on_change;
    for (const auto& [id, instance] : instances_) on_change(instance->info, true);
  });
  return std::shared_ptr<void>(number.get(), [this, door = door(), number](void*) {
    if (door.executor->IsCurrent() && !door.alive.expired()) watchers_.erase(*number);
    door.Post([this, number] { watchers_.erase(*number); });  // may come before the watch began
  });
}

void CoreImpl::GetEngineStats(TimePoint deadline, Callback<std::map<std::string, EngineStats>> done) {
  struct Gathered {
    std::map<std::string, EngineStats> stats;
    size_t missing = 0;
    Callback<std::map<std::string, EngineStats>> done;
  };
  Post([this, deadline, done = std::move(done)]() mutable {
    const auto gathered = std::make_shared<Gathered>();
    gathered->done = std::move(done);
    std::vector<std::pair<std::string, std::shared_ptr<Engine>>> asked;
    for (const auto& [id, instance] : instances_) {
      if (instance->engine && !instance->stopping) asked.emplace_back(id, instance->engine);
    }
    gathered->missing = asked.size();
    if (asked.empty()) return gathered->done(std::move(gathered->stats));
    for (const auto& [id, engine] : asked) {
      engine->GetStats(deadline, [door = door(), gathered, id = id](absl::StatusOr<EngineStats> stats) {
        door.Post([gathered, id, stats = std::move(stats)] {
          if (stats.ok()) gathered->stats[id] = *stats;
          if (--gathered->missing == 0) gathered->done(std::move(gathered->stats));
        });
      });
    }
  });
}

void CoreImpl::ListRequests(uint64_t after, Callback<std::vector<RequestRecord>> done) {
  Post([this, after, done = std::move(done)] { done(request_log_.After(after)); });
}

void CoreImpl::ListProfiles(Callback<std::vector<ProfileInfo>> done) {
  Post([this, done = std::move(done)] {
    std::vector<ProfileInfo> out;
    for (const std::string& name : parts_.topology->ProfileNames()) {
      const auto profile = parts_.topology->Profile(name);
      if (profile.ok()) out.push_back({name, profile->name, profile->system});
    }
    done(std::move(out));
  });
}

void CoreImpl::SetOptions(CoreOptions options) {
  Post([this, options = std::move(options)] {
    const auto old = options_.keep_alive;
    const std::string cache_dir = options_.cache_dir;
    options_ = options;
    options_.cache_dir = cache_dir;
    for (const auto& [id, instance] : instances_) {
      if (instance->keep_alive != old || instance->spec.keep_alive_s) continue;  // it was told another time
      instance->keep_alive = options_.keep_alive;
      if (instance->idle() && !instance->stopping) ArmKeepAlive(*instance);
    }
    CheckPower();
  });
}

void CoreImpl::GetStatus(Callback<CoreStatus> done) {
  Post([this, done = std::move(done)] {
    CoreStatus status;
    status.draining = draining_;
    status.instances = instances_.size();
    status.queued_requests = queued_;
    status.running_requests = request_instance_.size() - queued_;
    status.finished_requests = finished_requests_;
    status.generated_tokens = generated_tokens_;
    status.prompt_tokens = prompt_tokens_;
    status.engines = parts_.engines;
    done(std::move(status));
  });
}

void CoreImpl::Drain(std::chrono::milliseconds limit, std::function<void()> done) {
  Post([this, limit, done = std::move(done)] {
    draining_ = true;
    for (const auto& [number, lease] : std::exchange(leases_, {})) {
      if (lease->on_end)
        lease->on_end(
            Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down"));
    }
    const auto once = std::make_shared<bool>(false);
    const auto finish = [this, done, once] {
      if (std::exchange(*once, true)) return;
      StopEverything();
      done();
    };
    drain_waiters_.push_back(finish);
    PostAfter(limit, finish);
    CheckDrained();
  });
}

// Whoever still waits for anything hears so.
void CoreImpl::StopEverything() {
  const absl::Status end =
      RetryableError(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down",
                     "Try again in a moment.", std::chrono::seconds(2));
  std::vector<std::string> ids;
  for (const auto& [id, instance] : instances_) ids.push_back(id);
  for (const std::string& id : ids) {
    Instance* instance = Find(id);
    if (instance == nullptr) continue;
    StopInstance(*instance, "the daemon is shutting down", end, std::chrono::milliseconds(0));
    KillProcess(*instance);  // one that was draining at its leisure
  }
}

}  // namespace rumbo
