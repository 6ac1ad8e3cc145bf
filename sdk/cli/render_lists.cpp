#include "base/bytes.h"
#include "sdk/cli/render.h"

namespace rumbo::cli {
namespace {

std::vector<std::string> SafeAll(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const auto& text : texts) out.push_back(Safe(text));
  return out;
}

std::string OrDash(std::string text) { return text.empty() ? "-" : text; }
std::string CountOrDash(uint64_t count) { return count == 0 ? "-" : std::to_string(count); }

Style SeverityStyle(const std::string& severity) {
  if (severity == "broken") return Style::kBad;
  if (severity == "warning") return Style::kWarn;
  return severity == "ok" ? Style::kGood : Style::kDim;
}

std::string FindingText(const std::string& severity, const std::string& where, const std::string& text,
                        const std::string& remedy, const std::string& code, const Screen& screen) {
  std::string head = severity;
  head.resize(9, ' ');
  std::string out = Paint(screen, SeverityStyle(severity), Safe(head));
  const std::string indent(9, ' ');
  out += Wrap((where.empty() ? "" : Safe(where) + ": ") + Safe(text), screen.width - 9, indent) + "\n";
  if (!remedy.empty()) out += indent + Wrap("do: " + Safe(remedy), screen.width - 9, indent) + "\n";
  if (!code.empty()) out += indent + Paint(screen, Style::kDim, Safe(code)) + "\n";
  return out;
}

}  // namespace

std::string RenderInstances(const InstanceList& list, int64_t now_s, const Screen& screen) {
  if (list.instances.empty())
    return "No model is loaded. `rumbo load MODEL` or `rumbo run MODEL` loads one.\n";
  Table table({"INSTANCE", "MODEL", "STATE", "ENGINE", "BACKEND", "DEVICES", "PID", "MEMORY", "RUNNING",
               "QUEUE", "SINCE"});
  for (const size_t column : {6, 7, 8, 9}) table.AlignRight(column);
  std::string notes;
  for (const auto& i : list.instances) {
    std::string state = Safe(i.state);
    if (i.progress && *i.progress < 1)
      state += " " + std::to_string(static_cast<int>(*i.progress * 100)) + " %";
    if (i.pinned) state += ", pinned";
    table.Add({Safe(i.id), Safe(i.model), state, Safe(i.engine), OrDash(Safe(i.backend)),
               OrDash(Join(SafeAll(i.devices), ",")), i.pid ? std::to_string(*i.pid) : "-",
               i.memory.empty() ? "-" : FormatBytes(SumOf(i.memory)),
               std::to_string(i.running) + "/" + std::to_string(i.sessions), std::to_string(i.queue),
               i.since > 0 ? Duration(static_cast<double>(now_s - i.since)) : "-"});
    if (i.state == "failed" && !i.reason.empty())
      notes += Safe(i.id) + ": " + SafeLines(i.reason, "  ") + "\n";
  }
  return table.Render(screen) + notes;
}

std::string RenderTop(const DaemonStatus& s, const InstanceList& list,
                      const std::map<std::string, double>& tokens_per_second, int64_t now_s,
                      const Screen& screen) {
  double rate = 0;
  for (const auto& [id, tokens] : tokens_per_second) rate += tokens;
  uint64_t bytes = 0;
  for (const auto& i : list.instances) bytes += SumOf(i.memory);
  std::string out = Paint(screen, Style::kBold, "rumbod " + Safe(s.version));
  if (s.started_unix_s > 0) out += "  up " + Duration(static_cast<double>(now_s - s.started_unix_s));
  if (s.draining) out += Paint(screen, Style::kWarn, "  draining");
  out += "\n" + std::to_string(s.running_requests) + " running, " + std::to_string(s.queued_requests) +
         " waiting, " + std::to_string(s.finished_requests) + " finished; " + Short(rate) + " tokens/s; " +
         FormatBytes(bytes) + " reserved\n\n";
  if (list.instances.empty()) return out + "No model is loaded.\n";
  Table table(
      {"INSTANCE", "MODEL", "STATE", "RUNS ON", "SLOTS", "", "QUEUE", "TOKENS/S", "TOKENS", "MEMORY"});
  for (const size_t column : {4, 6, 7, 8, 9}) table.AlignRight(column);
  for (const auto& i : list.instances) {
    const auto tokens = tokens_per_second.find(i.id);
    const double share = i.sessions == 0 ? 0 : static_cast<double>(i.running) / i.sessions;
    std::string state = Safe(i.state);
    if (i.progress && *i.progress < 1)
      state += " " + std::to_string(static_cast<int>(*i.progress * 100)) + " %";
    table.Add({Safe(i.id), Safe(i.model), state, Placement(i.engine, i.backend, i.devices),
               std::to_string(i.running) + "/" + std::to_string(i.sessions), Bar(screen, share, 8),
               std::to_string(i.queue), tokens == tokens_per_second.end() ? "-" : Short(tokens->second),
               std::to_string(i.generated_tokens), i.memory.empty() ? "-" : FormatBytes(SumOf(i.memory))});
  }
  return out + table.Render(screen);
}

