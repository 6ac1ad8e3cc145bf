#include "engines/api/catalog.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/check.h"
#include "base/status.h"

namespace rumbo {
namespace {

// Reads one YAML map; complains about keys that nobody asked for, so that a typo is not silence.
class Map {
 public:
  Map(const YAML::Node& node, std::string where) : node_(node), where_(std::move(where)) {
    if (!node.IsMap()) Fail("is not a map");
  }

  [[noreturn]] void Fail(const std::string& what) const {
    const auto mark = node_.Mark();
    throw YAML::Exception(mark, where_ + " " + what);
  }
  YAML::Node Get(const char* key) {
    used_.insert(key);
    return node_[key];
  }
  std::string Text(const char* key, std::string fallback = "") {
    const YAML::Node n = Get(key);
    return n ? n.as<std::string>() : fallback;
  }
  std::string Needed(const char* key) {
    const std::string text = Text(key);
    if (text.empty()) Fail(std::string("lacks '") + key + "'");
    return text;
  }
  bool Flag(const char* key, bool fallback = false) {
    const YAML::Node n = Get(key);
    return n ? n.as<bool>() : fallback;
  }
  double Number(const char* key, double fallback, double low, double high) {
    const YAML::Node n = Get(key);
    const double value = n ? n.as<double>() : fallback;
    if (!(value >= low && value <= high)) Fail(std::string("has '") + key + "' out of range");
    return value;
  }
  // "64MiB", "1.5GiB", "0".
  Bytes Size(const char* key) {
    const std::string text = Text(key, "0");
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const std::string unit = end;
    const double factor = unit.empty()    ? 1
                          : unit == "KiB" ? kKiB
                          : unit == "MiB" ? kMiB
                          : unit == "GiB" ? kGiB
                                          : -1;
    if (factor < 0 || !(value >= 0) || value * factor > 1e15)
      Fail(std::string("has a wrong size in '") + key + "'");
    return static_cast<Bytes>(value * factor);
  }
  std::vector<std::string> List(const char* key) {
    std::vector<std::string> out;
    const YAML::Node n = Get(key);
    if (!n) return out;
    if (!n.IsSequence()) Fail(std::string("has no list in '") + key + "'");
    for (const YAML::Node& item : n) out.push_back(item.as<std::string>());
    return out;
  }
  std::map<std::string, std::string> Texts(const char* key) {
    std::map<std::string, std::string> out;
    const YAML::Node n = Get(key);
    if (!n) return out;
    if (!n.IsMap()) Fail(std::string("has no map in '") + key + "'");
    for (const auto& item : n) out[item.first.as<std::string>()] = item.second.as<std::string>();
    return out;
  }
  std::vector<YAML::Node> Nodes(const char* key) {
    std::vector<YAML::Node> out;
    const YAML::Node n = Get(key);
    if (n && !n.IsSequence()) Fail(std::string("has no list in '") + key + "'");
    for (const YAML::Node& item : n) out.push_back(item);
    return out;
  }
  void Done() const {
    for (const auto& item : node_) {
      const std::string key = item.first.as<std::string>();
      if (used_.count(key) == 0) Fail("has the unknown key '" + key + "'");
    }
  }

