// DeviceService, InstanceService and AdminService.
#include <grpcpp/alarm.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "base/utf8.h"
#include "daemon/rpc/engine_list.h"
#include "daemon/rpc/log_ring.h"
#include "daemon/rpc/message_stream.h"
#include "daemon/rpc/services.h"
#include "daemon/wire/convert.h"
#include "engines/worker_kit/grpc_status.h"
#include "rumbo/v1/admin.grpc.pb.h"
#include "rumbo/v1/device.grpc.pb.h"
#include "rumbo/v1/instance.grpc.pb.h"

namespace rumbo {
namespace {

using grpc::CallbackServerContext;
using std::chrono::milliseconds;

// Looks at the machine every `interval` and sends it on where something a person would see has changed.
class DeviceWatch : public std::enable_shared_from_this<DeviceWatch> {
 public:
  using Stream = MessageStream<v1::WatchDevicesResponse>;
  DeviceWatch(Core* core, milliseconds interval) : core_(core), interval_(interval) {}

  Stream* Start() {
    stream_ = Stream::Create([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->alarm_.Cancel();
    });
    Stream* const stream = stream_.get();
    Look();
    return stream;
  }

 private:
  void Look() {
    core_->GetTopology("", false, [self = shared_from_this()](absl::StatusOr<Topology> topology) {
      if (!topology.ok()) return self->stream_->End(topology.status());
      self->core_->GetLoads(
          [self, topology = *std::move(topology)](absl::StatusOr<std::vector<DeviceLoad>> loads) mutable {
            self->Tell(std::move(topology), loads.ok() ? *std::move(loads) : std::vector<DeviceLoad>());
          });
    });
  }

  void Tell(Topology topology, std::vector<DeviceLoad> loads) {
    if (Changed(topology) || Changed(loads)) {
      v1::WatchDevicesResponse message;
      ToProto(topology, message.mutable_topology());
      for (const DeviceLoad& load : loads) ToProto(load, message.add_loads());
      stream_->Push(std::move(message), true);
      last_ = std::move(topology);
      last_loads_ = std::move(loads);
    }
    alarm_.Set(std::chrono::system_clock::now() + interval_, [self = shared_from_this()](bool) {
      if (!self->stream_->gone()) self->Look();
    });
  }

  bool Changed(const std::vector<DeviceLoad>& now) const {
    if (now.size() != last_loads_.size()) return true;
    for (size_t i = 0; i < now.size(); ++i) {
      if (std::abs(now[i].busy.value_or(0) - last_loads_[i].busy.value_or(0)) > 0.05) return true;
      if (std::abs(now[i].temperature_c.value_or(0) - last_loads_[i].temperature_c.value_or(0)) > 2)
        return true;
    }
    return false;
  }

  bool Changed(const Topology& now) const {
    if (!last_ || now.devices.size() != last_->devices.size() || now.pools.size() != last_->pools.size())
      return true;
    for (size_t i = 0; i < now.devices.size(); ++i) {
      const Device &a = now.devices[i], &b = last_->devices[i];
      if (a.id != b.id || a.usable != b.usable || a.present != b.present || a.driver != b.driver ||
          a.driver_version != b.driver_version || a.reason != b.reason) {
        return true;
      }
    }
    for (size_t i = 0; i < now.pools.size(); ++i) {
      const Bytes a = now.pools[i].free_bytes.value_or(0), b = last_->pools[i].free_bytes.value_or(0);
      if ((a > b ? a - b : b - a) > now.pools[i].total_bytes.value_or(0) / 64) return true;
    }
    return false;
  }

  Core* const core_;
  const milliseconds interval_;
  std::shared_ptr<Stream> stream_;
  // Core's executor:
  std::optional<Topology> last_;
  std::vector<DeviceLoad> last_loads_;
  grpc::Alarm alarm_;
};

class DeviceService final : public v1::DeviceService::CallbackService {
 public:
  explicit DeviceService(const ServiceContext& context) : core_(context.core) {}

