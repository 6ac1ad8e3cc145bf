#include "daemon/core/planner_options.h"

#include <algorithm>

namespace rumbo {
namespace {

bool In(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool Any(const std::vector<std::string>& patterns, const std::string& word) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
           return MatchesPattern(pattern, word);
         });
}

struct RuleSubject {
  std::string system;
  const Device* device = nullptr;
  const ModelDescriptor* model = nullptr;  // null: any model
};

bool Holds(const CatalogRule& rule, const RuleSubject& s) {
  if (!Any(rule.systems, s.system)) return false;
  if (!Any(rule.vendors, s.device->vendor)) return false;
  if (!Any(rule.device_kinds, Word(s.device->kind))) return false;
  if (!Any(rule.memory_kinds, Word(s.device->memory_kind))) return false;
  if (!rule.targets.empty() && !Any(rule.targets, s.device->gfx_target) &&
      !Any(rule.targets, s.device->pci_id)) {
    return false;
  }
  if (s.model == nullptr)
    return rule.formats.empty() && rule.quantizations.empty() && rule.capabilities.empty();
  if (!Any(rule.formats, s.model->format) || !Any(rule.quantizations, s.model->quantization)) return false;
  return rule.capabilities.empty() ||
         std::any_of(rule.capabilities.begin(), rule.capabilities.end(),
                     [&](const std::string& word) { return In(s.model->capabilities, word); });
}

std::string Join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

// What support hangs on is the chip's target, not what it is sold as.
std::string Named(const Device& device) {
  return device.name + (device.gfx_target.empty() ? "" : " (" + device.gfx_target + ")");
}

class Enumerator {
 public:
  Enumerator(const PlanRequest& request, const Topology& topology, const EngineCatalog& catalog)
      : request_(request), topology_(topology), catalog_(catalog), system_(SystemOf(request, topology)) {}

  PlanOptions Run() {
    for (const CatalogEngine& engine : catalog_.engines) {
      const bool named = request_.overrides.engine == engine.name;
      if (!request_.overrides.engine.empty() ? !named : !engine.automatic) continue;
      Engine(engine);
    }
    return std::move(out_);
  }

 private:
  void Refuse(const CatalogEngine& engine, Reason code, std::string reason) {
    Rejected r;
    r.engine = engine.name;
    r.reason_code = code;
    r.reason = std::move(reason);
    out_.rejected.push_back(std::move(r));
  }

  void Engine(const CatalogEngine& engine) {
    const auto system = engine.systems.find(system_);
    const std::string word = system == engine.systems.end() ? "unknown" : system->second;
    if (word == "unsupported" || word == "unknown") {
      Refuse(engine, Reason::kSystemUnsupported,
             engine.title + (word == "unknown" ? " is not known to run on " : " does not run natively on ") +
                 system_ + (engine.system_note.empty() ? "" : ": " + engine.system_note));
      return;
    }
    std::vector<InstalledEngine> builds;
    for (const InstalledEngine& installed : request_.installed) {
      if (installed.name == engine.name &&
          (request_.overrides.build.empty() || request_.overrides.build == installed.build))
        builds.push_back(installed);
    }
    if (request_.assume_installed) {
      InstalledEngine any{engine.name, "", engine.version, {}};
      for (const CatalogBackend& backend : engine.backends) any.backends.push_back(backend.name);
      builds = {any};
    }
    if (builds.empty()) {
      Refuse(engine, Reason::kEngineNotInstalled,
             engine.title + (request_.overrides.build.empty()
                                 ? " is not installed here"
                                 : ": its build '" + request_.overrides.build + "' is not installed here"));
      return;
    }
    for (const PlanVariant* variant : Variants(engine)) Variant(engine, word, builds, variant);
  }

  std::vector<const PlanVariant*> Variants(const CatalogEngine& engine) {
    std::vector<const PlanVariant*> list;
    for (const PlanVariant& variant : request_.variants) {
      if (request_.overrides.variant.empty() || request_.overrides.variant == variant.id)
        list.push_back(&variant);
    }
    if (list.empty() && engine.memory == MemoryModel::kFixed) list.push_back(nullptr);
    return list;
  }

