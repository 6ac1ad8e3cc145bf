#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace rumbo {

// The one mapping between our errors and gRPC's. The code is the same number; reason, next step and retry
// time travel as google.rpc.ErrorInfo (domain "rumbo") and google.rpc.RetryInfo in the status details. The
// message is made valid UTF-8 and cut to 4,096 bytes.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The inverse. A status without our details keeps its code and message and has Reason::kUnspecified.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace rumbo
