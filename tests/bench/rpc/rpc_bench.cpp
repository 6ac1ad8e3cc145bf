// rumbo-rpc-bench SOCKET DAEMON_PID: what the daemon costs over gRPC with the fake engine, which must be
// loaded as "fake". Prints "name<TAB>value<TAB>limit" lines; limits are those of docs/benchmarks.md.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rumbo/v1/inference.grpc.pb.h"

namespace {

using rumbo::v1::GenerateRequest;
using rumbo::v1::GenerateResponse;
using rumbo::v1::InferenceService;
using Steady = std::chrono::steady_clock;

// User and system time of a process, seconds.
double CpuSeconds(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text = text.substr(text.rfind(") ") + 2);
  std::vector<std::string> fields;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    fields.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return (std::stod(fields[11]) + std::stod(fields[12])) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double RssMb(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  long total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGE_SIZE)) / 1e6;
}

struct Batch {
  std::mutex mutex;
  std::condition_variable changed;
  int open = 0, begun = 0, failed = 0;
  uint64_t tokens = 0;
};

class Call final : public grpc::ClientReadReactor<GenerateResponse> {
 public:
  Call(InferenceService::Stub* stub, Batch* batch, uint32_t tokens, const std::string& prompt)
      : batch_(batch), start_(Steady::now()) {
    request_.set_model("fake");
    request_.set_prompt(prompt);
    request_.mutable_sampling()->set_max_tokens(tokens);
    request_.mutable_sampling()->set_ignore_eos(true);
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  double first_ms() const { return first_ms_; }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_chunk()) {
      if (first_ms_ < 0) {
        first_ms_ = std::chrono::duration<double, std::milli>(Steady::now() - start_).count();
        std::lock_guard lock(batch_->mutex);
        ++batch_->begun;
        batch_->changed.notify_all();
      }
      tokens_ += response_.chunk().tokens();
    }
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(batch_->mutex);
    --batch_->open;
    batch_->tokens += tokens_;
    if (!status.ok()) ++batch_->failed;
    batch_->changed.notify_all();
  }

 private:
  Batch* const batch_;
  const Steady::time_point start_;
  grpc::ClientContext context_;
  GenerateRequest request_;
  GenerateResponse response_;
  uint64_t tokens_ = 0;
  double first_ms_ = -1;
};

// Runs `count` calls at once to their end.
std::vector<std::unique_ptr<Call>> Run(InferenceService::Stub* stub, Batch* batch, int count, uint32_t tokens,
                                       const std::string& prompt = "hello") {
  batch->open = count;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < count; ++i) calls.push_back(std::make_unique<Call>(stub, batch, tokens, prompt));
  std::unique_lock lock(batch->mutex);
  batch->changed.wait(lock, [&] { return batch->open == 0; });
  return calls;
}

void Print(const char* name, double value, double limit) {
  std::printf("%s\t%.2f\t%g\n", name, value, limit);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: rumbo-rpc-bench SOCKET DAEMON_PID\n");
    return 2;
  }
  const int pid = std::atoi(argv[2]);
  grpc::ChannelArguments args;
  args.SetInt("grpc.http2.bdp_probe", 0);
  auto channel =
      grpc::CreateCustomChannel(std::string("unix:") + argv[1], grpc::InsecureChannelCredentials(), args);
  auto stub = InferenceService::NewStub(channel);
  Batch batch;
  Run(stub.get(), &batch, 16, 500);

  batch.tokens = 0;
  double before = CpuSeconds(pid);
  for (int i = 0; i < 10; ++i) Run(stub.get(), &batch, 16, 4000);
  Print("gRPC: daemon CPU per streamed token, 16 streams, us",
        (CpuSeconds(pid) - before) / static_cast<double>(batch.tokens) * 1e6, 12);

  before = CpuSeconds(pid);
  constexpr int kRequests = 4000;
  for (int i = 0; i < kRequests / 16; ++i) Run(stub.get(), &batch, 16, 1);
  Print("gRPC: daemon CPU per request, us", (CpuSeconds(pid) - before) / kRequests * 1e6, 200);

  std::vector<double> first;
  for (int i = 0; i < 500; ++i) first.push_back(Run(stub.get(), &batch, 1, 1)[0]->first_ms());
  std::nth_element(first.begin(), first.begin() + 250, first.end());
  Print("gRPC: request to first token with a fake engine, ms, p50", first[250], 0.4);

  // So many streams open at once: queued or running, none refused, all finish.
  before = RssMb(pid);
  batch.failed = 0;
  Run(stub.get(), &batch, 2000, 20);
  Print("2,000 streams at once: daemon RSS, MB", RssMb(pid), 300);
  Print("2,000 streams at once: failed", batch.failed, 0);
  return batch.failed > 0;
}