  void Variant(const CatalogEngine& engine, const std::string& system_word,
               const std::vector<InstalledEngine>& builds, const PlanVariant* variant) {
    if (variant != nullptr && !In(engine.formats, "any")) {
      const ModelDescriptor& model = variant->descriptor;
      const bool can = model.capabilities.empty() || In(engine.capabilities, "any") ||
                       std::any_of(model.capabilities.begin(), model.capabilities.end(),
                                   [&](const std::string& word) { return In(engine.capabilities, word); });
      if (!In(engine.formats, model.format) || !can) {
        Rejected r;
        r.variant = variant->id;
        r.engine = engine.name;
        std::string device;
        for (const CatalogBackend& backend : engine.backends) {
          const Device* found = DeviceOf(backend);
          if (!r.backend.empty() || found == nullptr) continue;
          r.backend = backend.name;
          r.devices = {found->id};
          if (found->kind == DeviceKind::kNpu) device = ", which is what " + found->name + " has";
        }
        r.reason_code = can ? Reason::kFormatUnsupported : Reason::kCapabilityMissing;
        r.reason = can ? engine.title + device + ", runs " + Join(engine.formats) + " files; this one is " +
                             model.format
                       : engine.title + device + ", cannot " + Join(model.capabilities);
        out_.rejected.push_back(std::move(r));
        return;
      }
    }
    for (const InstalledEngine& build : builds) {
      for (const CatalogBackend& backend : engine.backends) {
        if (!In(build.backends, backend.name)) continue;
        if (!request_.overrides.backend.empty() && request_.overrides.backend != backend.name) continue;
        Backend({variant, &engine, &backend, build.build, build.version, {}, {}, "", {}, {}, {}},
                system_word);
      }
    }
  }

  const Device* DeviceOf(const CatalogBackend& backend) const {
    for (const Device& device : topology_.devices) {
      for (const BackendSupport& b : device.backends) {
        if (b.name == backend.name && In(backend.device_kinds, Word(device.kind))) return &device;
      }
    }
    return nullptr;
  }

  // Every device that has the backend, alone; then the first 2, 3, ... of those that may share a model.
  void Backend(PlanOption option, const std::string& system_word) {
    std::vector<PlanOption> single;
    for (const Device& device : topology_.devices) {
      const auto access =
          std::find_if(device.backends.begin(), device.backends.end(),
                       [&](const BackendSupport& b) { return b.name == option.backend->name; });
      if (access == device.backends.end()) continue;
      // A renderer on the CPU stands where a GPU would: refused below unless it is named.
      if (!device.software && !In(option.backend->device_kinds, Word(device.kind))) continue;
      PlanOption one = option;
      one.devices = {&device};
      one.access = {&*access};
      if (Allowed(one, device, *access, system_word)) single.push_back(std::move(one));
    }
    std::vector<PlanOption> sets;
    PlanOption set = option;
    for (const PlanOption& one : single) {
      if (!option.backend->multi_device || one.devices[0]->secondary || one.devices[0]->software) continue;
      const bool first = set.devices.empty();
      set.devices.push_back(one.devices[0]);
      set.access.push_back(one.access[0]);
      if (first) {
        set.maturity = one.maturity, set.notes = one.notes;
        set.settings = one.settings, set.environment = one.environment;
      } else {
        sets.push_back(set);
      }
    }
    for (PlanOption& one : single) out_.options.push_back(std::move(one));
    for (PlanOption& several : sets) out_.options.push_back(std::move(several));
  }

