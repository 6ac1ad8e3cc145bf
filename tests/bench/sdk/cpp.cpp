// bench-sdk-cpp SOCKET MODEL TOKENS: what the C++ SDK costs its process, as one JSON line.
#include <rumbo/client.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

double CpuMs() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

double NowMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto connect = [&] {
    const double begun = NowMs();
    auto client = rumbo::Client::Connect({.socket = argv[1]}).value();
    client.Status().value();
    return NowMs() - begun;
  };
  const double cold = connect();
  std::vector<double> warm;
  for (int i = 0; i < 21; ++i) warm.push_back(connect());
  std::nth_element(warm.begin(), warm.begin() + 10, warm.end());

  auto client = rumbo::Client::Connect({.socket = argv[1]}).value();
  uint32_t tokens = 0;
  const auto run = [&](uint32_t want) {
    rumbo::GenerateRequest request{.model = argv[2], .prompt = "x"};
    request.sampling.max_tokens = want;
    auto stream = client.Generate(request);
    for (const auto& chunk : stream) tokens += chunk.tokens;
    return stream.Finish().ok();
  };
  run(100);
  tokens = 0;
  const double cpu = CpuMs(), wall = NowMs();
  if (!run(static_cast<uint32_t>(std::atoi(argv[3])))) return 1;
  std::printf(
      "{\"cold_ms\": %.2f, \"warm_ms\": %.2f, \"cpu_us_per_token\": %.2f, \"wall_us_per_token\": %.2f, "
      "\"tokens\": %u}\n",
      cold, warm[10], (CpuMs() - cpu) * 1e3 / tokens, (NowMs() - wall) * 1e3 / tokens, tokens);
}
