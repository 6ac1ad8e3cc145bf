// plan-print: what the planner says, without a daemon. For looking at and for benchmarks.
// usage: plan-print PROFILE MODEL... [sessions=N] [context=N] [objective=O] [system=S] [acceptance=A]
// [engine=E] [device=D]
//   MODEL  a .gguf file or a folder; several are variants of one model

#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include "base/os/files.h"
#include "base/status.h"
#include "daemon/core/calibration.h"
#include "daemon/core/planner.h"
#include "devices/profiles/profile.h"
#include "engines/api/catalog.h"
#include "tests/bench/plan/child.h"

namespace rumbo::bench {
namespace {

std::string Text(const Predicted& p) {
  const auto number = [](const std::optional<double>& v) {
    return v ? std::to_string(*v).substr(0, 7) : std::string("unknown");
  };
  return "ttft " + number(p.ttft_ms) + " ms, decode " + number(p.decode_tok_s) + ", all " +
         number(p.aggregate_tok_s) + ", load " + number(p.load_s) + " s, J/token " +
         number(p.energy_j_per_tok);
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: plan-print PROFILE MODEL... [key=value ...]\n", stderr);
    return 2;
  }
  const auto machine = LoadProfile(argv[1]);
  if (!machine.ok()) throw std::runtime_error(MessageOf(machine.status()));
  PlanRequest r;
  r.model = "model";
  r.assume_installed = true;
  std::map<std::string, std::string> option;
  for (int i = 2; i < argc; ++i) {
    const char* equals = std::strchr(argv[i], '=');
    if (equals != nullptr) {
      option[std::string(argv[i], static_cast<size_t>(equals - argv[i]))] = equals + 1;
      continue;
    }
    const auto d = DescriptorFromJson(RunProgram({ExecutableDir() + "/rumbo-inspect", argv[i]}, ""));
    if (!d.ok()) throw std::runtime_error(MessageOf(d.status()));
    r.variants.push_back({d->format + "-" + d->quantization, *d, ""});
  }
  if (option.count("sessions")) r.workload.sessions = std::stoul(option["sessions"]);
  if (option.count("context")) r.workload.context = std::stoul(option["context"]);
  if (option.count("prompt")) r.workload.prompt_tokens = std::stoul(option["prompt"]);
  if (option.count("answer")) r.workload.answer_tokens = std::stoul(option["answer"]);
  if (option.count("acceptance")) r.workload.draft_acceptance = std::stod(option["acceptance"]);
  r.workload.objective = option["objective"];
  r.system = option["system"];
  r.overrides.engine = option["engine"];
  r.overrides.device = option["device"];
  const auto plan = MakePlan(r, *machine, BuiltInCatalog(), Calibration{});
  if (!plan.ok()) {
    std::printf("error: %s\n%s\n", MessageOf(plan.status()).c_str(), NextStepOf(plan.status()).c_str());
    return 1;
  }
  if (plan->chosen) {
    const Candidate& c = *plan->chosen;
    std::printf("CHOSEN %s %s/%s on", c.variant.c_str(), c.engine.c_str(), c.backend.c_str());
    for (const std::string& d : c.devices) std::printf(" %s", d.c_str());
    std::printf(" (%s)\n  %s\n", c.maturity.c_str(), Text(c.predicted).c_str());
    const EngineSettings& s = c.settings;
    std::printf("  sessions %u, context %u (%u each), kv %s, layers %d, mmap %d, drafts %d\n",
                s.sessions.value_or(0), s.context_total.value_or(0), s.context_per_session.value_or(0),
                s.kv_type_k.c_str(), s.gpu_layers ? static_cast<int>(*s.gpu_layers) : -1,
                s.mmap ? *s.mmap : -1, s.draft_tokens ? static_cast<int>(*s.draft_tokens) : -1);
    for (const auto& [key, value] : s.extra) std::printf("  extra %s=%s\n", key.c_str(), value.c_str());
    for (const auto& [key, value] : c.environment) std::printf("  env %s=%s\n", key.c_str(), value.c_str());
    for (const MemoryItem& m : c.memory)
      std::printf("  %s %s %s\n", m.pool.c_str(), m.what.c_str(), FormatBytes(m.bytes).c_str());
    for (const std::string& reason : c.reasons) std::printf("  - %s\n", reason.c_str());
  }
  if (plan->refusal)
    std::printf("REFUSED %s: %s\n  %s\n", std::string(ReasonCode(plan->refusal->reason_code)).c_str(),
                plan->refusal->reason.c_str(), plan->refusal->next_step.c_str());
  for (const Rejected& x : plan->rejected) {
    std::string devices;
    for (const std::string& d : x.devices) devices += " " + d;
    std::printf("rejected %s %s/%s%s: %s: %s\n", x.variant.c_str(), x.engine.c_str(), x.backend.c_str(),
                devices.c_str(), std::string(ReasonCode(x.reason_code)).c_str(), x.reason.c_str());
  }
  return plan->chosen ? 0 : 1;
}

}  // namespace
}  // namespace rumbo::bench

int main(int argc, char** argv) {
  try {
    return rumbo::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "plan-print: %s\n", e.what());
    return 2;
  }
}
