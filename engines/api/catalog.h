#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"

// engines/catalog.yaml and engines/speed.yaml as values: what is known about each engine, with a maturity
// word and a source for every statement. The planner, the launcher, the doctor, `rumbo engines` and the docs
// read this and nothing else.
namespace rumbo {

// How an engine lays out memory; the planner has one model for each.
//   layered  a graph over layers: weights per layer, a fixed cache of cells, compute buffers (GGUF engines)
//   paged    whole weights per device, a pool of cache blocks, workspace (servers for many sessions)
//   whole    weights and workspace, no cache of its own accord (speech, images, encoders)
//   fixed    so many bytes whatever it runs (test engines, attached endpoints)
enum class MemoryModel { kLayered, kPaged, kWhole, kFixed };

// A rule of a backend: the first whose conditions all hold decides. Empty conditions hold always.
struct CatalogRule {
  std::vector<std::string> systems;  // "linux", "windows", "macos"
  std::vector<std::string> targets;  // Device::gfx_target or pci_id; "gfx11*" matches by prefix
  std::vector<std::string> vendors;
  std::vector<std::string> device_kinds;   // "cpu", "gpu", "npu"
  std::vector<std::string> memory_kinds;   // "unified", "discrete" ...
  std::vector<std::string> formats;        // "gguf", "safetensors", "q4nx", "onnx"
  std::vector<std::string> quantizations;  // ModelDescriptor::quantization; prefix match with '*'
  std::vector<std::string> capabilities;   // of the model
  std::string maturity;                    // a word of EngineCatalog::maturity
  std::string note;                        // for people
  std::string source;                      // key of EngineCatalog::sources
  std::map<std::string, std::string>
      settings;  // engine settings to set; "draft_tokens": a prior, see the planner
  std::map<std::string, std::string> environment;  // environment to set
};

struct CatalogBackend {
  std::string name;  // "cpu", "vulkan", "hip", "cuda", "xdna", ...
  std::vector<std::string> device_kinds;
  std::vector<CatalogRule> support;            // which system, device and format, how mature
  std::vector<CatalogRule> advice;             // every matching one adds its settings, environment and note
  std::vector<std::string> kv_types;           // first: the default
  std::vector<std::string> kv_types_hardware;  // of these, only where Device::number_formats has the word
  bool multi_device = false;                   // can split a model over several devices of this backend
  bool partial_offload = false;                // layers may stay in host memory
  Bytes device_overhead_bytes = 0;             // runtime context per process and device
  Bytes host_overhead_bytes = 0;
  std::string overhead_source;
  bool exclusive_device = false;  // one instance per device
  int energy_rank = 9;            // where power is unknown: 1 is the thriftiest kind
};

struct CatalogEngine {
  std::string name;
  std::string title;
  std::string kind;  // "worker", "process", "attached", "remote", "test"
  MemoryModel memory = MemoryModel::kFixed;
  std::string version;  // that the statements are about
  std::string homepage;
  std::string license;
  std::string origin;  // where it comes from: "pack native|prebuilt", "pypi vllm" ...
  std::vector<std::string> formats;
  std::vector<std::string> capabilities;       // of models it can run
  std::map<std::string, std::string> systems;  // system -> maturity word
  std::string system_note;                     // why a system is missing, for people
  std::vector<CatalogBackend> backends;
  uint32_t max_sessions = 1;
  bool session_isolation = true;  // false: one request at a time whatever the sessions
  bool batches = true;            // runs several sessions in one step
  bool speculative = false;       // can use MTP layers or drafts
  uint32_t max_draft_tokens = 0;
  bool draft_models = false;    // a smaller model may guess ahead
  bool disk_cache = false;      // keeps prompts on disk, within a quota
  double workspace_factor = 0;  // whole: workspace / weights
  Bytes fixed_bytes = 0;        // fixed: in all
  Bytes host_cache_most = 0;    // host memory for states that leave the KV cache; 0: the engine keeps none
  double start_s = 0;           // until ready, without reading weights
  std::string start_source;
  bool automatic = true;                      // false: only where the user names it
  std::map<std::string, std::string> launch;  // process engines: readiness, metrics, drain, port flag ...
  std::vector<std::string> scrub_environment;
  std::map<std::string, std::string> failure_texts;  // text -> what it means
  std::map<std::string, std::string> sandbox;
  std::string source;
};

// One set of speed constants. The most specific row wins: build, then weights, then ISA, then vendor.
struct SpeedRow {
  std::string engine, backend;
  std::string build;                // "" any
  std::string weights;              // a type word with '*': "Q4*", "BF16"; "" any
  std::string vendor;               // "" any
  std::string isa;                  // CPU: only where Device::isa has this word; "" any
  double bandwidth_efficiency = 0;  // share of the peak bandwidth that a step of few tokens reaches
  double prompt_bandwidth = 0;      // the same for a prompt; 0: bandwidth_efficiency
  double kv_efficiency = 0;         // the same for the cache; 0: bandwidth_efficiency
  double compute_efficiency = 0;    // share of the peak rate that a prompt reaches
  double batch_efficiency = 0;      // the same for a step of few tokens; 0: compute_efficiency
  double overlap = 1;               // 1: reading and computing hide each other; 0: they add up
  std::string rate = "fp16";        // which peak: "fp32", "fp16", "bf16", "fp8", "int8"
  double step_overhead_us = 0;      // per step
  double layer_overhead_us = 0;     // per layer and step
  double expert_overhead_us = 0;    // more per layer with experts
  double sequence_overhead_us = 0;  // per sequence and step
  double thread_overhead_us = 0;    // per CPU thread, layer and step: threads wait for each other
  double draft_overhead_us = 0;     // per drafted token
  double prompt_overhead_ms = 0;    // per request
  double linear_prompt_ms = 0;      // more per request and layer with a linear or scan mixer
  double uncertainty = 0.5;         // relative, see Predicted::uncertainty
  std::string source;
};

struct EngineCatalog {
  std::vector<std::string> maturity;         // known words, most trusted first
  std::vector<std::string> never_automatic;  // of these, the ones never chosen by themselves
  std::map<std::string, double> caution;  // maturity word -> factor by which it must be better to be chosen
  std::map<std::string, std::string> sources;
  std::vector<CatalogEngine> engines;  // in order of preference at ties
  std::vector<SpeedRow> speed;
  // Stated assumptions where a profile has no number, by name ("disk_bytes_s", "cpu_clock_hz" ...).
  std::map<std::string, double> assumptions;

  const CatalogEngine* Find(std::string_view name) const {
    for (const CatalogEngine& engine : engines) {
      if (engine.name == name) return &engine;
    }
    return nullptr;
  }
};

// Reads both files. Errors: kInvalidArgument naming the line or key: unknown keys and maturity words, sources
// that are not listed, numbers out of range, two engines of one name.
absl::StatusOr<EngineCatalog> ParseCatalog(std::string_view catalog_yaml, std::string_view speed_yaml);

// The files this program was built with; parsed once, at first use. They are tested to be valid.
const EngineCatalog& BuiltInCatalog();

// The texts themselves.
std::string_view BuiltInCatalogYaml();
std::string_view BuiltInSpeedYaml();

// True where `word` is `pattern`, or `pattern` ends in '*' and `word` starts with what is before it.
bool MatchesPattern(std::string_view pattern, std::string_view word);

}  // namespace rumbo