std::string RenderModels(const ModelList& list, const Screen& screen) {
  if (list.models.empty()) return "No models yet. `rumbo import PATH --name NAME` takes one in.\n";
  Table table({"MODEL", "VARIANT", "FORMAT", "ARCHITECTURE", "QUANT", "SIZE", "CONTEXT", "CHAT", "STATE"});
  table.AlignRight(5);
  table.AlignRight(6);
  for (const auto& model : list.models) {
    const std::string name = Safe(model.name) + (model.pinned ? " (pinned)" : "");
    if (model.variants.empty()) table.Add({name, "-", "-", "-", "-", "-", "-", "-", "-"});
    for (const auto& v : model.variants) {
      table.Add({name, OrDash(Safe(v.id)), OrDash(Safe(v.format)), OrDash(Safe(v.architecture)),
                 OrDash(Safe(v.quantization)),
                 v.done_bytes ? FormatBytes(*v.done_bytes) + " of " + FormatBytes(v.size_bytes)
                              : FormatBytes(v.size_bytes),
                 CountOrDash(v.context_trained), v.has_chat_template ? "yes" : "no", OrDash(Safe(v.state))});
    }
  }
  return table.Render(screen);
}

std::string RenderModel(const ModelDetails& details, const Screen& screen) {
  std::string out =
      Paint(screen, Style::kBold, Safe(details.model.name)) + (details.model.pinned ? "  pinned" : "") + "\n";
  for (const auto& v : details.model.variants) {
    out += "  variant " + Safe(v.id) + ": " + Safe(v.format) + ", " + Safe(v.architecture) + ", " +
           Safe(v.quantization) + ", " + FormatBytes(v.size_bytes) + ", " + Safe(v.state) + "\n";
    out += "    parameters " + CountOrDash(v.parameters) + ", context " + CountOrDash(v.context_trained) +
           ", chat template " + (v.has_chat_template ? "yes" : "no") + "\n";
    if (!v.capabilities.empty()) out += "    can " + Join(SafeAll(v.capabilities), ", ") + "\n";
    if (!v.sha256.empty()) out += "    sha256 " + Safe(v.sha256) + "\n";
    if (!v.source.empty()) out += "    from " + Safe(v.source) + "\n";
  }
  if (!details.metadata.empty()) {
    Table table({"METADATA", "VALUE"});
    for (const auto& [key, value] : details.metadata) {
      const bool cut = value.size() > 200;
      table.Add({Safe(key), Safe(std::string_view(value).substr(0, 200)) + (cut ? "..." : "")});
    }
    out += table.Render(screen);
  }
  return out;
}

std::string RenderPullPlan(const PullPlan& plan, const Screen& screen) {
  std::string out = Paint(screen, Style::kBold, Safe(plan.reference)) + " as " + Safe(plan.name) +
                    (plan.licence.empty() ? "" : ", licence " + Safe(plan.licence)) +
                    (plan.gated ? ", gated: needs a token" : "") + "\n";
  Table table({"", "VARIANT", "FORMAT", "SIZE", "FITS", "TOKENS/S", "ENGINE", "WHY"});
  table.AlignRight(3);
  table.AlignRight(5);
  for (const auto& c : plan.candidates) {
    table.Add({c.chosen ? "*" : "", OrDash(Safe(c.id)), OrDash(Safe(c.format)),
               c.size_bytes ? FormatBytes(*c.size_bytes) : "-", OrDash(Safe(c.fit)),
               c.decode_tok_s ? Short(*c.decode_tok_s) : "-", OrDash(Safe(c.engine)), Safe(c.reason)});
  }
  return out + table.Render(screen);
}

std::string RenderPullChoice(const PullPlan& plan, const Screen& screen) {
  for (const auto& c : plan.candidates) {
    if (!c.chosen) continue;
    return Paint(screen, Style::kDim,
                 "takes " + Safe(c.id) + (c.size_bytes ? ", " + FormatBytes(*c.size_bytes) : "") +
                     (c.reason.empty() ? "" : ": " + Safe(c.reason))) +
           "\n";
  }
  return "";
}

