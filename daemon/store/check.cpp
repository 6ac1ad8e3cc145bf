#include "daemon/store/check.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "base/utf8.h"

namespace rumbo {
namespace {

namespace json = boost::json;

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

bool Has(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// '*' any run of characters; everything else itself.
bool Glob(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = pattern.npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// How engines read an entry of an exclusion list: a glob, a prefix of whole name parts, or the name.
bool Excluded(const std::vector<std::string>& patterns, const std::string& module) {
  for (const std::string& entry : patterns) {
    std::string pattern = entry;
    if (pattern.rfind("re:", 0) == 0) {
      // A regular expression is judged only in its commonest form, ".*" for a star.
      pattern.erase(0, 3);
      std::string glob;
      for (size_t i = 0; i < pattern.size(); ++i) {
        if (pattern.compare(i, 2, ".*") == 0) {
          glob += '*', ++i;
        } else if (pattern[i] != '\\' && pattern[i] != '^' && pattern[i] != '$') {
          glob += pattern[i];
        }
      }
      if (Glob(glob, module) || Glob(glob + "*", module)) return true;
    }
    if (Glob(pattern, module) || module == pattern) return true;
    if (module.size() > pattern.size() && module.compare(0, pattern.size(), pattern) == 0 &&
        module[pattern.size()] == '.')
      return true;
  }
  return false;
}

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

// The names under which engines look a module of the draft up: as stored; without the layer's number, as
// SGLang's NextN classes build it; and fused.
std::vector<std::string> LookupNames(const std::string& module, int main_layers) {
  std::vector<std::string> names = {module};
  const std::string prefix = "model.layers." + std::to_string(main_layers) + ".";
  if (main_layers > 0 && module.rfind(prefix, 0) == 0) {
    const std::string rest = module.substr(prefix.size());
    names.push_back("model." + rest);
    names.push_back("model.decoder." + rest);
  }
  const size_t plain = names.size();
  for (size_t i = 0; i < plain; ++i) {
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      if (Contains(names[i], std::string(".") + part)) names.push_back(Replace(names[i], part, "qkv_proj"));
    }
    for (const char* part : {"gate_proj", "up_proj"}) {
      if (Contains(names[i], std::string(".") + part))
        names.push_back(Replace(names[i], part, "gate_up_proj"));
    }
  }
  return names;
}

CheckItem Item(const char* severity, const char* code, std::string text, std::string remedy = "") {
  CheckItem item;
  item.severity = severity;
  item.code = code;
  item.text = std::move(text);
  item.remedy = std::move(remedy);
  return item;
}

// The key of the list, and the list, of whatever tool wrote the configuration.
std::pair<std::string, std::vector<std::string>> ExclusionsOf(const json::object& quantization) {
  for (const char* key :
       {"exclude", "modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"}) {
    const json::value* list = quantization.if_contains(key);
    if (list == nullptr || !list->is_array()) continue;
    std::vector<std::string> out;
    for (const json::value& entry : list->get_array()) {
      if (entry.is_string()) out.emplace_back(entry.get_string().c_str());
    }
    return {key, out};
  }
  return {"", {}};
}

std::string Some(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 3; ++i)
    out += (i == 0 ? "" : ", ") + EscapeForLog(names[i], 100);
  if (names.size() > 3) out += " and " + std::to_string(names.size() - 3) + " more";
  return out;
}

}  // namespace

std::vector<CheckItem> CheckQuantization(const std::string& config_text,
                                         const std::vector<TensorEntry>& tensors) {
  std::vector<CheckItem> out;
  boost::system::error_code error;
  const json::value config = json::parse(config_text, error);
  if (error || !config.is_object()) return {Item("broken", "config", "config.json is no JSON object")};
  const json::object& root = config.get_object();
  const json::value* text_config = root.if_contains("text_config");
  const auto number = [&](const char* key) {
    for (const json::object* o : {&root, text_config != nullptr ? text_config->if_object() : nullptr}) {
      const json::value* v = o != nullptr ? o->if_contains(key) : nullptr;
      if (v != nullptr && v->is_int64()) return static_cast<int>(v->get_int64());
    }
    return 0;
  };
  const int main_layers = number("num_hidden_layers");
  const int promised = std::max(
      {number("num_nextn_predict_layers"), number("mtp_num_hidden_layers"), number("mtp_num_layers")});
  // Modules by name: whether they are of the draft, and how they are stored.
  std::set<std::string> scaled;
  for (const TensorEntry& tensor : tensors) {
    for (const char* end : {".weight_scale", ".weight_scale_inv", ".scales", ".weight_scale_2"}) {
      const size_t at = tensor.name.size() > std::string_view(end).size()
                            ? tensor.name.size() - std::string_view(end).size()
                            : 0;
      if (at > 0 && tensor.name.compare(at, std::string::npos, end) == 0)
        scaled.insert(tensor.name.substr(0, at));
    }
  }
  const std::string draft_prefix = "model.layers." + std::to_string(main_layers) + ".";
  std::vector<std::string> plain;
  bool draft = false;
  for (const TensorEntry& tensor : tensors) {
    const bool mtp = tensor.name.rfind("mtp.", 0) == 0 || Contains(tensor.name, ".mtp.") ||
                     (main_layers > 0 && tensor.name.rfind(draft_prefix, 0) == 0);
    if (!mtp) continue;
    draft = true;
    if (tensor.name.size() < 8 || tensor.name.compare(tensor.name.size() - 7, 7, ".weight") != 0) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - 7);
    const std::string last = module.substr(module.rfind('.') + 1);
    const bool linear =
        Contains(last, "proj") || last == "fc" || last == "gate" || Contains(last, "head") || last[0] == 'w';
    const bool full = tensor.dtype == "BF16" || tensor.dtype == "F16" || tensor.dtype == "F32";
    if (linear && full && scaled.count(module) == 0) plain.push_back(module);
  }
  if (promised > 0 && !draft) {
    out.push_back(Item("broken", "mtp.missing",
                       "config.json promises " + std::to_string(promised) +
                           " multi-token-prediction layers; the files have none: an engine that is told to "
                           "use them accepts 0 %",
                       "Run it without speculation, or take a copy that kept them."));
  }
  const json::value* q = root.if_contains("quantization_config");
  if (q == nullptr || !q->is_object()) return out;
  const json::object& quantization = q->get_object();
  const auto [key, patterns] = ExclusionsOf(quantization);
  std::vector<std::string> missing, uncovered;
  for (const std::string& module : plain) {
    if (!Excluded(patterns, module)) uncovered.push_back(module);
    for (const std::string& name : LookupNames(module, main_layers)) {
      if (!Excluded(patterns, name) && std::find(missing.begin(), missing.end(), name) == missing.end())
        missing.push_back(name);
    }
  }
  std::vector<std::string> dead;
  for (const std::string& pattern : patterns) {
    bool hit = pattern.find('*') != std::string::npos && Contains(pattern, "embed");
    for (const TensorEntry& tensor : tensors) {
      const size_t at = tensor.name.rfind('.');
      hit = hit || Excluded({pattern}, tensor.name.substr(0, at));
    }
    if (!hit) dead.push_back(pattern);
  }
  if (!missing.empty()) {
    CheckItem item =
        Item("broken", "mtp.excluded_names",
             !uncovered.empty()
                 ? "the draft's modules are stored unquantised and the quantisation's list does not exclude "
                   "them (" +
                       Some(uncovered) +
                       "): an engine builds them quantised, and loading fails or every draft is rejected"
                 : "the draft's modules are excluded under the names of the files, not under those that "
                   "engines look up (" +
                       Some(missing) + ")",
             "Start the engine with the override: vLLM `--hf-overrides \"$(cat rumbo-hf-overrides.json)\"`, "
             "SGLang "
             "`--json-model-override-args \"$(cat rumbo-hf-overrides.json)\"`.");
    json::object fixed = quantization;
    json::array list;
    for (const std::string& pattern : patterns) list.push_back(json::string(pattern));
    for (const std::string& name : missing) list.push_back(json::string(name));
    fixed[key.empty() ? "exclude" : key] = std::move(list);
    item.file_name = "rumbo-hf-overrides.json";
    item.file_content = json::serialize(json::object{{"quantization_config", std::move(fixed)}}) + "\n";
    item.source =
        "https://github.com/sgl-project/sglang/pull/30265, /pull/38870; "
        "https://github.com/vllm-project/vllm/pull/52649, /issues/54547 (2026-11-30)";
    out.push_back(std::move(item));
  } else if (!plain.empty()) {
    out.push_back(Item("ok", "mtp.excluded_names",
                       std::to_string(plain.size()) + " unquantised modules of the draft are all excluded"));
  }
  if (!dead.empty()) {
    out.push_back(Item(
        "warning", "quantization.dead_names",
        "the quantisation excludes names that no tensor has: " + Some(dead),
        "Compare them with the tensors' names; a wrong prefix leaves a layer quantised that should not be."));
  }
  return out;
}

