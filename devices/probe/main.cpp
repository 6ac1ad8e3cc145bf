// rumbo-probe: prints what this machine (or a captured tree) has, as one JSON document. Short-lived and
// expendable: rumbod starts it, reads its output under a deadline, and survives whatever happens to it.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "devices/api/topology_json.h"
#include "devices/assemble/assemble.h"
#include "devices/assemble/host.h"
#include "devices/cpu/bandwidth.h"
#include "devices/probe/gather.h"
#include "devices/probe/measurements.h"
#include "devices/sys/root.h"
#include "devices/vendors/vendors.h"

namespace rumbo {
namespace {

constexpr std::string_view kUsage =
    "usage: rumbo-probe --json [--root DIR] [--cache-dir DIR] [--measure] [--measure-cpu] [--no-vendors]\n"
    "                   [--deadline-ms N]\n"
    "  --json         print the topology as JSON\n"
    "  --root DIR     read DIR/sys, DIR/proc and DIR/dev instead of this machine's, and what tools printed "
    "there:\n"
    "                 DIR/tools/{nvidia-smi,vulkaninfo,rocminfo,xrt-smi}.txt and rocm-smi.json\n"
    "  --cache-dir D  keep and reuse measurements in D\n"
    "  --measure-cpu  measure memory bandwidth (about 100 ms of all CPUs) unless the cache has it\n"
    "  --measure      the same, and time a copy and a matrix kernel on each GPU (seconds; keep the results "
    "with\n"
    "                 --cache-dir)\n"
    "  --no-vendors   do not ask Vulkan, HIP and NVML (they are not asked about a DIR either)\n"
    "  --deadline-ms  for everything together; what is late is left out and said (default 10000)\n";

struct Options {
  std::string root = "/";
  std::string cache_dir;
  bool json = false;
  bool measure_cpu = false;
  bool measure_gpus = false;
  std::string vendor;  // hidden: answer for one vendor library, in this process
  GatherOptions gather;
};

bool Milliseconds(int argc, char** argv, int& i, std::chrono::milliseconds& into) {
  if (i + 1 >= argc) return false;
  const auto n = ParseU64(argv[++i]);
  if (!n || *n == 0 || *n > 600000) return false;
  into = std::chrono::milliseconds(*n);
  return true;
}

// False after printing what is wrong.
bool ParseOptions(int argc, char** argv, Options& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value = [&](std::string& into) {
      if (i + 1 >= argc) return false;
      into = argv[++i];
      return !into.empty();
    };
    bool ok = true;
    if (arg == "--json")
      out.json = true;
    else if (arg == "--measure-cpu")
      out.measure_cpu = true;
    else if (arg == "--measure")
      out.measure_cpu = out.measure_gpus = true;
    else if (arg == "--root")
      ok = value(out.root);
    else if (arg == "--cache-dir")
      ok = value(out.cache_dir);
    else if (arg == "--vendor")
      ok = value(out.vendor);
    else if (arg == "--no-vendors")
      out.gather.vendor_libraries = false;
    else if (arg == "--deadline-ms")
      ok = Milliseconds(argc, argv, i, out.gather.deadline);
    else
      ok = false;
    if (!ok) {
      std::fprintf(stderr, "rumbo-probe: bad argument '%s'\n%s", argv[i], kUsage.data());
      return false;
    }
  }
  if (!out.json && out.vendor.empty()) std::fputs(kUsage.data(), stderr);
  return out.json || !out.vendor.empty();
}

void AddCpuBandwidth(const Options& options, const Root& root, Facts& facts) {
  if (!root.live()) return;
  std::string source;
  const int threads = ThreadsAllowed(facts.host, source).value_or(1);
  facts.cpu_bandwidth = LoadBandwidth(options.cache_dir, facts.host.cpu.model, threads);
  if (facts.cpu_bandwidth || !options.measure_cpu) return;
  facts.cpu_bandwidth =
      MeasureReadBandwidth(threads, facts.host.memory.available, std::chrono::milliseconds(100));
  if (!facts.cpu_bandwidth) return;
  facts.cpu_bandwidth->cpu = facts.host.cpu.model;
  StoreBandwidth(options.cache_dir, *facts.cpu_bandwidth);
}

void AddGpuMeasurements(const Options& options, const Root& root, Facts& facts) {
  if (!root.live()) return;
  facts.measured = options.measure_gpus ? MeasureGpus(options.gather.self, facts.findings)
                                        : LoadMeasurements(options.cache_dir);
  if (options.measure_gpus) StoreMeasurements(options.cache_dir, facts.measured);
}

bool Print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fputc('\n', stdout) != EOF &&
         std::fflush(stdout) == 0;
}

// Runs in a child of its own; whatever the library does to this process is contained.
int AnswerForVendor(const std::string& vendor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Libraries print to stdout when they feel like it; the answer goes where nobody else writes.
  const int out = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  std::string json;
  if (vendor == "vulkan")
    json = json_fields::ToJson(AskVulkan());
  else if (vendor == "hip")
    json = json_fields::ToJson(AskHip());
  else if (vendor == "vulkan-measure")
    json = json_fields::ToJson(MeasureVulkan());
  else if (vendor == "hip-measure")
    json = json_fields::ToJson(MeasureHip());
  else if (vendor == "nvml")
    json = json_fields::ToJson(AskNvml());
  else
    return 2;
  for (size_t done = 0; done < json.size();) {
    const ssize_t n = write(out, json.data() + done, json.size() - done);
    if (n <= 0) _exit(1);
    done += static_cast<size_t>(n);
  }
  _exit(0);  // no destructors of vendor libraries
}

int Main(int argc, char** argv) {
  Options options;
  if (!ParseOptions(argc, argv, options)) return 2;
  if (!options.vendor.empty()) return AnswerForVendor(options.vendor);
  const Root root(options.root);
  if (!root.Exists("/")) {
    std::fprintf(stderr, "rumbo-probe: there is no folder '%s'\n", options.root.c_str());
    return 2;
  }
  Gathered gathered = Gather(root, options.gather);
  AddCpuBandwidth(options, root, gathered.facts);
  AddGpuMeasurements(options, root, gathered.facts);
  const bool printed = Print(TopologyToJson(Assemble(gathered.facts)));
  if (gathered.thread_stuck) _exit(printed ? 0 : 1);
  return printed ? 0 : 1;
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) { return rumbo::Main(argc, argv); }
