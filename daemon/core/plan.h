#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/reason.h"
#include "daemon/core/calibration.h"
#include "engines/api/settings.h"

// A placement decision as data. The C++ face of rumbo.v1.Plan; meanings and units as in plan.proto.
namespace rumbo {

struct Workload {
  std::optional<uint32_t> sessions;
  std::optional<uint32_t> context;  // tokens for all sessions together
  std::optional<uint32_t> prompt_tokens;
  std::optional<uint32_t> answer_tokens;
  std::optional<uint32_t> shared_prefix_tokens;
  std::string objective;  // "", "latency", "throughput", "energy", "memory"
  std::optional<double> draft_acceptance;
  bool operator==(const Workload&) const = default;
};

struct Contract {
  std::string device_kind;              // "", "cpu", "gpu", "npu"
  std::optional<uint32_t> min_context;  // tokens per session
  std::optional<double> min_tokens_per_s;
  bool local_only = false;
  bool operator==(const Contract&) const = default;
};

struct PlanOverrides {
  std::string engine;
  std::string device;  // device id or backend name
  std::optional<uint32_t> threads;
  std::string kv_type;
  std::optional<uint32_t> gpu_layers;
  bool force = false;
  std::string variant;
  std::string build;                 // of the engine: "native", "prebuilt" ...
  std::string backend;               // with `device`: of its backends this one
  std::optional<std::string> knobs;  // TuningKnobs::Text() to take, whatever was found best
  std::string pooling;
  std::optional<uint32_t> draft_tokens;
  std::string draft_model;
  bool operator==(const PlanOverrides&) const = default;
};

struct Predicted {
  std::optional<double> ttft_ms;
  std::optional<double> decode_tok_s;
  std::optional<double> aggregate_tok_s;
  std::optional<double> load_s;
  std::optional<double> energy_j_per_tok;
  std::optional<double> uncertainty;
  std::string source;
};

struct Candidate {
  std::string variant;
  std::string engine;
  std::string engine_version;
  std::string engine_build;
  std::string backend;
  std::vector<std::string> devices;
  EngineSettings settings;
  std::vector<MemoryItem> memory;  // one per (pool, what)
  Predicted predicted;
  std::vector<std::string> reasons;
  std::string maturity;
  // Bytes against limits (limit id), beside the bytes in pools: both must hold.
  std::map<std::string, Bytes> limit_bytes;
  // The predictions before this machine's measurements corrected them: what a new measurement is compared
  // with.
  Predicted uncorrected;
  std::vector<MemoryItem> uncorrected_memory;
  std::map<std::string, std::string> environment;  // to set for the engine
  CalibrationKey key;                              // what measurements of it are filed under
  TuningKnobs knobs;                               // that a tuning run found better than the planner's own
};

struct Rejected {
  std::string variant;
  std::string engine;
  std::string engine_build;
  std::string backend;
  std::vector<std::string> devices;
  Reason reason_code = Reason::kUnspecified;
  std::string reason;
  Predicted predicted;
  std::vector<MemoryItem> memory;
};

struct Refusal {
  Reason reason_code = Reason::kUnspecified;
  std::string reason;
  std::string pool;
  std::optional<Bytes> missing_bytes;
  std::optional<Workload> nearest;
  std::string next_step;
};

struct Plan {
  std::optional<Candidate> chosen;
  std::vector<Rejected> rejected;
  std::optional<Refusal> refusal;  // set where chosen is not
  std::string model;
  Workload workload;                   // every default filled in
  std::vector<std::string> evictions;  // instance ids, in order
  bool forced = false;
  std::string hardware;
  uint64_t ledger_generation = 0;
};

}  // namespace rumbo
