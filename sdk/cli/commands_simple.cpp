#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "base/bytes.h"
#include "base/os/paths.h"
#include "sdk/cli/commands.h"
#include "sdk/cli/local_doctor.h"
#include "sdk/cli/render.h"
#include "sdk/cpp/json.h"

namespace rumbo::cli {
namespace {

int Show(const Session& session, const Wire& wire, const std::string& text) {
  const bool written = Print(session.options.json ? wire.ToJson() + "\n" : text);
  return written ? kExitOk : kExitFailed;
}

// A model's name stays as it is; the path of a file becomes absolute, since the daemon has another folder.
std::string NameOrPath(const std::string& text) {
  const bool path_like = text.rfind("/", 0) == 0 || text.rfind("./", 0) == 0 || text.rfind("../", 0) == 0;
  const bool may_be = path_like || text.find('/') != std::string::npos || text.ends_with(".gguf");
  std::error_code ignored;
  return path_like || (may_be && std::filesystem::exists(text, ignored)) ? AbsolutePath(text) : text;
}

int Devices(const Client& client, const Session& s) {
  auto topology = client.Devices(s.options.hardware, s.options.refresh);
  return topology ? Show(s, topology->wire, RenderTopology(*topology, s.out)) : Fail(topology.error());
}

int ExitCodeOf(const std::vector<Finding>& findings, int shown) {
  const bool broken =
      std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.severity == "broken"; });
  return broken ? kExitFailed : shown;
}

int LocalDoctor(const Session& s) {
  const LocalReport report = DoctorWithoutDaemon();
  const bool written =
      Print(s.options.json ? report.json + "\n" : RenderDoctor({report.findings, {}}, s.out));
  return ExitCodeOf(report.findings, written ? kExitOk : kExitFailed);
}

int Doctor(const Client& client, const Session& s) {
  auto report = client.Doctor();
  if (!report && report.error().reason == Reason::kDaemonUnreachable) return LocalDoctor(s);
  if (!report) return Fail(report.error());
  return ExitCodeOf(report->findings, Show(s, report->wire, RenderDoctor(*report, s.out)));
}

int Status(const Client& client, const Session& s) {
  auto status = client.Status();
  return status ? Show(s, status->wire, RenderStatus(*status, std::time(nullptr), s.out))
                : Fail(status.error());
}

int Engines(const Client& client, const Session& s) {
  auto list = client.Engines(s.options.subject);
  if (!list) return Fail(list.error());
  return Show(
      s, list->wire,
      s.options.subject.empty() ? RenderEngines(*list, s.out) : RenderEngine(list->engines.at(0), s.out));
}

int Ps(const Client& client, const Session& s) {
  auto list = client.Instances();
  return list ? Show(s, list->wire, RenderInstances(*list, std::time(nullptr), s.out)) : Fail(list.error());
}

int Adopt(const Client& client, const Session& s) {
  auto models = client.Adopt(s.options.words, !s.options.dry_run);
  return models ? Show(s, models->wire, RenderCached(*models, s.out)) : Fail(models.error());
}

int Drain(const Client& client, const Session& s) {
  auto done = client.Drain(std::chrono::seconds(s.options.limit_s.value_or(0)));
  if (!done) return Fail(done.error());
  Print(s.options.json ? "{\n  \"draining\": true\n}\n" : "the daemon lets what runs end, then stops\n");
  return kExitOk;
}

std::string JsonList(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : ", ") + QuoteJson(word);
  return "[" + out + "]";
}

int Reload(const Client& client, const Session& s) {
  auto report = client.Reload();
  if (!report) return Fail(report.error());
  std::string text;
  for (const auto& name : report->changed) text += Safe(name) + " has changed\n";
  for (const auto& name : report->needs_restart)
    text += Safe(name) + " changes with a restart of the daemon\n";
  if (text.empty()) text = "nothing has changed\n";
  Print(s.options.json ? "{\n  \"changed\": " + JsonList(report->changed) +
                             ",\n  \"needs_restart\": " + JsonList(report->needs_restart) + "\n}\n"
                       : text);
  return kExitOk;
}

