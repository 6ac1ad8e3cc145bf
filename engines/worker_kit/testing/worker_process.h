#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rumbo/engine/v1/engine.grpc.pb.h"

namespace rumbo {

// A worker program started as the daemon starts it, for tests and benchmarks: one socketpair, one channel.
// Single-threaded. Destroying it closes the socket, kills the process and reaps it.
class WorkerProcess {
 public:
  using Stub = engine::v1::EngineService::Stub;

  // `environment` ("KEY=value") is added to ours. With `stderr_path` the program's stderr goes to that file.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(
      const std::string& program, const std::vector<std::string>& environment = {},
      const std::string& stderr_path = "");
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  Stub& stub() { return *stub_; }
  pid_t pid() const { return pid_; }

  // Loads, ignoring progress. Returns what was loaded or the error.
  absl::StatusOr<engine::v1::LoadedInfo> Load(const engine::v1::LoadRequest& request);

  // Closes our end, as a dying daemon does.
  void CloseSocket();
  // Waits for the process to end; its wait status. Waits at most ten seconds (kDeadlineExceeded).
  absl::StatusOr<int> WaitExit();

 private:
  WorkerProcess() = default;

  pid_t pid_ = -1;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
};

// One answer read to its end.
struct CollectedAnswer {
  grpc::Status status;
  std::string text;
  std::string reasoning;
  std::vector<v1::TokenLogprob> logprobs;
  std::vector<v1::ToolCallDelta> tool_calls;
  v1::Started started;
  v1::Finished finished;
  int started_count = 0;
  int finished_count = 0;
  int chunks = 0;
  uint32_t tokens = 0;
};

CollectedAnswer Collect(WorkerProcess::Stub& stub, const engine::v1::GenerateRequest& request);

}  // namespace rumbo