std::string RenderSearch(const SearchHits& hits, const Screen& screen) {
  if (hits.hits.empty()) return "Nothing was found. `--hub` asks the hub too.\n";
  Table table({"REFERENCE", "TITLE", "LICENCE", "FROM", "DOWNLOADS"});
  table.AlignRight(4);
  for (const auto& hit : hits.hits) {
    table.Add({Safe(hit.reference), Safe(hit.title), OrDash(Safe(hit.licence)), Safe(hit.origin),
               hit.downloads ? std::to_string(*hit.downloads) : "-"});
  }
  return table.Render(screen);
}

std::string RenderVerified(const VerifiedModels& result, const Screen& screen) {
  if (result.models.empty()) return "No models yet.\n";
  Table table({"MODEL", "STATE", "WHAT"});
  for (const auto& m : result.models) table.Add({Safe(m.name), Safe(m.state), Safe(m.text)});
  return table.Render(screen);
}

std::string RenderGarbage(const Garbage& garbage, bool dry_run, const Screen& screen) {
  if (garbage.items.empty()) return "Nothing to remove.\n";
  Table table({"WHAT", "SIZE"});
  table.AlignRight(1);
  for (const auto& item : garbage.items) table.Add({Safe(item.what), FormatBytes(item.bytes)});
  return table.Render(screen) + (dry_run ? "would free " : "freed ") + FormatBytes(garbage.bytes) + "\n";
}

std::string RenderCached(const CachedModels& models, const Screen& screen) {
  if (models.models.empty()) return "No other program's models were found.\n";
  Table table({"MODEL", "CACHE", "SIZE", "STATE", "WHAT"});
  table.AlignRight(2);
  for (const auto& m : models.models)
    table.Add({Safe(m.name), Safe(m.cache), FormatBytes(m.bytes), Safe(m.state), Safe(m.text)});
  return table.Render(screen);
}

std::string RenderCheck(const CheckReport& report, const Screen& screen) {
  std::string out;
  for (const auto& r : report.results) {
    const std::string text = r.source.empty() ? r.text : r.text + " [" + r.source + "]";
    out += FindingText(r.severity, "", text, r.remedy, r.code, screen);
    if (!r.file_name.empty()) out += "    mended by " + Safe(r.file_name) + ": `--write FOLDER` writes it\n";
  }
  return out.empty() ? "Nothing was checked.\n" : out;
}

std::string RenderDoctor(const DoctorReport& report, const Screen& screen) {
  std::string out;
  for (const auto& f : report.findings)
    out += FindingText(f.severity, f.device, f.text, f.remedy, f.code, screen);
  return out.empty() ? "Nothing is wrong.\n" : out;
}

std::string RenderEngines(const EngineList& engines, const Screen& screen) {
  Table table({"ENGINE", "KIND", "HERE", "BACKENDS", "FORMATS", "LINUX"});
  for (const Engine& engine : engines.engines) {
    std::vector<std::string> builds, backends;
    for (const auto& build : engine.builds)
      builds.push_back(build.version + (build.build.empty() ? "" : " " + build.build));
    for (const auto& backend : engine.backends) backends.push_back(backend.name);
    std::string linux_word = "-";
    for (const auto& system : engine.systems) {
      if (system.system == "linux") linux_word = system.maturity;
    }
    table.Add({Safe(engine.name), Safe(engine.kind), builds.empty() ? "no" : Safe(Join(builds, ", ")),
               OrDash(Safe(Join(backends, " "))), OrDash(Safe(Join(engine.formats, " "))), Safe(linux_word)});
  }
  return table.Render(screen) + "`rumbo engines NAME` shows what is known about one, and where from.\n";
}

std::string RenderEngine(const Engine& e, const Screen& screen) {
  std::string out =
      Paint(screen, Style::kBold, Safe(e.title)) + " " + Safe(e.version) + ", " + Safe(e.kind) + "\n";
  const auto line = [&](std::string name, const std::string& value) {
    if (value.empty()) return;
    name.resize(12, ' ');
    out += "  " + name + Safe(value) + "\n";
  };
  std::vector<std::string> builds, systems;
  for (const auto& build : e.builds) {
    builds.push_back(build.version + " " + build.build + " (" + Join(build.backends, " ") + ")");
  }
  for (const auto& system : e.systems) systems.push_back(system.system + " " + system.maturity);
  line("installed", builds.empty() ? "no. " + e.next_step : Join(builds, ", "));
  line("from", e.origin);
  line("homepage", e.homepage);
  line("license", e.license);
  line("formats", Join(e.formats, " "));
  line("does", Join(e.capabilities, " "));
  line("sessions", "up to " + std::to_string(e.max_sessions));
  line("systems", Join(systems, ", "));
  for (const auto& backend : e.backends) {
    out += "\n" + Paint(screen, Style::kBold, Safe(backend.name)) + " on " +
           Safe(Join(backend.device_kinds, ", ")) + "\n";
    Table table({"WHERE", "HOW PROVEN", "SOURCE"});
    for (const auto& support : backend.support) {
      std::vector<std::string> where;
      for (const auto* part : {&support.systems, &support.vendors, &support.targets, &support.formats}) {
        if (!part->empty()) where.push_back(Join(*part, " "));
      }
      table.Add({where.empty() ? "everywhere else" : Safe(Join(where, ", ")),
                 Safe(support.maturity + (support.note.empty() ? "" : ": " + support.note)),
                 Safe(support.source)});
    }
    out += table.Render(screen);
  }
  return out;
}