std::vector<CheckItem> CheckTemplateText(const std::string& text) {
  std::vector<CheckItem> out;
  std::vector<std::string> found;
  for (const char* word :
       {"__class__", "__globals__", "__builtins__", "__subclasses__", "__mro__", "__import__", "__init__",
        "cycler", "joiner", "lipsum", "os.popen", "subprocess", "eval(", "exec("}) {
    if (Contains(text, word)) found.push_back(word);
  }
  if (!found.empty()) {
    out.push_back(Item(
        "broken", "template.code", "the chat template reaches for what only an attack needs: " + Some(found),
        "Do not use this file with engines that render templates in Python; take the model from its maker."));
  }
  for (size_t at = 0; (at = text.find("range(", at)) != std::string::npos; ++at) {
    size_t digits = 0;
    while (at + 6 + digits < text.size() &&
           (std::isdigit(static_cast<unsigned char>(text[at + 6 + digits])) || text[at + 6 + digits] == '_'))
      ++digits;
    if (digits >= 6) {
      out.push_back(Item("warning", "template.loop",
                         "the chat template loops very often: range(" +
                             EscapeForLog(text.substr(at + 6, std::min<size_t>(digits, 20)), 20) + ")"));
      break;
    }
  }
  return out;
}

namespace {

void CheckLayers(const ModelDescriptor& d, std::vector<CheckItem>& out) {
  std::vector<std::string> empty;
  size_t drafts = 0, empty_drafts = 0;
  for (size_t i = 0; i < d.layers.size(); ++i) {
    const LayerDescriptor& layer = d.layers[i];
    const bool none = layer.attention_bytes == 0 && layer.dense_ffn_bytes == 0 && layer.expert_bytes == 0;
    if (layer.mtp) {
      ++drafts;
      empty_drafts += none;
    } else if (none) {
      empty.push_back(std::to_string(i));
    }
  }
  if (!empty.empty()) {
    out.push_back(Item("broken", "tensors.missing", "layers without any tensor: " + Some(empty),
                       "The file was cut or converted wrongly; get it again."));
  }
  if (d.mtp_layers > 0 && (drafts == 0 || empty_drafts == drafts)) {
    out.push_back(Item(
        "broken", "mtp.missing",
        "the model promises " + std::to_string(d.mtp_layers) + " multi-token-prediction layers and has none",
        "Run it without speculation, or take a copy that kept them."));
  } else if (d.mtp_layers > 0) {
    out.push_back(
        Item("ok", "mtp", std::to_string(d.mtp_layers) + " multi-token-prediction layers are there"));
  }
  if (d.unknown_architecture) {
    out.push_back(Item("warning", "architecture.unknown",
                       "no rules are known for the architecture " + EscapeForLog(d.architecture, 60) +
                           ": plans are estimates, and engines may refuse it"));
  } else if (!d.layers.empty() && empty.empty()) {
    out.push_back(Item("ok", "structure",
                       d.format + ", " + EscapeForLog(d.architecture, 60) + ", " +
                           std::to_string(d.layers.size()) + " layers, " + FormatBytes(d.tensor_bytes)));
  }
}

void CheckTemplate(const ModelDescriptor& d, const TemplateReport* report, std::vector<CheckItem>& out) {
  const bool speaks = Has(d.capabilities, "generate") || Has(d.capabilities, "chat");
  if (!speaks) return;
  if (!d.has_chat_template) {
    out.push_back(
        Item("warning", "template.missing",
             "the model has no chat template: it continues text, and chats only as the engine guesses",
             "Use the instruction-tuned copy for chats."));
    return;
  }
  for (CheckItem& item : CheckTemplateText(d.chat_template)) out.push_back(std::move(item));
  if (report == nullptr || !report->ran) {
    out.push_back(Item("info", "template.not_rendered",
                       "the chat template was not tried: no helper for it is installed"));
  } else if (!report->error.empty()) {
    out.push_back(Item("broken", "template.fails", "the chat template cannot be used: " + report->error,
                       "Take the template from the model's maker."));
  } else {
    out.push_back(Item("ok", "template",
                       std::string("the chat template renders a conversation") +
                           (report->supports_tools ? ", with tools" : "; it knows no tools")));
    if (!report->supports_system) {
      out.push_back(Item("info", "template.system", "the chat template drops or refuses a system message"));
    }
  }
}

void CheckTypes(const CheckRequest& request, std::vector<CheckItem>& out) {
  const ModelDescriptor& d = request.descriptor;
  bool fp4 = Contains(d.quantization, "MXFP4"), fp8 = false;
  for (const auto& [type, bytes] : d.bytes_by_type) {
    fp4 = fp4 || type == "F4" || type == "MXFP4" || type == "F8_E8M0";
    fp8 = fp8 || type == "F8_E4M3" || type == "F8_E5M2";
  }
  if (request.topology == nullptr || (!fp4 && !fp8)) return;
  for (const Device& device : request.topology->devices) {
    if (device.kind != DeviceKind::kGpu || device.software) continue;
    const std::string& gfx = device.gfx_target;
    if (gfx.empty()) {
      out.push_back(Item("info", "dtype.unknown",
                         device.name + ": its kind is not known, so neither is what it computes natively"));
      continue;
    }
    const bool amd = gfx.rfind("gfx", 0) == 0;
    if (fp4 && amd && gfx.rfind("gfx95", 0) != 0) {
      out.push_back(Item("warning", "dtype.mxfp4",
                         device.name + " (" + gfx +
                             ") has no MXFP4 arithmetic: the weights are small, the speed is that of BF16",
                         "On such a device another quantisation may be faster: `rumbo plan` compares."));
      out.back().source = "https://github.com/vllm-project/vllm/blob/main/vllm/platforms/rocm.py (2026-09)";
    }
    const bool amd_fp8 =
        gfx == "gfx90a" || gfx == "gfx942" || gfx.rfind("gfx95", 0) == 0 || gfx.rfind("gfx12", 0) == 0;
    if (fp8 && amd && !amd_fp8) {
      out.push_back(Item("warning", "dtype.fp8", device.name + " (" + gfx + ") has no FP8 arithmetic",
                         "Take BF16 or a 4-bit quantisation for it."));
      out.back().source = "https://github.com/vllm-project/vllm/blob/main/vllm/platforms/rocm.py (2026-09)";
    }
  }
}

void CheckRest(const ModelDescriptor& d, std::vector<CheckItem>& out) {
  const bool speaks = Has(d.capabilities, "generate");
  if (!d.has_tokenizer && speaks) {
    out.push_back(Item(
        "broken", "tokenizer.missing", "the model has no tokenizer",
        d.format == "gguf" ? "Get a complete GGUF." : "Add tokenizer.json from the model's repository."));
  } else if (d.has_tokenizer) {
    out.push_back(Item("ok", "tokenizer",
                       "tokenizer " +
                           EscapeForLog(d.tokenizer_model.empty() ? "found" : d.tokenizer_model, 40) +
                           (d.vocabulary > 0 ? ", " + std::to_string(d.vocabulary) + " tokens" : "")));
  }
  std::string rope;
  for (const auto& [key, value] : d.metadata) {
    if (Contains(key, "rope") && Contains(key, "scaling"))
      rope += (rope.empty() ? "" : ", ") + EscapeForLog(key + " " + value, 100);
  }
  if (d.context_trained == 0) {
    out.push_back(
        Item("info", "context.unknown", "the file does not say for what context the model was trained"));
  } else {
    out.push_back(Item(
        "ok", "context",
        "trained for " + std::to_string(d.context_trained) + " tokens" + (rope.empty() ? "" : ", " + rope)));
  }
  std::string licence;
  for (const char* key : {"general.license", "license"}) {
    const auto it = d.metadata.find(key);
    if (licence.empty() && it != d.metadata.end()) licence = EscapeForLog(it->second, 100);
  }
  out.push_back(licence.empty()
                    ? Item("info", "licence.unknown", "the file names no licence", "See the model's page.")
                    : Item("info", "licence", "licence: " + licence));
  for (const std::string& note : d.notes) out.push_back(Item("info", "note", EscapeForLog(note, 300)));
}

}  // namespace