  grpc::ServerUnaryReactor* ListDevices(CallbackServerContext* call, const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override {
    auto* reactor = call->DefaultReactor();
    core_->GetTopology(request->hardware(), request->refresh(),
                       [reactor, response](absl::StatusOr<Topology> topology) {
                         if (topology.ok()) ToProto(*topology, response->mutable_topology());
                         reactor->Finish(ToGrpcStatus(topology.status()));
                       });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::WatchDevicesResponse>* WatchDevices(
      CallbackServerContext*, const v1::WatchDevicesRequest* request) override {
    const uint32_t asked = request->min_interval_ms() == 0 ? 1000 : request->min_interval_ms();
    return std::make_shared<DeviceWatch>(core_, milliseconds(std::max(asked, 250u)))->Start();
  }

  grpc::ServerUnaryReactor* ListProfiles(CallbackServerContext* call, const v1::ListProfilesRequest*,
                                         v1::ListProfilesResponse* response) override {
    auto* reactor = call->DefaultReactor();
    core_->ListProfiles([reactor, response](absl::StatusOr<std::vector<ProfileInfo>> profiles) {
      if (!profiles.ok()) return reactor->Finish(ToGrpcStatus(profiles.status()));
      for (const ProfileInfo& profile : *profiles) {
        v1::HardwareProfile* out = response->add_profiles();
        out->set_name(profile.name);
        out->set_title(profile.title);
        out->set_system(profile.system);
      }
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

 private:
  Core* const core_;
};

class InstanceService final : public v1::InstanceService::CallbackService {
 public:
  explicit InstanceService(const ServiceContext& context) : peers_(context.peers), core_(context.core) {}

  grpc::ServerUnaryReactor* ListInstances(CallbackServerContext* call, const v1::ListInstancesRequest*,
                                          v1::ListInstancesResponse* response) override {
    auto* reactor = call->DefaultReactor();
    core_->ListInstances([reactor, response](absl::StatusOr<std::vector<InstanceInfo>> instances) {
      for (const InstanceInfo& info : *instances) ToProto(info, response->add_instances());
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::WatchInstancesResponse>* WatchInstances(
      CallbackServerContext*, const v1::WatchInstancesRequest*) override {
    // The token ends the watch; it is dropped when the client goes.
    auto token = std::make_shared<StreamToken>();
    auto stream = MessageStream<v1::WatchInstancesResponse>::Create([token] { token->Drop(); });
    token->Set(core_->WatchInstances([stream](const InstanceInfo& info, bool initial) {
      v1::WatchInstancesResponse message;
      ToProto(info, message.mutable_instance());
      message.set_initial(initial);
      stream->Push(std::move(message));
    }));
    return stream.get();
  }

  grpc::ServerUnaryReactor* ListRequests(CallbackServerContext* call, const v1::ListRequestsRequest* request,
                                         v1::ListRequestsResponse* response) override {
    auto* reactor = call->DefaultReactor();
    core_->ListRequests(request->after(),
                        [reactor, response](absl::StatusOr<std::vector<RequestRecord>> records) {
                          if (!records.ok()) return reactor->Finish(ToGrpcStatus(records.status()));
                          for (const RequestRecord& record : *records)
                            ToProto(record, response->add_requests());
                          reactor->Finish(grpc::Status::OK);
                        });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::LeaseResponse>* Lease(CallbackServerContext* call,
                                                     const v1::LeaseRequest* request) override {
    // The token is the lease; it is dropped when the client goes or the lease has ended.
    auto held = std::make_shared<StreamToken>();
    auto stream = MessageStream<v1::LeaseResponse>::Create([held] { held->Drop(); });
    LeaseSpec spec;
    spec.model = request->model();
    spec.workload = FromProto(request->workload());
    spec.contract = FromProto(request->contract());
    spec.client = IdentityOf(*call, *peers_, request->app());
    const std::string& priority = request->priority();
    if (priority == "interactive") spec.priority = Priority::kInteractive;
    if (priority == "batch") spec.priority = Priority::kBatch;
    if (!priority.empty() && priority != "normal" && priority != "interactive" && priority != "batch") {
      stream->End(InvalidArgument("priority must be interactive, normal or batch"));
      return stream.get();
    }
    held->Set(core_->Lease(
        std::move(spec),
        [stream](const LeaseEvent& event) {
          v1::LeaseResponse message;
          message.set_event(Word(event.kind));
          message.set_instance_id(event.instance_id);
          message.set_reason(event.reason);
          stream->Push(std::move(message));
        },
        [stream, held](const absl::Status& status) {
          stream->End(status);
          held->Drop();
        }));
    return stream.get();
  }

 private:
  const PeerTable* const peers_;
  Core* const core_;
};

class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(const ServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* GetStatus(CallbackServerContext* call, const v1::GetStatusRequest*,
                                      v1::GetStatusResponse* response) override {
    auto* reactor = call->DefaultReactor();
    context_.core->GetStatus([this, reactor, response](absl::StatusOr<CoreStatus> status) {
      response->set_version(context_.options.version);
      response->add_api_versions("rumbo.v1");
      response->set_pid(::getpid());
      response->set_started_unix_s(context_.options.started_unix_s);
      response->set_http_address(context_.hooks.http_address());
      response->set_draining(status->draining);
      response->set_instances(status->instances);
      response->set_running_requests(status->running_requests);
      response->set_queued_requests(status->queued_requests);
      response->set_finished_requests(status->finished_requests);
      for (const InstalledEngine& engine : status->engines) {
        response->add_engines(engine.name + " " + engine.version +
                              (engine.build.empty() ? "" : " (" + engine.build + ")"));
      }
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Drain(CallbackServerContext* call, const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override {
    auto* reactor = call->DefaultReactor();
    const uint32_t uid = context_.peers->Find(call->peer(), "").uid;
    if (uid != ::geteuid() && uid != 0) {
      reactor->Finish(ToGrpcStatus(Error(absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied,
                                         "only the daemon's own user and root may stop it",
                                         "Ask the machine's owner: `systemctl stop rumbo`.")));
      return reactor;
    }
    context_.core->GetStatus(
        [this, reactor, response, limit = request->limit_ms()](absl::StatusOr<CoreStatus> status) {
          response->set_running_requests(status->running_requests);
          reactor->Finish(grpc::Status::OK);
          context_.hooks.drain(milliseconds(limit));
        });
    return reactor;
  }

  grpc::ServerUnaryReactor* ListEngines(CallbackServerContext* call, const v1::ListEnginesRequest* request,
                                        v1::ListEnginesResponse* response) override {
    auto* reactor = call->DefaultReactor();
    for (const CatalogEngine& engine : context_.hooks.catalog->engines) {
      if (!request->name().empty() && request->name() != engine.name) continue;
      FillEngine(engine, *context_.hooks.catalog, context_.hooks.engines, response->add_engines());
    }
    if (response->engines().empty()) {
      reactor->Finish(
          ToGrpcStatus(Error(absl::StatusCode::kNotFound, Reason::kEngineNotInstalled,
                             "the catalog has no engine \"" + EscapeForLog(request->name(), 60) + "\"",
                             "`rumbo engines` lists those it has.")));
      return reactor;
    }
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Doctor(CallbackServerContext* call, const v1::DoctorRequest*,
                                   v1::DoctorResponse* response) override {
    auto* reactor = call->DefaultReactor();
    context_.core->GetTopology("", true, [this, reactor, response](absl::StatusOr<Topology> topology) {
      std::vector<Finding> findings = context_.hooks.own_findings();
      if (topology.ok()) {
        findings.insert(findings.end(), topology->findings.begin(), topology->findings.end());
      } else {
        findings.push_back({Severity::kBroken, "probe.failed", "", MessageOf(topology.status()),
                            NextStepOf(topology.status())});
      }
      std::stable_sort(findings.begin(), findings.end(),
                       [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
      for (const Finding& finding : findings) ToProto(finding, response->add_findings());
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Reload(CallbackServerContext* call, const v1::ReloadRequest*,
                                   v1::ReloadResponse* response) override {
    auto* reactor = call->DefaultReactor();
    const auto reloaded = context_.hooks.reload();
    if (reloaded.ok()) {
      for (const std::string& name : reloaded->changed) response->add_changed(name);
      for (const std::string& name : reloaded->needs_restart) response->add_needs_restart(name);
    }
    reactor->Finish(ToGrpcStatus(reloaded.status()));
    return reactor;
  }

  grpc::ServerWriteReactor<v1::WatchLogsResponse>* WatchLogs(CallbackServerContext*,
                                                             const v1::WatchLogsRequest* request) override {
    auto token = std::make_shared<StreamToken>();
    auto stream = MessageStream<v1::WatchLogsResponse>::Create([token] { token->Drop(); });
    if (context_.hooks.logs == nullptr) {
      stream->End(Error(absl::StatusCode::kFailedPrecondition, Reason::kCapabilityMissing, "no log is kept"));
      return stream.get();
    }
    const auto push = [stream, filter = request->filter()](const std::string& line) {
      if (!filter.empty() && line.find(filter) == std::string::npos) return;
      v1::WatchLogsResponse message;
      message.set_line(line);
      stream->Push(std::move(message));
    };
    const size_t last = request->last() == 0 ? 100 : request->last();
    token->Set(context_.hooks.logs->Watch(last, request->filter(), push, request->follow()));
    if (!request->follow()) stream->End(absl::OkStatus());
    return stream.get();
  }

 private:
  const ServiceContext context_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewDeviceService(const ServiceContext& context) {
  return std::make_unique<DeviceService>(context);
}
std::unique_ptr<grpc::Service> NewInstanceService(const ServiceContext& context) {
  return std::make_unique<InstanceService>(context);
}
std::unique_ptr<grpc::Service> NewAdminService(const ServiceContext& context) {
  return std::make_unique<AdminService>(context);
}

}  // namespace rumbo
