#include "sdk/cli/local_doctor.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>

#include "base/os/files.h"
#include "base/os/subprocess.h"
#include "base/status.h"
#include "base/utf8.h"
#include "sdk/cpp/json.h"

extern char** environ;

namespace rumbo::cli {
namespace {

namespace bj = boost::json;

int Rank(const std::string& severity) { return severity == "broken" ? 0 : severity == "warning" ? 1 : 2; }

Finding Failed(const std::string& what) {
  return {"broken", "probe.failed", "", "the hardware probe " + what, "Run `rumbo-probe --json` to see."};
}

std::string Text(const bj::object& object, const char* key) {
  const bj::value* v = object.if_contains(key);
  return v != nullptr && v->is_string() ? SanitizeUtf8(v->as_string().c_str()) : "";
}

std::vector<Finding> ReadFindings(const std::string& json) {
  boost::system::error_code error;
  const bj::value document = bj::parse(json, error);
  const bj::object* top = error ? nullptr : document.if_object();
  const bj::value* list = top == nullptr ? nullptr : top->if_contains("findings");
  if (list == nullptr || !list->is_array()) return {Failed("answered nonsense")};
  std::vector<Finding> out;
  for (const bj::value& item : list->as_array()) {
    const bj::object* f = item.if_object();
    if (f == nullptr) continue;
    out.push_back(
        {Text(*f, "severity"), Text(*f, "code"), Text(*f, "device"), Text(*f, "text"), Text(*f, "remedy")});
  }
  return out;
}

std::vector<Finding> Probe() {
  SpawnSpec spec;
  spec.argv = {ExecutableDir() + "/rumbo-probe", "--json"};
  // All of the user's environment: what in it steers drivers is among the findings.
  for (char** variable = environ; *variable != nullptr; ++variable) spec.env.emplace_back(*variable);
  spec.isolate = false;  // drivers see device nodes and groups of the real user only outside a namespace
  const auto result = RunHelper(spec, std::chrono::seconds(20), 8 << 20);
  if (!result.ok()) return {Failed("did not start: " + MessageOf(result.status()))};
  if (result->timed_out) return {Failed("hung and was stopped")};
  if (!result->exit.exited || result->exit.code != 0)
    return {Failed("ended with " + result->exit.Describe())};
  return ReadFindings(result->out);
}

std::string ToJson(const std::vector<Finding>& findings) {
  std::string out = "{\n  \"findings\": [";
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& f = findings[i];
    out += i == 0 ? "\n" : ",\n";
    out += "    {\n      \"severity\": " + QuoteJson(f.severity) + ",\n      \"code\": " + QuoteJson(f.code) +
           ",\n      \"device\": " + QuoteJson(f.device) + ",\n      \"text\": " + QuoteJson(f.text) +
           ",\n      \"remedy\": " + QuoteJson(f.remedy) + "\n    }";
  }
  return out + "\n  ]\n}";
}

}  // namespace

LocalReport DoctorWithoutDaemon() {
  LocalReport report;
  report.findings = Probe();
  report.findings.insert(
      report.findings.begin(),
      {"warning", "daemon.not_running", "", "The daemon is not running, so this is about the hardware alone.",
       "Start rumbod, or run a model: `rumbo run MODEL` starts it."});
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return Rank(a.severity) < Rank(b.severity); });
  report.json = ToJson(report.findings);
  return report;
}

}  // namespace rumbo::cli
