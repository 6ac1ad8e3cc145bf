#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>

namespace rumbo::simulation {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
}

// RUMBO_SIMULATION_SCHEDULES of them from RUMBO_SIMULATION_SEED on: to repeat one, give its seed and 1.
TEST(SimulationTest, InvariantsHoldInEverySchedule) {
  spdlog::set_level(spdlog::level::off);
  const uint64_t schedules = FromEnvironment("RUMBO_SIMULATION_SCHEDULES", 3000);
  const uint64_t first = FromEnvironment("RUMBO_SIMULATION_SEED", 1);
  Result sum;
  const auto begun = std::chrono::steady_clock::now();
  int failures = 0;
  for (uint64_t seed = first; seed < first + schedules && failures < 3; ++seed) {
    const Result result = RunSchedule(seed);
    sum.steps += result.steps;
    sum.requests += result.requests;
    sum.launches += result.launches;
    if (result.violation.empty()) continue;
    ++failures;
    ADD_FAILURE() << "RUMBO_SIMULATION_SEED=" << seed << ": " << result.violation << "\n" << result.trace;
  }
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::printf(
      "seeds %llu to %llu: %llu steps, %llu requests, %llu launches in %.1f s (%.0f schedules a minute)\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + schedules - 1),
      static_cast<unsigned long long>(sum.steps), static_cast<unsigned long long>(sum.requests),
      static_cast<unsigned long long>(sum.launches), s, static_cast<double>(schedules) * 60 / s);
  EXPECT_GT(sum.launches, schedules) << "the schedules do not do much";
}

TEST(SimulationTest, SameSeedGivesTheSameSchedule) {
  spdlog::set_level(spdlog::level::off);
  const Result a = RunSchedule(7), b = RunSchedule(7);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.requests, b.requests);
  EXPECT_EQ(a.launches, b.launches);
}

}  // namespace
}  // namespace rumbo::simulation
