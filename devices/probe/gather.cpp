#include "devices/probe/gather.h"

#include <fmt/format.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "devices/api/steering.h"
#include "devices/nvidia/nvidia_text.h"
#include "devices/probe/child.h"

namespace rumbo {
namespace {

using Time = std::chrono::steady_clock;

// A reader's answer, shared with a thread that may outlive our patience.
struct Slot {
  std::mutex mutex;
  std::condition_variable ready;
  Probe::Apply apply;
  bool done = false;
};

// Everything a stuck reader may still touch, so that it is never freed under it.
struct Shared {
  Root root;
  std::vector<PciFunction> functions;
};

std::shared_ptr<Slot> Start(tbb::task_arena& arena, const Probe& probe,
                            std::shared_ptr<const Shared> shared) {
  auto slot = std::make_shared<Slot>();
  arena.enqueue([slot, shared, &probe] {
    Probe::Apply apply = probe.Read(shared->root, shared->functions);
    const std::lock_guard lock(slot->mutex);
    slot->apply = std::move(apply);
    slot->done = true;
    slot->ready.notify_all();
  });
  return slot;
}

// False where the reader did not answer in time.
bool Collect(Slot& slot, Time::time_point deadline, const Probe& probe, Facts& facts) {
  std::unique_lock lock(slot.mutex);
  if (!slot.ready.wait_until(lock, deadline, [&] { return slot.done; })) {
    facts.findings.push_back(
        {Severity::kWarning, "probe.late", "",
         fmt::format("Reading {} took too long, so its facts are missing.", probe.name()),
         "Look for a hung driver in dmesg, then run rumbo doctor again."});
    return false;
  }
  slot.apply(facts);
  return true;
}

template <typename T>
T Parse(const char* name, const ProbeChild::Outcome& outcome, Facts& facts) {
  T out;
  if (outcome.ok) {
    auto parsed = json_fields::FromJson<T>(outcome.output, name, "");
    if (parsed.ok()) return std::move(parsed).value();
    out.error = MessageOf(parsed.status());
  } else {
    out.error = outcome.error;
  }
  facts.findings.push_back({Severity::kWarning, fmt::format("probe.{}_failed", name), "",
                            fmt::format("Asking {} failed: {}. Its devices may be missing.", name, out.error),
                            "Reinstall or update that driver's user-space part."});
  return out;
}

bool HasNvidia(const Root& root, const Facts& facts) {
  for (const PciFunction& f : facts.pci) {
    if (f.vendor == 0x10deu) return true;
  }
  return facts.host.wsl || root.Exists("/proc/driver/nvidia");
}

// NVML first; where it fails nvidia-smi, then /proc.
void AddNvidia(const Root& root, ProbeChild* nvml, Time::time_point deadline, Facts& facts) {
  facts.nvidia_node = root.Access("/dev/nvidiactl");
  std::string error;
  if (nvml != nullptr) {
    facts.nvidia = Parse<NvidiaFacts>("nvml", nvml->Finish(deadline), facts);
    error = facts.nvidia->error;
    if (error.empty()) return;
    if (HasNvidia(root, facts)) {
      const ProbeChild::Outcome smi = ProbeChild({"nvidia-smi", "-q", "-x"}).Finish(deadline);
      if (smi.ok) facts.nvidia = ParseNvidiaSmi(smi.output);
    }
  }
  if (!facts.nvidia || facts.nvidia->gpus.empty()) {
    NvidiaFacts proc = ReadNvidiaProc(root);
    if (nvml != nullptr || !proc.gpus.empty()) facts.nvidia = std::move(proc);
  }
  if (facts.nvidia) facts.nvidia->error = error;
}

void AddEnvironment(Facts& facts) {
  for (const char* name : kSteeringVariables) {
    if (const char* value = getenv(name)) facts.environment.emplace(name, std::string(value).substr(0, 1000));
  }
}

}  // namespace

Gathered Gather(const Root& root, const GatherOptions& options) {
  return GatherWith(root, options, PciProbe(), EnrichingProbes());
}

Gathered GatherWith(const Root& root, const GatherOptions& options, const Probe& pci,
                    const std::vector<const Probe*>& enriching) {
  const Time::time_point deadline = Time::now() + options.deadline;
  Gathered out;
  Facts& facts = out.facts;
  facts.live = root.live();
  std::unique_ptr<ProbeChild> vulkan, hip, nvml;
  if (options.vendor_libraries && root.live()) {
    const auto ask = [&](const char* name) {
      return std::make_unique<ProbeChild>(std::vector<std::string>{options.self, "--vendor", name});
    };
    vulkan = ask("vulkan"), hip = ask("hip"), nvml = ask("nvml");
  }

  const int threads = static_cast<int>(enriching.size()) + 1;
  // Readers wait for the kernel, not for a CPU: one thread each, and none can starve another.
  static const auto* limit =
      new tbb::global_control(tbb::global_control::max_allowed_parallelism, threads + 1);
  (void)limit;
  auto* arena = new tbb::task_arena(threads + 1, 1);
  auto shared = std::make_shared<Shared>(Shared{root, {}});
  if (!Collect(*Start(*arena, pci, shared), deadline, pci, facts)) out.thread_stuck = true;
  auto with_functions = std::make_shared<Shared>(Shared{root, facts.pci});
  std::vector<std::shared_ptr<Slot>> slots;
  for (const Probe* probe : enriching) slots.push_back(Start(*arena, *probe, with_functions));
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!Collect(*slots[i], deadline, *enriching[i], facts)) out.thread_stuck = true;
  }
  if (!out.thread_stuck) {
    delete arena;
  } else {
    static auto* stuck = new std::vector<tbb::task_arena*>();  // kept: a thread is still inside
    stuck->push_back(arena);
  }

  if (vulkan) facts.vulkan = Parse<VulkanFacts>("vulkan", vulkan->Finish(deadline), facts);
  if (hip) facts.hip = Parse<HipFacts>("hip", hip->Finish(deadline), facts);
  if (!facts.nvidia) AddNvidia(root, nvml.get(), deadline, facts);
  AddEnvironment(facts);
  return out;
}

}  // namespace rumbo