  bool Allowed(PlanOption& option, const Device& device, const BackendSupport& access,
               const std::string& system_word) {
    const bool named = request_.overrides.device == device.id;
    if (!request_.overrides.device.empty() && !named && request_.overrides.device != option.backend->name) {
      return false;
    }
    const auto no = [&](Reason code, std::string why) {
      out_.rejected.push_back(Reject(option, code, std::move(why)));
      return false;
    };
    if (device.software && !named) {
      return no(Reason::kDeviceNotUsable, device.name + " is a renderer on the CPU: never chosen by itself");
    }
    if (!device.usable && !device.software) {
      return no(Reason::kDeviceNotUsable, device.name + " is not usable: " + device.reason);
    }
    if (!access.usable && !(device.software && named)) {
      return no(Reason::kBackendUnavailable,
                option.backend->name + " does not work on " + device.name + ": " + access.reason);
    }
    if (!request_.contract.device_kind.empty() && request_.contract.device_kind != Word(device.kind)) {
      return no(Reason::kContractUnsatisfiable, "the contract asks for a " + request_.contract.device_kind +
                                                    ", " + device.name + " is a " + Word(device.kind));
    }
    if (request_.contract.local_only && option.engine->kind == "remote") {
      return no(Reason::kContractUnsatisfiable, "the contract keeps the model on this machine");
    }
    return Supported(option, device, system_word, named, no);
  }

  template <typename No>
  bool Supported(PlanOption& option, const Device& device, const std::string& system_word, bool named,
                 const No& no) {
    const RuleSubject subject{system_, &device,
                              option.variant == nullptr ? nullptr : &option.variant->descriptor};
    const auto rule = std::find_if(option.backend->support.begin(), option.backend->support.end(),
                                   [&](const CatalogRule& r) { return Holds(r, subject); });
    if (rule == option.backend->support.end()) {
      return no(Reason::kUnverified,
                "nothing is known about " + option.engine->title + " on " + Named(device));
    }
    option.maturity = Weaker(rule->maturity, system_word);
    const std::string note = rule->note.empty() ? "" : ": " + rule->note;
    if (option.maturity == "unsupported") {
      return no(Reason::kBackendUnavailable,
                option.engine->title + " does not support " + Named(device) + note);
    }
    const bool chosen = named || !request_.overrides.engine.empty();
    if (In(catalog_.never_automatic, option.maturity) && !chosen) {
      return no(Reason::kUnverified, option.engine->title + " on " + Named(device) + " is " +
                                         option.maturity + ", so it is never chosen by itself" + note);
    }
    if (!rule->note.empty()) option.notes.push_back(rule->note);
    Apply(*rule, option);
    for (const CatalogRule& advice : option.backend->advice) {
      if (!Holds(advice, subject)) continue;
      Apply(advice, option);
      if (!advice.note.empty()) option.notes.push_back(advice.note);
    }
    return true;
  }

  static void Apply(const CatalogRule& rule, PlanOption& option) {
    for (const auto& [key, value] : rule.settings) option.settings[key] = value;
    for (const auto& [key, value] : rule.environment) option.environment[key] = value;
  }

  // The less trusted of two maturity words.
  std::string Weaker(const std::string& a, const std::string& b) const {
    const auto rank = [&](const std::string& word) {
      return std::find(catalog_.maturity.begin(), catalog_.maturity.end(), word) - catalog_.maturity.begin();
    };
    return rank(a) >= rank(b) ? a : b;
  }

  const PlanRequest& request_;
  const Topology& topology_;
  const EngineCatalog& catalog_;
  const std::string system_;
  PlanOptions out_;
};

}  // namespace

Rejected Reject(const PlanOption& option, Reason code, std::string reason) {
  Rejected r;
  if (option.variant != nullptr) r.variant = option.variant->id;
  r.engine = option.engine->name;
  r.engine_build = option.build;
  r.backend = option.backend->name;
  for (const Device* device : option.devices) r.devices.push_back(device->id);
  r.reason_code = code;
  r.reason = std::move(reason);
  return r;
}

PlanOptions EnumerateOptions(const PlanRequest& request, const Topology& topology,
                             const EngineCatalog& catalog) {
  return Enumerator(request, topology, catalog).Run();
}

}  // namespace rumbo
