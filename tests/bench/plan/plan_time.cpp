// bench-plan-time: how long one plan takes, and a sweep of every profile; medians, in Markdown. Exit 1 above
// the budget (5 ms for one plan, 200 ms for 40 profiles). usage: bench-plan-time [ROUNDS]

#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/os/files.h"
#include "base/status.h"
#include "daemon/core/calibration.h"
#include "daemon/core/plan_advice.h"
#include "devices/profiles/profile.h"
#include "engines/api/catalog.h"
#include "tests/bench/plan/child.h"
#include "tests/bench/plan/gguf_shapes.h"

namespace rumbo::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Ms(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

// Processor time of this thread: a plan is one thread's work, and the machine may be busy.
double ThreadMs() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

// Processor time of the process; a sweep on N processors takes at least this divided by N.
double ProcessMs() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  char name[] = "/tmp/rumbo-shapes-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  std::vector<Topology> machines;
  for (const std::string& profile : ListProfiles()) {
    auto machine = LoadProfile(profile);
    if (machine.ok()) machines.push_back(*std::move(machine));
  }
  if (machines.empty()) throw std::runtime_error("no profiles found");
  const EngineCatalog& catalog = BuiltInCatalog();
  double worst_plan = 0, worst_sweep = 0;
  std::vector<double> all;
  std::printf(
      "| model | one plan, median over profiles, ms | slowest, ms | on | sweep of %zu profiles, wall ms | "
      "per 40 profiles, wall ms | the same, processor ms / 2 |\n|---|---|---|---|---|---|---|\n",
      machines.size());
  for (const ShapeInfo& shape : Shapes()) {
    const std::string path = folder + "/" + shape.name + ".gguf";
    if (!WriteShape(shape.name, path).ok()) throw std::runtime_error("cannot write " + shape.name);
    const auto d = DescriptorFromJson(RunProgram({ExecutableDir() + "/rumbo-inspect", path}, ""));
    if (!d.ok()) throw std::runtime_error(MessageOf(d.status()));
    PlanRequest r;
    r.model = shape.name;
    r.variants.push_back({"default", *d, ""});
    r.assume_installed = true;
    std::vector<double> plans, sweeps;
    double slowest = 0;
    std::string where;
    for (const Topology& machine : machines) {
      std::vector<double> times;
      for (int i = 0; i < rounds; ++i) {
        const double start = ThreadMs();
        const auto plan = MakePlan(r, machine, catalog, Calibration{});
        times.push_back(ThreadMs() - start);
        if (!plan.ok()) throw std::runtime_error(MessageOf(plan.status()));
      }
      const double ms = Median(times);
      plans.push_back(ms);
      if (ms > slowest) slowest = ms, where = machine.source;
    }
    std::vector<double> processor;
    for (int i = 0; i < rounds; ++i) {
      const auto start = Clock::now();
      const double used = ProcessMs();
      AdviseOver({r}, machines, catalog, Calibration{}, {});
      sweeps.push_back(Ms(start));
      processor.push_back((ProcessMs() - used) / 2);
    }
    const double sweep = Median(sweeps), scale = 40 / static_cast<double>(machines.size());
    std::printf("| %s | %.2f | %.2f | %s | %.0f | %.0f | %.0f |\n", shape.name.c_str(), Median(plans),
                slowest, where.c_str(), sweep, sweep * scale, Median(processor) * scale);
    worst_plan = std::max(worst_plan, slowest);
    worst_sweep = std::max(worst_sweep, Median(processor) * scale);
    all.insert(all.end(), plans.begin(), plans.end());
  }
  std::filesystem::remove_all(folder);
  std::printf(
      "\nmedian plan %.2f ms, slowest plan %.2f ms (budget 5), slowest sweep of 40 on two processors %.0f ms "
      "(budget 200)\n",
      Median(all), worst_plan, worst_sweep);
  return worst_plan <= 5 && worst_sweep <= 200 ? 0 : 1;
}

}  // namespace
}  // namespace rumbo::bench

int main(int argc, char** argv) {
  try {
    return rumbo::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench-plan-time: %s\n", e.what());
    return 2;
  }
}