std::vector<CheckItem> CheckDescriptor(const CheckRequest& request, const TemplateReport* template_report,
                                       const std::vector<KnownProblem>& rules) {
  std::vector<CheckItem> out;
  const ModelDescriptor& d = request.descriptor;
  if (request.state == "incomplete") {
    out.push_back(
        Item("broken", "incomplete", "the model is not downloaded to its end", "`rumbo pull` goes on."));
    return out;
  }
  if (request.state == "damaged") {
    out.push_back(Item("broken", "damaged", "a stored file is missing or not what it was",
                       "`rumbo models verify " + request.name + "` says which; pull or import it again."));
  }
  CheckLayers(d, out);
  CheckTemplate(d, template_report, out);
  CheckTypes(request, out);
  CheckRest(d, out);
  std::set<std::string> backends;
  for (const Device& device :
       request.topology != nullptr ? request.topology->devices : std::vector<Device>()) {
    for (const BackendSupport& backend : device.backends) backends.insert(backend.name);
  }
  for (const KnownProblem& rule : rules) {
    if (!request.engine.empty() && rule.engine != request.engine) continue;
    if (!rule.architecture.empty() && rule.architecture != d.architecture) continue;
    if (!rule.quantization.empty() && !Contains(d.quantization, rule.quantization)) continue;
    if (rule.needs == "mtp" && d.mtp_layers == 0) continue;
    // A rule about a backend counts where that backend is here, or where the engine was asked about by name.
    if (!rule.backend.empty() && request.engine.empty() && backends.count(rule.backend) == 0) continue;
    // Nobody asked about this engine and nothing of the model matches in particular: too much noise.
    if (request.engine.empty() && rule.architecture.empty() && rule.quantization.empty() &&
        rule.needs.empty())
      continue;
    CheckItem item = Item("warning", "engine.known_problem",
                          rule.engine + " " + rule.versions + ": " + rule.text, rule.remedy);
    item.code = "known." + rule.id;
    item.source = rule.source + " (" + rule.checked + ")";
    out.push_back(std::move(item));
  }
  return out;
}

}  // namespace rumbo
