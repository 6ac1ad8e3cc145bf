#include "daemon/supervisor/sandbox_journal.h"

#include <algorithm>

#include "base/utf8.h"

namespace rumbo {
namespace {

// "text" behind `head`; "" where `line` does not start so.
std::string After(const std::string& head, const std::string& line) {
  return line.rfind(head, 0) == 0 ? EscapeForLog(line.substr(head.size()), 300) : "";
}

}  // namespace

void SandboxJournal::Started(const std::string& engine, const std::string& backend, bool isolated) {
  std::lock_guard lock(mutex_);
  Seen& seen = seen_[{engine, backend}];
  seen.isolated = isolated;
  seen.failed = false;
}

std::string SandboxJournal::Line(const std::string& engine, const std::string& backend,
                                 const std::string& line) {
  if (line.rfind("rumbo-sandbox ", 0) != 0) return "";
  std::lock_guard lock(mutex_);
  Seen& seen = seen_[{engine, backend}];
  if (const std::string level = After("rumbo-sandbox level ", line); !level.empty()) seen.level = level;
  if (const std::string what = After("rumbo-sandbox missing ", line);
      !what.empty() && seen.missing.size() < 16)
    seen.missing.insert(what);
  const std::string path = After("rumbo-sandbox denied ", line);
  if (!path.empty() && seen.denied.size() < kMostPaths) seen.denied.insert(path);
  return path;
}

void SandboxJournal::FailedToStart(const std::string& engine, const std::string& backend) {
  std::lock_guard lock(mutex_);
  seen_[{engine, backend}].failed = true;
}

std::vector<Finding> SandboxJournal::Findings() const {
  std::vector<Finding> out;
  std::lock_guard lock(mutex_);
  for (const auto& [key, seen] : seen_) {
    const std::string who = key.first + " (" + key.second + ")";
    const auto say = [&](Severity severity, const char* code, std::string text, std::string remedy) {
      out.push_back({severity, code, "", std::move(text), std::move(remedy)});
    };
    if (!seen.level.empty()) {
      say(Severity::kInfo, "sandbox.level",
          who + " runs with " + seen.level +
              (seen.isolated ? ", in user, process and network namespaces of its own" : "") + ".",
          "");
    }
    if (!seen.isolated) {
      say(Severity::kWarning, "sandbox.no_namespaces",
          who + " runs without namespaces of its own: the kernel or the configuration does not allow them.",
          "Allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), and leave the option isolate "
          "on.");
    }
    for (const std::string& missing : seen.missing)
      say(Severity::kWarning, "sandbox.missing", who + ": " + missing + ".", "Use a newer kernel.");
    if (seen.denied.empty()) continue;
    std::string paths;
    size_t named = 0;
    for (const std::string& path : seen.denied) {
      if (named++ < 8) paths += (paths.empty() ? "" : ", ") + path;
    }
    if (seen.denied.size() > 8) paths += " and " + std::to_string(seen.denied.size() - 8) + " more";
    say(seen.failed ? Severity::kBroken : Severity::kInfo, "sandbox.denied",
        who + " was denied " + paths + " by its sandbox" + (seen.failed ? ", and did not start." : "."),
        seen.failed
            ? "If it needs that, name the path under `sandbox` of the engine in engines/catalog.yaml; "
              "nothing is started without a sandbox instead."
            : "");
  }
  return out;
}

}  // namespace rumbo
