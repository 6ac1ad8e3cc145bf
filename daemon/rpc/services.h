#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "daemon/core/core.h"
#include "daemon/rpc/peers.h"
#include "daemon/rpc/server.h"

namespace rumbo {

// What every service gets. All outlive the services.
struct ServiceContext {
  Core* core;
  const PeerTable* peers;
  RpcOptions options;
  RpcHooks hooks;
};

std::unique_ptr<grpc::Service> NewInferenceService(const ServiceContext& context);
std::unique_ptr<grpc::Service> NewModelService(const ServiceContext& context);
std::unique_ptr<grpc::Service> NewPlanService(const ServiceContext& context);
std::unique_ptr<grpc::Service> NewDeviceService(const ServiceContext& context);
std::unique_ptr<grpc::Service> NewInstanceService(const ServiceContext& context);
std::unique_ptr<grpc::Service> NewAdminService(const ServiceContext& context);

// Who asks: the peer of the connection, or, for a call from another door of this daemon, whoever that door
// checked.
ClientIdentity IdentityOf(const grpc::CallbackServerContext& call, const PeerTable& peers,
                          const std::string& app);

// Whose cached prompts the call may reuse.
std::string OwnerOf(const grpc::CallbackServerContext& call, const ClientIdentity& identity);

// The call's deadline on the steady clock; max() where it has none.
TimePoint DeadlineOf(const grpc::CallbackServerContext& context);

}  // namespace rumbo
