#include "engines/worker_kit/confine.h"

#include <cstdio>
#include <cstdlib>

#include "base/os/sandbox.h"
#include "base/status.h"
#include "engines/worker_kit/denied_paths.h"

namespace rumbo {

bool ConfineSelf(const std::vector<std::string>& also_readable) {
  const char* text = std::getenv("RUMBO_WORKER_SANDBOX");
  if (text == nullptr) return true;
  absl::StatusOr<SandboxOptions> options = SandboxFromText(text);
  const auto fail = [](const absl::Status& why) {
    std::fprintf(stderr, "rumbo-sandbox failed: %s\n", MessageOf(why).c_str());
    return false;
  };
  if (!options.ok()) return fail(options.status());
  options->read_only.insert(options->read_only.end(), also_readable.begin(), also_readable.end());
  const absl::StatusOr<SandboxReport> report = EnterSandbox(*options);
  if (!report.ok()) return fail(report.status());
  std::fprintf(stderr, "rumbo-sandbox level %s%s\n", report->Describe().c_str(),
               options->deny_jit ? ", no code made at run time" : "");
  for (const std::string& missing : report->missing)
    std::fprintf(stderr, "rumbo-sandbox missing %s\n", missing.c_str());
  ReportDeniedPaths();
  return true;
}

}  // namespace rumbo
