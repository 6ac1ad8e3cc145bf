#include "engines/worker_kit/testing/worker_process.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "engines/worker_kit/grpc_status.h"

extern char** environ;

namespace rumbo {
namespace {

constexpr int kChildFd = 3;

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(
    const std::string& program, const std::vector<std::string>& environment, const std::string& stderr_path) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Internal("socketpair failed");
  std::vector<std::string> variables(environment);
  variables.push_back("RUMBO_ENGINE_FD=" + std::to_string(kChildFd));
  for (char** e = environ; *e != nullptr; ++e) variables.emplace_back(*e);
  std::vector<char*> envp;
  for (std::string& v : variables) envp.push_back(v.data());
  envp.push_back(nullptr);
  std::string name = program;
  char* argv[] = {name.data(), nullptr};

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kChildFd);
  if (!stderr_path.empty()) {
    posix_spawn_file_actions_addopen(&actions, 2, stderr_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess);
  const int error = posix_spawn(&worker->pid_, program.c_str(), &actions, nullptr, argv, envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    worker->pid_ = -1;
    return Error(absl::StatusCode::kNotFound, Reason::kFileNotFound, "cannot start " + program);
  }
  fcntl(ends[0], F_SETFL, fcntl(ends[0], F_GETFL) | O_NONBLOCK);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65535);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  worker->channel_ = grpc::CreateCustomInsecureChannelFromFd("worker", ends[0], arguments);
  worker->stub_ = engine::v1::EngineService::NewStub(worker->channel_);
  return worker;
}

WorkerProcess::~WorkerProcess() {
  CloseSocket();
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void WorkerProcess::CloseSocket() {
  stub_.reset();
  channel_.reset();
}

absl::StatusOr<int> WorkerProcess::WaitExit() {
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (handle < 0) return Internal("pidfd_open failed");
  pollfd poll_fd{.fd = handle, .events = POLLIN, .revents = 0};
  const int ready = poll(&poll_fd, 1, 10'000);
  close(handle);
  if (ready != 1) {
    return Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded, "the worker did not exit");
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

absl::StatusOr<engine::v1::LoadedInfo> WorkerProcess::Load(const engine::v1::LoadRequest& request) {
  grpc::ClientContext context;
  auto reader = stub_->Load(&context, request);
  engine::v1::LoadResponse response;
  engine::v1::LoadedInfo info;
  while (reader->Read(&response)) {
    if (response.has_loaded()) info = response.loaded();
  }
  RUMBO_RETURN_IF_ERROR(FromGrpcStatus(reader->Finish()));
  return info;
}

CollectedAnswer Collect(WorkerProcess::Stub& stub, const engine::v1::GenerateRequest& request) {
  CollectedAnswer answer;
  grpc::ClientContext context;
  auto reader = stub.Generate(&context, request);
  engine::v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_started()) {
      answer.started = response.started();
      ++answer.started_count;
    } else if (response.has_finished()) {
      answer.finished = response.finished();
      ++answer.finished_count;
    } else if (response.has_chunk()) {
      const auto& chunk = response.chunk();
      ++answer.chunks;
      answer.text += chunk.text();
      answer.reasoning += chunk.reasoning();
      answer.tokens += chunk.tokens();
      for (const auto& l : chunk.logprobs()) answer.logprobs.push_back(l);
      for (const auto& t : chunk.tool_calls()) answer.tool_calls.push_back(t);
    }
  }
  answer.status = reader->Finish();
  return answer;
}

}  // namespace rumbo