std::string RenderStatus(const DaemonStatus& s, int64_t now_s, const Screen& screen) {
  std::string out =
      Paint(screen, Style::kBold, "rumbod " + Safe(s.version)) + ", pid " + std::to_string(s.pid);
  if (s.started_unix_s > 0) out += ", up " + Duration(static_cast<double>(now_s - s.started_unix_s));
  if (s.draining) out += Paint(screen, Style::kWarn, ", draining");
  out += "\n  protocol  " + Join(SafeAll(s.api_versions), ", ");
  out += "\n  http      " + (s.http_address.empty() ? "off" : Safe(s.http_address));
  out += "\n  models    " + std::to_string(s.instances) + " loaded";
  out += "\n  requests  " + std::to_string(s.running_requests) + " running, " +
         std::to_string(s.queued_requests) + " waiting, " + std::to_string(s.finished_requests) + " finished";
  out += "\n  engines   " + OrDash(Join(SafeAll(s.engines), ", ")) + "\n";
  return out;
}

std::string RenderAdvice(const AdviceTable& advice, const Screen& screen) {
  if (advice.rows.empty()) return "No hardware profile runs this.\n";
  Table table({"HARDWARE", "MODEL", "RUNS ON", "TOKENS/S", "TTFT", "PRICE", "PER GB", "PER TOKEN/S"});
  for (const size_t column : {3, 4, 5, 6, 7}) table.AlignRight(column);
  for (const auto& row : advice.rows) {
    const Candidate* chosen = row.plan && row.plan->chosen ? &*row.plan->chosen : nullptr;
    std::string runs = "no";
    if (chosen != nullptr) runs = Placement(chosen->engine, chosen->backend, {});
    if (chosen == nullptr && row.plan && row.plan->refusal) runs = "no: " + Safe(row.plan->refusal->reason);
    const auto money = [&](const std::optional<double>& value) {
      return value ? Short(*value) + " " + Safe(row.currency) : std::string("-");
    };
    const bool speed = chosen != nullptr && chosen->predicted.decode_tok_s;
    const bool ttft = chosen != nullptr && chosen->predicted.ttft_ms;
    table.Add({Safe(row.title.empty() ? row.hardware : row.title), Safe(row.model), runs,
               speed ? Short(*chosen->predicted.decode_tok_s) : "-",
               ttft ? Short(*chosen->predicted.ttft_ms) + " ms" : "-", money(row.price),
               money(row.price_per_gb), money(row.price_per_tok_s)});
  }
  return table.Render(screen);
}

std::string AdviceCsv(const AdviceTable& advice) {
  const auto quoted = [](const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
    return out + "\"";
  };
  const auto number = [](const std::optional<double>& value) {
    if (!value) return std::string();
    char text[40];
    std::snprintf(text, sizeof text, "%.6g", *value);
    return std::string(text);
  };
  std::string out =
      "hardware,model,variant,engine,backend,reason,decode_tok_s,aggregate_tok_s,ttft_ms,energy_j_per_tok,"
      "price,currency,price_date,price_per_gb,price_per_tok_s\r\n";
  for (const auto& row : advice.rows) {
    const Candidate none;
    const Candidate& c = row.plan && row.plan->chosen ? *row.plan->chosen : none;
    const std::string why = row.plan && row.plan->refusal ? row.plan->refusal->reason : "";
    const std::vector<std::string> cells = {row.hardware, row.model, c.variant, c.engine, c.backend, why};
    for (const std::string& cell : cells) out += quoted(cell) + ",";
    for (const auto& value : {c.predicted.decode_tok_s, c.predicted.aggregate_tok_s, c.predicted.ttft_ms,
                              c.predicted.energy_j_per_tok, row.price})
      out += number(value) + ",";
    out += quoted(row.currency) + "," + quoted(row.price_date) + "," + number(row.price_per_gb) + "," +
           number(row.price_per_tok_s) + "\r\n";
  }
  return out;
}

}  // namespace rumbo::cli
