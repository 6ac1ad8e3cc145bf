// The real rumbo-probe as a process, with vendor libraries that crash, hang and chatter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <map>

#include "base/status.h"
#include "devices/api/topology_json.h"
#include "devices/testing/fake_tree.h"

namespace rumbo {
namespace {

using ::testing::HasSubstr;

struct ProbeRun {
  int exit_code = -1;
  std::string output;
  double seconds = 0;
  Topology topology;
};

ProbeRun Probe(const std::string& arguments, const std::string& environment = "") {
  ProbeRun run;
  const auto start = std::chrono::steady_clock::now();
  // A patient deadline: these tests run beside others. Tests of the deadline give their own, which counts
  // last.
  const std::string patient = arguments.starts_with("--json") ? "--deadline-ms 60000 " : "";
  const std::string command =
      environment + " " + RUMBO_BIN_DIR + "/rumbo-probe " + patient + arguments + " 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[65536];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) run.output.append(buffer, n);
  const int status = pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (run.exit_code == 0) {
    auto parsed = TopologyFromJson(run.output);
    EXPECT_TRUE(parsed.ok()) << MessageOf(parsed.status());
    if (parsed.ok()) run.topology = *std::move(parsed);
  }
  return run;
}

const Finding* Find(const Topology& t, std::string_view code) {
  for (const Finding& f : t.findings) {
    if (f.code == code) return &f;
  }
  return nullptr;
}

std::string Fakes(const std::string& behaviour = "") {
  return "LD_LIBRARY_PATH=" RUMBO_FAKE_VENDOR_DIR " " + behaviour;
}

TEST(ProbeProcessTest, AnswersForThisMachine) {
  const ProbeRun run = Probe("--json --no-vendors");
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_FALSE(run.topology.devices.empty());
  EXPECT_EQ(run.topology.devices[0].id, "cpu0");
  EXPECT_GT(run.topology.FindPool("pool-system")->total_bytes.value_or(0), 0u);
  EXPECT_GE(run.topology.devices[0].threads_allowed.value_or(0), 1);
}

TEST(ProbeProcessTest, TheRealVulkanLoaderNeverMakesAGpuOfASoftwareRenderer) {
  const ProbeRun run = Probe("--json",
                             "VK_DRIVER_FILES=/usr/share/vulkan/icd.d/lvp_icd.x86_64.json "
                             "VK_ICD_FILENAMES=/usr/share/vulkan/icd.d/lvp_icd.x86_64.json");
  ASSERT_EQ(run.exit_code, 0);
  if (Find(run.topology, "vulkan.unavailable") != nullptr)
    GTEST_SKIP() << "no Vulkan loader or llvmpipe here";
  const Device* d = run.topology.FindDevice("software-llvmpipe");
  ASSERT_NE(d, nullptr);
  EXPECT_EQ(d->kind, DeviceKind::kCpu);
  EXPECT_TRUE(d->software);
  EXPECT_FALSE(d->usable);
  ASSERT_EQ(d->backends.size(), 1u);
  EXPECT_EQ(d->backends[0].name, "vulkan");
  EXPECT_FALSE(d->backends[0].usable);
  EXPECT_THAT(d->backends[0].reason, HasSubstr("software renderer, not used"));
  EXPECT_FALSE(d->backends[0].remedy.empty());
  for (const Device& other : run.topology.devices) EXPECT_NE(other.kind, DeviceKind::kGpu);
}

TEST(ProbeProcessTest, TheRealHipWithoutACardIsAFactNotAFault) {
  if (Root().Exists("/dev/kfd")) GTEST_SKIP() << "this machine has a compute driver";
  const ProbeRun run = Probe("--json");
  ASSERT_EQ(run.exit_code, 0);
  const Finding* hip = Find(run.topology, "hip.unavailable");
  ASSERT_NE(hip, nullptr);
  EXPECT_EQ(hip->severity, Severity::kInfo);
  // With Debian's libamdhip64-5: loaded and empty; without: not loadable. Never a crash, never a device.
  EXPECT_THAT(hip->text, testing::AnyOf(HasSubstr("finds no GPU"), HasSubstr("cannot be loaded")));
  EXPECT_EQ(Find(run.topology, "probe.hip_failed"), nullptr);
}

TEST(ProbeProcessTest, NoNvidiaDriverIsAFactNotAFault) {
  if (Root().Exists("/proc/driver/nvidia")) GTEST_SKIP() << "this machine has NVIDIA's driver";
  const ProbeRun run = Probe("--json");
  ASSERT_EQ(run.exit_code, 0);
  const Finding* nvml = Find(run.topology, "nvml.unavailable");
  ASSERT_NE(nvml, nullptr);
  EXPECT_EQ(nvml->severity, Severity::kInfo);
  EXPECT_THAT(nvml->text, HasSubstr("NVML unavailable: "));
  EXPECT_EQ(Find(run.topology, "probe.nvml_failed"), nullptr);
}

TEST(ProbeProcessTest, LibrariesThatAnswerAreJoined) {
  const ProbeRun run = Probe("--json", Fakes());
  ASSERT_EQ(run.exit_code, 0);
  const Device* hip = run.topology.FindDevice("gpu-0000:03:00.0");
  ASSERT_NE(hip, nullptr);
  EXPECT_EQ(hip->name, "Fake Radeon");
  EXPECT_EQ(hip->backends.at(0).version, "6.3.42134");
  EXPECT_TRUE(hip->usable);
  const Device* h200 = run.topology.FindDevice("gpu-0000:83:00.0");
  ASSERT_NE(h200, nullptr);
  EXPECT_EQ(h200->gfx_target, "sm_90");
  const MemoryPool* pool = run.topology.FindPool("pool-vram-0000:83:00.0");
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(pool->total_bytes, 150754820096u);
  EXPECT_EQ(pool->free_bytes, 150000000000u);
  EXPECT_THAT(Find(run.topology, "vulkan.unavailable")->text, HasSubstr("no Vulkan driver is installed"));
}

TEST(ProbeProcessTest, ACrashCostsOnlyItsOwnData) {
  const ProbeRun run = Probe("--json", Fakes("FAKE_VULKAN=crash"));
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_NE(Find(run.topology, "probe.vulkan_failed"), nullptr);
  EXPECT_THAT(Find(run.topology, "probe.vulkan_failed")->text, HasSubstr("crashed with signal 6"));
  EXPECT_NE(run.topology.FindDevice("gpu-0000:03:00.0"), nullptr);
  EXPECT_NE(run.topology.FindDevice("gpu-0000:83:00.0"), nullptr);
}

TEST(ProbeProcessTest, AHangIsCutAtTheDeadline) {
  const ProbeRun run = Probe("--json --deadline-ms 700", Fakes("FAKE_HIP=hang"));
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_GE(run.seconds, 0.6);
  EXPECT_LT(run.seconds, 20);  // a hang would be for ever
  ASSERT_NE(Find(run.topology, "probe.hip_failed"), nullptr);
  EXPECT_THAT(Find(run.topology, "probe.hip_failed")->text, HasSubstr("deadline"));
  EXPECT_EQ(run.topology.FindDevice("gpu-0000:03:00.0"), nullptr);
  EXPECT_NE(run.topology.FindDevice("gpu-0000:83:00.0"), nullptr);
}

TEST(CaseC04Test, AHangingVulkanIsUnavailableWithinTheDeadline) {
  const ProbeRun run = Probe("--json --deadline-ms 700", Fakes("FAKE_VULKAN=hang"));
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_LT(run.seconds, 20);
  ASSERT_NE(Find(run.topology, "vulkan.unavailable"), nullptr);
  EXPECT_THAT(Find(run.topology, "vulkan.unavailable")->text, HasSubstr("deadline"));
  EXPECT_NE(run.topology.FindDevice("gpu-0000:03:00.0"), nullptr);  // HIP's answer came
}

TEST(CaseC04Test, AMissingLoaderIsUnavailable) {
  FakeTree libraries;  // found before the real one, and no library at all
  for (const char* name : {"/libvulkan.so.1", "/libvulkan.so"}) libraries.File(name, "no library");
  const ProbeRun run = Probe("--json", "LD_LIBRARY_PATH=" + libraries.dir());
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_NE(Find(run.topology, "vulkan.unavailable"), nullptr);
  EXPECT_THAT(Find(run.topology, "vulkan.unavailable")->text, HasSubstr("Vulkan unavailable: "));
  EXPECT_EQ(run.topology.FindDevice("software-llvmpipe"), nullptr);
}

TEST(ProbeProcessTest, WhatSteersRuntimesIsReportedAndNotInherited) {
  // The fake HIP crashes where it is steered: it must never see the variable.
  const ProbeRun run = Probe("--json", Fakes("HSA_OVERRIDE_GFX_VERSION=11.0.0 HIP_VISIBLE_DEVICES=5"));
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_EQ(Find(run.topology, "probe.hip_failed"), nullptr);
  ASSERT_NE(Find(run.topology, "gpu.hsa_override"), nullptr);
  EXPECT_THAT(Find(run.topology, "gpu.hsa_override")->text, HasSubstr("HSA_OVERRIDE_GFX_VERSION=11.0.0"));
  const Device* gpu = run.topology.FindDevice("gpu-0000:03:00.0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_FALSE(gpu->backends.at(0).usable);
  EXPECT_THAT(gpu->backends.at(0).reason, HasSubstr("hidden by HIP_VISIBLE_DEVICES=5"));
}

TEST(ProbeProcessTest, ChatterOnStdoutDoesNotSpoilTheAnswer) {
  const ProbeRun run = Probe("--json", Fakes("FAKE_NVML=noise"));
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_NE(run.topology.FindDevice("gpu-0000:83:00.0"), nullptr);
}

TEST(ProbeProcessTest, VendorLibrariesSayNothingAboutATree) {
  FakeTree tree;
  const ProbeRun run = Probe("--json --root " + tree.dir(), Fakes());
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.topology.devices.size(), 1u);
}

TEST(ProbeProcessTest, BadArgumentsAreUsageErrors) {
  for (const char* arguments : {"", "--json --nope", "--json --root", "--json --root /no/such/dir",
                                "--json --deadline-ms 0", "--json --deadline-ms x", "--vendor nope"}) {
    EXPECT_EQ(Probe(arguments).exit_code, 2) << arguments;
  }
}

TEST(ProbeProcessTest, MeasuredBandwidthIsKeptInTheCache) {
  FakeTree cache;
  const ProbeRun first = Probe("--json --no-vendors --measure-cpu --cache-dir " + cache.dir());
  const ProbeRun second = Probe("--json --no-vendors --cache-dir " + cache.dir());
  ASSERT_TRUE(first.topology.devices.at(0).bandwidth_bytes_s.value.has_value());
  EXPECT_EQ(first.topology.devices.at(0).bandwidth_bytes_s.value,
            second.topology.devices.at(0).bandwidth_bytes_s.value);
  EXPECT_THAT(second.topology.devices.at(0).bandwidth_bytes_s.source, HasSubstr("measured here"));
}

TEST(ProbeProcessTest, OurKernelsRunOnTheSoftwareRendererAndAreKept) {
  FakeTree cache;
  const ProbeRun first = Probe("--json --measure --cache-dir " + cache.dir());
  ASSERT_EQ(first.exit_code, 0);
  const Device* d = first.topology.FindDevice("software-llvmpipe");
  if (d == nullptr) GTEST_SKIP() << "no Vulkan loader or llvmpipe here";
  EXPECT_EQ(Find(first.topology, "probe.measure_failed"), nullptr);
  ASSERT_TRUE(d->bandwidth_bytes_s.value.has_value());
  EXPECT_GT(*d->bandwidth_bytes_s.value, 1e8);
  EXPECT_LT(*d->bandwidth_bytes_s.value, 1e12);
  EXPECT_GT(d->fp32_flops.value.value_or(0), 1e7);
  EXPECT_THAT(d->bandwidth_bytes_s.source, HasSubstr("measured here"));
  const ProbeRun second = Probe("--json --cache-dir " + cache.dir());
  const Device* again = second.topology.FindDevice("software-llvmpipe");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->bandwidth_bytes_s.value, d->bandwidth_bytes_s.value);
}

TEST(ProbeProcessTest, AHipCopyIsTimedAndItsResultChecked) {
  const ProbeRun good = Probe("--json --measure", Fakes());
  ASSERT_EQ(good.exit_code, 0);
  const Device* d = good.topology.FindDevice("gpu-0000:03:00.0");
  ASSERT_NE(d, nullptr);
  EXPECT_GT(d->bandwidth_bytes_s.value.value_or(0), 1e9);
  EXPECT_THAT(d->bandwidth_bytes_s.source, HasSubstr("with hip"));
  EXPECT_GT(d->fp32_flops.value.value_or(0), 1e9);
  EXPECT_THAT(d->fp32_flops.source, HasSubstr("plain matrix kernel with hip"));
  const ProbeRun broken = Probe("--json --measure", Fakes("FAKE_HIP=broken"));
  EXPECT_EQ(broken.topology.FindDevice("gpu-0000:03:00.0")->bandwidth_bytes_s.value, std::nullopt);
  ASSERT_NE(Find(broken.topology, "probe.measure_failed"), nullptr);
  EXPECT_THAT(Find(broken.topology, "probe.measure_failed")->text, HasSubstr("result is wrong"));
}

TEST(ProbeProcessTest, AHipMatrixKernelThatFailsCostsItsFigureOnly) {
  for (const auto& [behaviour, why] : {std::pair("FAKE_HIP=nocompile", "does not compile"),
                                       std::pair("FAKE_HIP=wrong", "matrix kernel's result is wrong")}) {
    const ProbeRun run = Probe("--json --measure", Fakes(behaviour));
    ASSERT_EQ(run.exit_code, 0);
    const Device* d = run.topology.FindDevice("gpu-0000:03:00.0");
    ASSERT_NE(d, nullptr);
    EXPECT_TRUE(d->bandwidth_bytes_s.value.has_value()) << behaviour;
    EXPECT_EQ(d->fp32_flops.value, std::nullopt) << behaviour;
    ASSERT_NE(Find(run.topology, "probe.measure_failed"), nullptr) << behaviour;
    EXPECT_THAT(Find(run.topology, "probe.measure_failed")->text, HasSubstr(why));
  }
}

}  // namespace
}  // namespace rumbo
