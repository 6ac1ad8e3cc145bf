#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/topology.h"
#include "engines/api/model_descriptor.h"

namespace rumbo {

// One finding of the preflight.
struct CheckItem {
  std::string severity;  // "ok", "info", "warning", "broken"
  std::string code;      // stable: "structure", "mtp.excluded_names", "dtype.unsupported" ...
  std::string text;
  std::string remedy;
  std::string file_name;  // a file that mends it; "" none
  std::string file_content;
  std::string source;  // of a rule, with its date
};

// A rule about an engine's versions: data, with where it comes from.
struct KnownProblem {
  std::string id, engine, versions, when, text, remedy, source, checked;
  std::string architecture;  // "" any
  std::string quantization;  // "" any
  std::string backend;       // "" any
  std::string needs;         // "" none; "mtp"
};

struct CheckRequest {
  std::string name;
  std::string engine;  // "" whichever; only rules then
  ModelDescriptor descriptor;
  std::vector<std::string> files;  // of the store; in order
  std::string state;               // "complete", "incomplete", "damaged"
  std::string source;
  const Topology* topology = nullptr;  // nullptr unknown
};

// What the confined helper found out about the chat template.
struct TemplateReport {
  bool ran = false;
  std::string error;   // "" rendered
  std::string prompt;  // the first 4 KiB
  bool supports_tools = false;
  bool supports_system = false;
};

// The pure part: no I/O. `template_report` nullptr where it was not tried.
std::vector<CheckItem> CheckDescriptor(const CheckRequest& request, const TemplateReport* template_report,
                                       const std::vector<KnownProblem>& rules);

// The names that a quantisation's configuration excludes, against the tensors there are. `config` is the text
// of config.json, `tensors` the names in the safetensors headers with their types.
struct TensorEntry {
  std::string name;
  std::string dtype;
};
std::vector<CheckItem> CheckQuantization(const std::string& config, const std::vector<TensorEntry>& tensors);

// Whether a template holds what only an attacker needs: attribute walks, imports, long loops.
std::vector<CheckItem> CheckTemplateText(const std::string& text);

}  // namespace rumbo
