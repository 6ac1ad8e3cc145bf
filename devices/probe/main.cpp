// rumbo-probe: prints what this machine (or a captured tree) has, as one JSON document. Short-lived and
// expendable: rumbod starts it, reads its output under a deadline, and survives whatever happens to it.
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "devices/api/topology_json.h"
#include "devices/assemble/assemble.h"
#include "devices/assemble/host.h"
#include "devices/cpu/bandwidth.h"
#include "devices/cpu/host_probe.h"
#include "devices/sys/root.h"

namespace rumbo {
namespace {

constexpr std::string_view kUsage =
    "usage: rumbo-probe --json [--root DIR] [--cache-dir DIR] [--measure-cpu]\n"
    "  --json         print the topology as JSON\n"
    "  --root DIR     read DIR/sys, DIR/proc and DIR/dev instead of this machine's\n"
    "  --cache-dir D  keep and reuse measurements in D\n"
    "  --measure-cpu  measure memory bandwidth (about 100 ms of all CPUs) unless the cache has it\n";

struct Options {
  std::string root = "/";
  std::string cache_dir;
  bool json = false;
  bool measure_cpu = false;
};

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
    if (arg == "--json") out.json = true;
    else if (arg == "--measure-cpu") out.measure_cpu = true;
    else if (arg == "--root") ok = value(out.root);
    else if (arg == "--cache-dir") ok = value(out.cache_dir);
    else ok = false;
    if (!ok) {
      std::fprintf(stderr, "rumbo-probe: bad argument '%s'\n%s", argv[i], kUsage.data());
      return false;
    }
  }
  if (!out.json) std::fputs(kUsage.data(), stderr);
  return out.json;
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

int Main(int argc, char** argv) {
  Options options;
  if (!ParseOptions(argc, argv, options)) return 2;
  const Root root(options.root);
  if (!root.Exists("/")) {
    std::fprintf(stderr, "rumbo-probe: there is no folder '%s'\n", options.root.c_str());
    return 2;
  }
  Facts facts;
  facts.host = ReadHost(root);
  AddCpuBandwidth(options, root, facts);
  const std::string out = TopologyToJson(Assemble(facts)) + "\n";
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) return 1;
  return 0;
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) { return rumbo::Main(argc, argv); }