int Models(const Client& client, const Session& s) {
  const std::string& action = s.options.subject;
  if (action == "search") {
    auto hits = client.Search(Join(s.options.words, " "), s.options.hub);
    return hits ? Show(s, hits->wire, RenderSearch(*hits, s.out)) : Fail(hits.error());
  }
  if (action == "gc") {
    auto garbage = client.CollectGarbage(s.options.dry_run);
    return garbage ? Show(s, garbage->wire, RenderGarbage(*garbage, s.options.dry_run, s.out))
                   : Fail(garbage.error());
  }
  if (action == "adopt") return Adopt(client, s);
  if (!action.empty()) {
    PrintError("models has no action \"" + Safe(action) + "\"",
               "It has search, verify, gc, export and adopt.");
    return kExitUsage;
  }
  auto list = client.Models();
  return list ? Show(s, list->wire, RenderModels(*list, s.out)) : Fail(list.error());
}

int ShowModel(const Client& client, const Session& s) {
  auto details = client.GetModel(s.options.subject);
  return details ? Show(s, details->wire, RenderModel(*details, s.out)) : Fail(details.error());
}

int Remove(const Client& client, const Session& s) {
  auto freed = client.DeleteModel(s.options.subject);
  if (!freed) return Fail(freed.error());
  Print(s.options.json
            ? "{\n  \"freed_bytes\": " + std::to_string(*freed) + "\n}\n"
            : "deleted " + Safe(s.options.subject) + ", " + FormatBytes(*freed) + " are free again\n");
  return kExitOk;
}

// Writes the files that mend something; the first error ends it.
int WriteFiles(const CheckReport& report, const std::string& folder) {
  for (const auto& r : report.results) {
    if (r.file_name.empty()) continue;
    if (r.file_name.find('/') != std::string::npos || r.file_name[0] == '.') continue;
    const std::string path = AbsolutePath(folder) + "/" + r.file_name;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << r.file_content;
    file.close();
    if (!file) {
      PrintError("cannot write " + Safe(path), "Give an existing folder.");
      return kExitFailed;
    }
    std::fprintf(stderr, "wrote %s\n", Safe(path).c_str());
  }
  return kExitOk;
}

int Check(const Client& client, const Session& s) {
  auto report = client.CheckModel(NameOrPath(s.options.subject), {}, s.options.engine);
  if (!report) return Fail(report.error());
  const int shown = Show(s, report->wire, RenderCheck(*report, s.out));
  if (!s.options.write_to.empty()) {
    if (const int written = WriteFiles(*report, s.options.write_to); written != kExitOk) return written;
  }
  const bool broken = std::any_of(report->results.begin(), report->results.end(),
                                  [](const CheckResult& r) { return r.severity == "broken"; });
  return broken ? kExitFailed : shown;
}

int Unload(const Client& client, const Session& s) {
  auto ids = client.Unload(s.options.subject);
  if (!ids) return Fail(ids.error());
  std::string json;
  std::string text;
  for (const auto& id : *ids) {
    json += (json.empty() ? "" : ", ") + QuoteJson(id);
    text += "unloaded " + Safe(id) + "\n";
  }
  Print(s.options.json ? "{\n  \"instance_ids\": [" + json + "]\n}\n" : text);
  return kExitOk;
}

int Pin(const Client& client, const Session& s) {
  const bool pinned = !s.options.off;
  auto done = client.Pin(s.options.subject, pinned);
  if (!done) return Fail(done.error());
  Print(s.options.json ? "{\n  \"name\": " + QuoteJson(s.options.subject) +
                             ",\n  \"pinned\": " + (pinned ? "true" : "false") + "\n}\n"
                       : Safe(s.options.subject) + (pinned ? " is pinned\n" : " is no longer pinned\n"));
  return kExitOk;
}

int MakePlans(const Client& client, const Session& s, PlanRequest request) {
  for (const std::string& model : s.options.words) request.together.push_back(NameOrPath(model));
  auto joint = client.MakePlans(request);
  if (!joint) return Fail(joint.error());
  std::string text;
  bool all = true;
  for (const Plan& plan : joint->plans) {
    text += (text.empty() ? "" : "\n") + RenderPlan(plan, s.out, s.options.all);
    all = all && plan.chosen.has_value();
  }
  const int shown = Show(s, joint->wire, text);
  return all ? shown : kExitRefused;
}

