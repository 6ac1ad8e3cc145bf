#include "engines/api/catalog_page.h"

namespace rumbo {
namespace {

std::string Join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

// In a cell of a table.
std::string Cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string Where(const CatalogRule& rule) {
  std::string out;
  for (const auto* part : {&rule.systems, &rule.vendors, &rule.targets, &rule.device_kinds,
                           &rule.memory_kinds, &rule.formats, &rule.quantizations, &rule.capabilities}) {
    if (!part->empty()) out += (out.empty() ? "" : "; ") + Join(*part);
  }
  return out.empty() ? "everywhere else" : out;
}

std::string Settings(const CatalogRule& rule) {
  std::string out;
  for (const auto& [name, value] : rule.settings)
    out += (out.empty() ? "`" : ", `") + name + "=" + value + "`";
  for (const auto& [name, value] : rule.environment)
    out += (out.empty() ? "`" : ", `") + name + "=" + value + "`";
  return out;
}

void AppendBackend(std::string& out, const CatalogBackend& backend) {
  out += "\n**" + backend.name + "** on " + Join(backend.device_kinds) +
         "\n\n| where | how proven | source |\n|---|---|---|\n";
  for (const CatalogRule& rule : backend.support) {
    out +=
        "| " +
        Cell(backend.support.size() == 1 && Where(rule) == "everywhere else" ? "everywhere" : Where(rule)) +
        " | " + rule.maturity + Cell(rule.note.empty() ? "" : ": " + rule.note) + " | " + rule.source +
        " |\n";
  }
  if (backend.advice.empty()) return;
  out += "\n| advice for | settings | why | source |\n|---|---|---|---|\n";
  for (const CatalogRule& rule : backend.advice) {
    const std::string where = Where(rule);
    out += "| " + Cell(where == "everywhere else" ? "everything" : where) + " | " + Cell(Settings(rule)) +
           " | " + Cell(rule.note) + " | " + rule.source + " |\n";
  }
}

}  // namespace

std::string EnginesMarkdown(const EngineCatalog& catalog) {
  std::string out =
      "# Engines\n\nMade from `engines/catalog.yaml` by `rumbod --print-engines`; a test keeps it true. "
      "`rumbo engines` shows "
      "the same beside what\nis installed. How proven a statement is, most trusted first: " +
      Join(catalog.maturity) + ". *Verified* means run by this\nproject's tests; " +
      Join(catalog.never_automatic) +
      " are chosen only by name. An engine that is not installed is never chosen.\n";
  for (const CatalogEngine& engine : catalog.engines) {
    out += "\n## " + engine.title + " (`" + engine.name + "`)\n\n| | |\n|---|---|\n| kind | " + engine.kind +
           " |\n";
    const auto row = [&](const char* name, const std::string& value) {
      if (!value.empty()) out += std::string("| ") + name + " | " + Cell(value) + " |\n";
    };
    row("version", engine.version);
    row("from", engine.origin);
    row("homepage", engine.homepage);
    row("license", engine.license);
    row("formats", Join(engine.formats));
    row("does", Join(engine.capabilities));
    std::string systems;
    for (const auto& [system, maturity] : engine.systems)
      systems += (systems.empty() ? "" : ", ") + system + " " + maturity;
    row("systems", systems + (engine.system_note.empty() ? "" : ". " + engine.system_note));
    row("sessions at once", std::to_string(engine.max_sessions));
    for (const CatalogBackend& backend : engine.backends) AppendBackend(out, backend);
    if (engine.failure_texts.empty()) continue;
    out += "\n| when it says | it means |\n|---|---|\n";
    for (const auto& [text, meaning] : engine.failure_texts)
      out += "| `" + Cell(text) + "` | " + Cell(meaning) + " |\n";
  }
  out += "\n## Sources\n\n| | |\n|---|---|\n";
  for (const auto& [key, source] : catalog.sources) out += "| " + key + " | " + Cell(source) + " |\n";
  return out;
}

}  // namespace rumbo
