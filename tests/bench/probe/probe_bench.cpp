// How long a full probe of this machine and of the largest capture takes, and what watching costs.
//   probe_bench [--captures DIR] [--watch-seconds N]
// One line per scene: name, median, best and worst in milliseconds of how many runs.
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <unistd.h>

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
#include "base/os/subprocess.h"
#include "devices/api/topology_json.h"
#include "devices/assemble/assemble.h"
#include "devices/live.h"
#include "devices/probe/gather.h"
#include "rumbo/v1/device.grpc.pb.h"

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

// CPU time of a process and its threads in milliseconds, without what its ended children took.
double CpuMillisOf(pid_t pid) {
  double sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    const auto stat = ReadFile(task.path().string() + "/schedstat", 4096);
    if (stat.ok()) sum += std::strtod(stat->c_str(), nullptr) / 1e6;
  }
  return sum;
}

// DeviceService.WatchDevices of a real daemon, one watcher at its default of one message a second at most;
// beside it the same daemon with nobody watching.
void WatchThroughTheDaemon(int seconds) {
  char pattern[] = "/tmp/rumbo-bench-XXXXXX";
  const std::string dir = ::mkdtemp(pattern);
  SpawnSpec spec;
  spec.argv = {ExecutableDir() + "/../bin/rumbod",
               "--http",
               "off",
               "--socket",
               dir + "/s",
               "--state-dir",
               dir + "/state",
               "--cache-dir",
               dir + "/cache",
               "--log-level",
               "error"};
  spec.env = CleanEnvironment();
  spec.isolate = false;
  auto daemon = Spawn(spec);
  auto channel = grpc::CreateChannel("unix:" + dir + "/s", grpc::InsecureChannelCredentials());
  if (!daemon.ok() ||
      !channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30))) {
    std::fprintf(stderr, "rumbod does not start: that scene is left out\n");
    if (daemon.ok()) KillTree(*daemon), Reap(*daemon);
    std::filesystem::remove_all(dir);
    return;
  }
  auto stub = v1::DeviceService::NewStub(channel);
  {
    grpc::ClientContext context;  // past the first probe
    v1::ListDevicesResponse list;
    (void)stub->ListDevices(&context, {}, &list);
  }
  const int all = seconds;
  for (const bool watched : {false, true}) {
    seconds = watched ? all : std::max(1, all / 3);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
    std::unique_ptr<grpc::ClientReader<v1::WatchDevicesResponse>> stream;
    const double before = CpuMillisOf(daemon->pid);
    int messages = 0;
    if (watched) {
      stream = stub->WatchDevices(&context, {});
      v1::WatchDevicesResponse message;
      while (stream->Read(&message)) ++messages;
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(seconds));
    }
    const double used = CpuMillisOf(daemon->pid) - before;
    std::printf("%-58s %8.3f ms CPU in %d s = %.4f %%%s\n",
                watched ? "rumbod with one WatchDevices, 1 Hz" : "rumbod with nobody watching", used, seconds,
                used / (seconds * 10.0),
                watched ? (", " + std::to_string(messages) + " messages").c_str() : "");
  }
  KillTree(*daemon);
  Reap(*daemon);
  std::filesystem::remove_all(dir);
}

int Main(int argc, char** argv) {
  std::string captures = std::string("../shared/captures");
  int watch_seconds = 60;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was measured stays where the rest is cut off
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
  if (watch_seconds > 0) WatchThroughTheDaemon(watch_seconds);
  return 0;
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) { return rumbo::Main(argc, argv); }