int MakePlan(const Client& client, const Session& s) {
  PlanRequest request;
  request.model = NameOrPath(s.options.subject);
  request.workload = s.options.workload;
  request.overrides = s.options.overrides;
  request.hardware = s.options.hardware;
  request.system = s.options.plan_system;
  if (!s.options.words.empty() && !s.options.together) {
    PrintError("one argument too many: \"" + Safe(s.options.words.front()) + "\"",
               "Several models are planned side by side with --together.");
    return kExitUsage;
  }
  if (s.options.together) return MakePlans(client, s, std::move(request));
  auto plan = client.MakePlan(request);
  if (!plan) return Fail(plan.error());
  const int shown = Show(s, plan->wire, RenderPlan(*plan, s.out, s.options.all));
  return plan->chosen ? shown : kExitRefused;
}

int Explain(const Client& client, const Session& s) {
  auto explanation = client.Explain(s.options.subject);
  return explanation ? Show(s, explanation->wire, RenderExplanation(*explanation, s.out))
                     : Fail(explanation.error());
}

int Advise(const Client& client, const Session& s) {
  AdviseRequest request;
  request.models = s.options.words;
  request.workload = s.options.workload;
  request.currency = s.options.currency;
  request.budget = s.options.budget;
  request.system = s.options.plan_system;
  auto table = client.Advise(request);
  if (!table) return Fail(table.error());
  return Show(s, table->wire, s.options.csv ? AdviceCsv(*table) : RenderAdvice(*table, s.out));
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    if (end > start) lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

int Embed(const Client& client, const Session& s) {
  EmbedRequest request;
  request.model = s.options.subject;
  request.inputs = s.options.words;
  request.pooling = s.options.overrides.pooling;
  request.dimensions = s.options.dimensions;
  if (request.inputs.empty()) {
    auto input = ReadInput();
    if (!input) return Fail(input.error());
    request.inputs = Lines(*input);
  }
  auto embeddings = client.Embed(request);
  if (!embeddings) return Fail(embeddings.error());
  std::string text;
  for (const auto& vector : embeddings->vectors) {
    for (size_t i = 0; i < vector.size(); ++i) text += (i == 0 ? "" : " ") + std::to_string(vector[i]);
    text += "\n";
  }
  return Show(s, embeddings->wire, text);
}

int Tokenize(const Client& client, const Session& s) {
  TokenizeRequest request;
  request.model = s.options.subject;
  request.text = Join(s.options.words, " ");
  if (s.options.words.empty()) {
    auto input = ReadInput();
    if (!input) return Fail(input.error());
    request.text = *input;
  }
  auto tokens = client.Tokenize(request);
  if (!tokens) return Fail(tokens.error());
  std::string text;
  for (size_t i = 0; i < tokens->ids.size(); ++i) {
    text += std::to_string(tokens->ids[i]);
    if (i < tokens->pieces.size()) text += "\t" + Safe(tokens->pieces[i]);
    text += "\n";
  }
  return Show(s, tokens->wire, text);
}

}  // namespace

int RunSimpleCommand(const Session& session) {
  static const std::map<std::string, std::function<int(const Client&, const Session&)>> kCommands = {
      {"devices", Devices}, {"doctor", Doctor}, {"status", Status},  {"ps", Ps},
      {"engines", Engines}, {"models", Models}, {"show", ShowModel}, {"rm", Remove},
      {"check", Check},     {"unload", Unload}, {"pin", Pin},        {"plan", MakePlan},
      {"explain", Explain}, {"advise", Advise}, {"embed", Embed},    {"tokenize", Tokenize},
      {"drain", Drain},     {"reload", Reload}};
  auto client = Client::Connect({.app = "rumbo"});
  if (!client && session.options.command == "doctor" && client.error().reason == Reason::kDaemonUnreachable) {
    return LocalDoctor(session);
  }
  if (!client) return Fail(client.error());
  return kCommands.at(session.options.command)(*client, session);
}

}  // namespace rumbo::cli
