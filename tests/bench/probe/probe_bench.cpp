// How long a full probe of this machine and of the largest capture takes, and what watching costs.
//   probe_bench [--captures DIR] [--watch-seconds N]
// One line per scene: name, median, best and worst in milliseconds of how many runs.
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/os/files.h"
#include "devices/api/topology_json.h"
#include "devices/assemble/assemble.h"
#include "devices/live.h"
#include "devices/probe/gather.h"

namespace rumbo {
namespace {

using Time = std::chrono::steady_clock;

double MillisOf(const std::function<void()>& work) {
  const auto start = Time::now();
  work();
  return std::chrono::duration<double, std::milli>(Time::now() - start).count();
}

void Report(const char* name, int runs, const std::function<void()>& work) {
  work();  // caches warm, as for a daemon that starts a second time
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(MillisOf(work));
  std::sort(times.begin(), times.end());
  std::printf("%-58s median %8.3f ms  best %8.3f  worst %8.3f  of %d\n", name, times[times.size() / 2],
              times.front(), times.back(), runs);
}

void RunProbe(const std::string& arguments) {
  const std::string command = ExecutableDir() + "/../bin/rumbo-probe --json " + arguments + " >/dev/null";
  if (std::system(command.c_str()) != 0) {
    std::fprintf(stderr, "failed: %s\n", command.c_str());
    std::exit(1);
  }
}

size_t Files(const std::filesystem::path& tree) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(tree)) n += entry.is_regular_file();
  return n;
}

// The tree with the most files below DIR/sysfs and DIR/kfd; "" where there is none.
std::string LargestCapture(const std::string& dir) {
  std::string largest;
  size_t most = 0;
  for (const char* kind : {"sysfs", "kfd"}) {
    const std::filesystem::path folder = dir + "/" + kind;
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& tree : std::filesystem::directory_iterator(folder)) {
      const size_t n = Files(tree.path());
      if (n > most) most = n, largest = tree.path();
    }
  }
  return largest;
}

Topology ProbeTree(const std::string& root) {
  GatherOptions options;
  options.vendor_libraries = false;
  return Assemble(Gather(Root(root), options).facts);
}

double CpuMillis() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
         (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
}

void Watch(const Topology& topology, const std::string& root, const char* name, int seconds) {
  LiveReader reader(topology, Root(root));
  Report((std::string("LiveReader::Read, ") + name).c_str(), 2000, [&] { reader.Read(); });
  if (seconds <= 0) return;
  const double before = CpuMillis();
  for (int i = 0; i < seconds; ++i) {
    reader.Read();
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  const double used = CpuMillis() - before;
  std::printf("%-58s %8.3f ms CPU in %d s at 1 Hz = %.4f %%\n", (std::string("watching, ") + name).c_str(),
              used, seconds, used / (seconds * 10.0));
}

int Main(int argc, char** argv) {
  std::string captures = std::string("../shared/captures");
  int watch_seconds = 60;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--captures") captures = argv[i + 1];
    if (std::string(argv[i]) == "--watch-seconds") watch_seconds = std::atoi(argv[i + 1]);
  }
  Report("rumbo-probe, this machine, no vendor libraries", 20, [] { RunProbe("--no-vendors"); });
  Report("rumbo-probe, this machine, with vendor libraries", 10, [] { RunProbe(""); });
  Report("readers and conclusions in one process, this machine", 50, [] { ProbeTree("/"); });
  const std::string largest = LargestCapture(captures);
  if (largest.empty()) {
    std::printf("no captures in %s: those scenes are left out\n", captures.c_str());
  } else {
    std::printf("largest capture: %s, %zu files\n", std::filesystem::path(largest).filename().c_str(),
                Files(largest));
    Report("rumbo-probe, largest capture", 20, [&] { RunProbe("--root " + largest); });
    Report("readers and conclusions in one process, largest capture", 50, [&] { ProbeTree(largest); });
    const Topology t = ProbeTree(largest);
    Report("topology to JSON and back, largest capture", 50,
           [&] { (void)TopologyFromJson(TopologyToJson(t)).ok(); });
    Watch(t, largest, "largest capture", 0);
  }
  Watch(ProbeTree("/"), "/", "this machine", watch_seconds);
  return 0;
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) { return rumbo::Main(argc, argv); }
