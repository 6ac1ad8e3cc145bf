// The HTTP front alone, over an engine that costs nothing: what a request and a streamed token cost the
// daemon. usage: http_front [PORT]   serves the model "fake"; each line on stdin prints and resets the
// counters.
//
// One engine thread gives every open stream a token per step, as a batching engine does. Steps follow each
// other at once, or every STEP_US microseconds (environment), with max_tokens as the only end.

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "daemon/http/server.h"
#include "tests/fakes/fake_core.h"

namespace rumbo {
namespace {

class SteppingCore final : public FakeCore {
 public:
  SteppingCore() : engine_([this] { RunEngine(); }) {}
  ~SteppingCore() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    engine_.join();
  }

  std::unique_ptr<GenerateCall> Generate(InferenceRequest request,
                                         std::shared_ptr<AnswerSink> sink) override {
    auto stream = std::make_shared<Stream>();
    stream->left = request.generate.sampling.max_tokens.value_or(16);
    stream->total = stream->left;
    stream->request = std::move(request);
    stream->sink = std::move(sink);
    std::lock_guard lock(mutex_);
    added_.push_back(stream);
    changed_.notify_all();
    return std::make_unique<StreamCall>(stream);
  }

  std::atomic<uint64_t> tokens{0};
  std::atomic<uint64_t> answers{0};

 private:
  struct Stream {
    InferenceRequest request;
    std::shared_ptr<AnswerSink> sink;
    uint32_t left = 0;
    uint32_t total = 0;
    bool started = false;
    std::atomic<bool> cancelled{false};
    std::atomic<bool> paused{false};
  };
  struct StreamCall final : GenerateCall {
    explicit StreamCall(std::shared_ptr<Stream> s) : stream(std::move(s)) {}
    ~StreamCall() override { Cancel(); }
    void Cancel() override { stream->cancelled = true; }
    void Resume() override { stream->paused = false; }
    std::shared_ptr<Stream> stream;
  };

  void RunEngine() {
    const char* step = std::getenv("STEP_US");
    const std::chrono::microseconds pause(step == nullptr ? 0 : std::atoi(step));
    std::vector<std::shared_ptr<Stream>> open;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || !added_.empty() || !open.empty(); });
        if (stop_) return;
        for (auto& stream : added_) open.push_back(std::move(stream));
        added_.clear();
      }
      std::erase_if(open, [&](const auto& stream) { return Step(*stream); });
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
    }
  }

  // True: ended.
  bool Step(Stream& stream) {
    if (stream.cancelled) {
      stream.sink->OnEnd(Cancelled(), nullptr);
      return true;
    }
    if (stream.paused) return false;
    if (!stream.started) {
      Begin(stream.request, *stream.sink, 100);
      stream.started = true;
    }
    if (stream.left-- == 0) {
      End(*stream.sink, "length", 100, stream.total);
      ++answers;
      return true;
    }
    ChunkEvent chunk;
    chunk.text = " word";
    chunk.tokens = 1;
    stream.paused = true;  // first, so that an early Resume is not lost
    if (stream.sink->OnChunk(chunk)) stream.paused = false;
    ++tokens;
    return false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Stream>> added_;
  bool stop_ = false;
  std::thread engine_;
};

double CpuUs() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

long MaxRssKb() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) {
  rumbo::SteppingCore core;
  rumbo::HttpOptions options;
  options.port = static_cast<uint16_t>(argc > 1 ? std::atoi(argv[1]) : 0);
  auto server = rumbo::HttpServer::Start(options, &core);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", rumbo::MessageOf(server.status()).c_str());
    return 1;
  }
  std::printf("%s\n", (*server)->address().c_str());
  std::fflush(stdout);
  double before = rumbo::CpuUs();
  std::string line;
  while (std::getline(std::cin, line)) {
    const double now = rumbo::CpuUs();
    const uint64_t tokens = core.tokens.exchange(0);
    const uint64_t answers = core.answers.exchange(0);
    std::printf(
        "{\"answers\":%llu,\"tokens\":%llu,\"cpu_us\":%.0f,\"cpu_us_per_token\":%.2f,\"max_rss_kb\":%ld}\n",
        static_cast<unsigned long long>(answers), static_cast<unsigned long long>(tokens), now - before,
        tokens > 0 ? (now - before) / static_cast<double>(tokens) : 0.0, rumbo::MaxRssKb());
    std::fflush(stdout);
    before = now;
  }
}