 private:
  YAML::Node node_;
  std::string where_;
  std::set<std::string> used_;
};

bool Contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

CatalogRule ReadRule(const YAML::Node& node, const std::string& where, const EngineCatalog& catalog,
                     bool support) {
  Map m(node, where);
  CatalogRule rule;
  rule.systems = m.List("systems");
  rule.targets = m.List("targets");
  rule.vendors = m.List("vendors");
  rule.device_kinds = m.List("devices");
  rule.memory_kinds = m.List("memory_kinds");
  rule.formats = m.List("formats");
  rule.quantizations = m.List("quantizations");
  rule.capabilities = m.List("capabilities");
  rule.maturity = support ? m.Needed("maturity") : m.Text("maturity");
  rule.note = m.Text("note");
  rule.source = m.Needed("source");
  rule.settings = m.Texts("settings");
  rule.environment = m.Texts("environment");
  m.Done();
  if (!rule.maturity.empty() && !Contains(catalog.maturity, rule.maturity)) {
    m.Fail("has the unknown maturity word '" + rule.maturity + "'");
  }
  if (catalog.sources.count(rule.source) == 0) m.Fail("names the unlisted source '" + rule.source + "'");
  return rule;
}

CatalogBackend ReadBackend(const YAML::Node& node, const std::string& engine, const EngineCatalog& catalog) {
  Map m(node, "a backend of engine '" + engine + "'");
  CatalogBackend backend;
  backend.name = m.Needed("name");
  const std::string where = "backend '" + backend.name + "' of engine '" + engine + "'";
  backend.device_kinds = m.List("devices");
  for (const YAML::Node& n : m.Nodes("support")) backend.support.push_back(ReadRule(n, where, catalog, true));
  for (const YAML::Node& n : m.Nodes("advice")) backend.advice.push_back(ReadRule(n, where, catalog, false));
  backend.kv_types = m.List("kv_types");
  backend.kv_types_hardware = m.List("kv_types_hardware");
  backend.multi_device = m.Flag("multi_device");
  backend.partial_offload = m.Flag("partial_offload");
  backend.device_overhead_bytes = m.Size("device_overhead");
  backend.host_overhead_bytes = m.Size("host_overhead");
  backend.overhead_source = m.Text("overhead_source");
  backend.exclusive_device = m.Flag("exclusive_device");
  backend.energy_rank = static_cast<int>(m.Number("energy_rank", 9, 1, 9));
  m.Done();
  if (backend.support.empty()) m.Fail("says nothing about support");
  if (backend.device_kinds.empty()) m.Fail("names no device kind");
  return backend;
}

MemoryModel ModelOf(const std::string& word, const Map& m) {
  if (word == "layered") return MemoryModel::kLayered;
  if (word == "paged") return MemoryModel::kPaged;
  if (word == "whole") return MemoryModel::kWhole;
  if (word == "fixed") return MemoryModel::kFixed;
  m.Fail("has the unknown memory model '" + word + "'");
}

CatalogEngine ReadEngine(const YAML::Node& node, const EngineCatalog& catalog) {
  Map m(node, "an engine");
  CatalogEngine e;
  e.name = m.Needed("name");
  e.title = m.Needed("title");
  e.kind = m.Needed("kind");
  e.memory = ModelOf(m.Needed("memory"), m);
  e.version = m.Text("version");
  e.homepage = m.Text("homepage");
  e.license = m.Text("license");
  e.origin = m.Text("origin");
  e.formats = m.List("formats");
  e.capabilities = m.List("capabilities");
  e.systems = m.Texts("systems");
  e.system_note = m.Text("system_note");
  e.max_sessions = static_cast<uint32_t>(m.Number("max_sessions", 1, 1, 1e6));
  e.session_isolation = m.Flag("session_isolation", true);
  e.batches = m.Flag("batches", true);
  e.speculative = m.Flag("speculative");
  e.max_draft_tokens = static_cast<uint32_t>(m.Number("max_draft_tokens", 0, 0, 64));
  e.draft_models = m.Flag("draft_models");
  e.disk_cache = m.Flag("disk_cache");
  e.workspace_factor = m.Number("workspace_factor", 0, 0, 100);
  e.fixed_bytes = m.Size("fixed_bytes");
  e.host_cache_most = m.Size("host_cache_most");
  e.start_s = m.Number("start_s", 0, 0, 1e5);
  e.start_source = m.Text("start_source");
  e.automatic = m.Flag("automatic", true);
  e.launch = m.Texts("launch");
  e.scrub_environment = m.List("scrub_environment");
  e.failure_texts = m.Texts("failure_texts");
  e.sandbox = m.Texts("sandbox");
  e.source = m.Needed("source");
  for (const YAML::Node& n : m.Nodes("backends")) e.backends.push_back(ReadBackend(n, e.name, catalog));
  m.Done();
  for (const auto& [system, word] : e.systems) {
    if (!Contains(catalog.maturity, word))
      m.Fail("has the unknown maturity word '" + word + "' for " + system);
  }
  if (catalog.sources.count(e.source) == 0) m.Fail("names the unlisted source '" + e.source + "'");
  static const std::set<std::string> kKinds = {"worker", "process", "attached", "remote", "test"};
  if (kKinds.count(e.kind) == 0) m.Fail("has the unknown kind '" + e.kind + "'");
  if (catalog.Find(e.name) != nullptr) m.Fail("is there twice: '" + e.name + "'");
  return e;
}

void ReadCatalog(const YAML::Node& root, EngineCatalog& out) {
  Map m(root, "the catalog");
  if (m.Number("schema", 0, 1, 1) != 1) m.Fail("has an unknown schema");
  out.maturity = m.List("maturity");
  out.never_automatic = m.List("never_automatic");
  for (const auto& [word, factor] : m.Texts("caution")) {
    out.caution[word] = std::strtod(factor.c_str(), nullptr);
    if (!Contains(out.maturity, word) || !(out.caution[word] >= 1 && out.caution[word] <= 10))
      m.Fail("has a wrong 'caution' for '" + word + "'");
  }
  out.sources = m.Texts("sources");
  for (const YAML::Node& n : m.Nodes("engines")) out.engines.push_back(ReadEngine(n, out));
  m.Done();
}

SpeedRow ReadSpeed(const YAML::Node& node, const std::map<std::string, std::string>& sources) {
  Map m(node, "a speed row");
  SpeedRow r;
  r.engine = m.Needed("engine");
  r.backend = m.Needed("backend");
  r.build = m.Text("build");
  r.weights = m.Text("weights");
  r.vendor = m.Text("vendor");
  r.isa = m.Text("isa");
  r.bandwidth_efficiency = m.Number("bandwidth_efficiency", 0, 0.001, 1.5);
  r.prompt_bandwidth = m.Number("prompt_bandwidth", r.bandwidth_efficiency, 0.001, 1.5);
  r.overlap = m.Number("overlap", 1, 0, 1);
  r.sequence_overhead_us = m.Number("sequence_overhead_us", 0, 0, 1e6);
  r.thread_overhead_us = m.Number("thread_overhead_us", 0, 0, 1e6);
  r.linear_prompt_ms = m.Number("linear_prompt_ms", 0, 0, 1e4);
  r.kv_efficiency = m.Number("kv_efficiency", r.bandwidth_efficiency, 0.001, 1.5);
  r.compute_efficiency = m.Number("compute_efficiency", 0, 0.0001, 1.5);
  r.batch_efficiency = m.Number("batch_efficiency", r.compute_efficiency, 0.0001, 1.5);
  r.rate = m.Text("rate", "fp16");
  r.step_overhead_us = m.Number("step_overhead_us", 0, 0, 1e7);
  r.layer_overhead_us = m.Number("layer_overhead_us", 0, 0, 1e6);
  r.expert_overhead_us = m.Number("expert_overhead_us", 0, 0, 1e6);
  r.draft_overhead_us = m.Number("draft_overhead_us", 0, 0, 1e6);
  r.prompt_overhead_ms = m.Number("prompt_overhead_ms", 0, 0, 1e6);
  r.uncertainty = m.Number("uncertainty", 0.5, 0.01, 10);
  r.source = m.Needed("source");
  m.Done();
  static const std::set<std::string> kRates = {"fp32", "fp16", "bf16", "fp8", "int8"};
  if (kRates.count(r.rate) == 0) m.Fail("has the unknown rate '" + r.rate + "'");
  if (sources.count(r.source) == 0) m.Fail("names the unlisted source '" + r.source + "'");
  return r;
}

void ReadSpeeds(const YAML::Node& root, EngineCatalog& out) {
  Map m(root, "the speed file");
  if (m.Number("schema", 0, 1, 1) != 1) m.Fail("has an unknown schema");
  const auto sources = m.Texts("sources");
  for (const auto& [name, text] : m.Texts("assumptions"))
    out.assumptions[name] = std::strtod(text.c_str(), nullptr);
  for (const YAML::Node& n : m.Nodes("rows")) out.speed.push_back(ReadSpeed(n, sources));
  m.Done();
  for (const SpeedRow& row : out.speed) {
    if (out.Find(row.engine) == nullptr) m.Fail("has a row for the unknown engine '" + row.engine + "'");
  }
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view word) {
  if (pattern.empty() || pattern.back() != '*') return pattern == word;
  pattern.remove_suffix(1);
  return word.substr(0, pattern.size()) == pattern;
}

absl::StatusOr<EngineCatalog> ParseCatalog(std::string_view catalog_yaml, std::string_view speed_yaml) {
  EngineCatalog out;
  try {
    ReadCatalog(YAML::Load(std::string(catalog_yaml)), out);
    ReadSpeeds(YAML::Load(std::string(speed_yaml)), out);
  } catch (const YAML::Exception& e) {
    return InvalidArgument(std::string("the engine catalog is wrong: ") + e.what());
  }
  return out;
}

const EngineCatalog& BuiltInCatalog() {
  static const EngineCatalog* const catalog = [] {
    auto parsed = ParseCatalog(BuiltInCatalogYaml(), BuiltInSpeedYaml());
    if (!parsed.ok()) std::fprintf(stderr, "%s\n", MessageOf(parsed.status()).c_str());
    RUMBO_CHECK(parsed.ok());
    return new EngineCatalog(*std::move(parsed));
  }();
  return *catalog;
}

}  // namespace rumbo
