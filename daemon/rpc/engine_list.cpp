#include "daemon/rpc/engine_list.h"

namespace rumbo {
namespace {

template <class List, class Repeated>
void Copy(const List& from, Repeated* to) {
  to->Assign(from.begin(), from.end());
}

void FillBackend(const CatalogBackend& backend, const EngineCatalog& catalog, v1::EngineBackend* out) {
  out->set_name(backend.name);
  Copy(backend.device_kinds, out->mutable_device_kinds());
  for (const CatalogRule& rule : backend.support) {
    auto* support = out->add_support();
    Copy(rule.systems, support->mutable_systems());
    Copy(rule.targets, support->mutable_targets());
    Copy(rule.vendors, support->mutable_vendors());
    Copy(rule.formats, support->mutable_formats());
    support->set_maturity(rule.maturity);
    support->set_note(rule.note);
    const auto source = catalog.sources.find(rule.source);
    support->set_source(source == catalog.sources.end() ? rule.source : source->second);
  }
}

}  // namespace

void FillEngine(const CatalogEngine& engine, const EngineCatalog& catalog,
                const std::vector<InstalledEngine>& installed, v1::Engine* out) {
  out->set_name(engine.name);
  out->set_title(engine.title);
  out->set_kind(engine.kind);
  out->set_version(engine.version);
  out->set_license(engine.license);
  out->set_homepage(engine.homepage);
  out->set_origin(engine.origin);
  Copy(engine.formats, out->mutable_formats());
  Copy(engine.capabilities, out->mutable_capabilities());
  out->set_max_sessions(engine.max_sessions);
  for (const auto& [system, maturity] : engine.systems) {
    auto* entry = out->add_systems();
    entry->set_system(system);
    entry->set_maturity(maturity);
  }
  for (const CatalogBackend& backend : engine.backends) FillBackend(backend, catalog, out->add_backends());
  for (const InstalledEngine& build : installed) {
    if (build.name != engine.name) continue;
    auto* entry = out->add_builds();
    entry->set_version(build.version);
    entry->set_build(build.build);
    Copy(build.backends, entry->mutable_backends());
  }
  if (!out->builds().empty()) return;
  out->set_next_step(engine.kind == "worker"
                         ? "No pack of it is beside rumbod: `./dev setup && ./dev build` makes one."
                         : "Plans may name it; this daemon cannot start it yet.");
}

}  // namespace rumbo
