#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/plan.h"
#include "devices/api/topology.h"
#include "engines/api/engine.h"
#include "engines/api/model_descriptor.h"

namespace rumbo {

struct EngineCatalog;  // engines/api/catalog.h: engines/catalog.yaml as data
struct Calibration;    // daemon/core/calibration.h: what was measured on this machine

// One file set of the model.
struct PlanVariant {
  std::string id;
  ModelDescriptor descriptor;
  std::string sha256;  // key of measurements; may be ""
};

// What the ledger says at this moment, by id. Free bytes already exclude this daemon's promises.
struct LedgerSnapshot {
  uint64_t generation = 0;
  std::map<std::string, Bytes> pool_free;
  std::map<std::string, Bytes> limit_free;
};

// An instance that may be stopped for room, worst to keep first.
struct EvictionCandidate {
  std::string instance_id;
  std::map<std::string, Bytes> pool_bytes;
  std::map<std::string, Bytes> limit_bytes;
  bool operator==(const EvictionCandidate&) const = default;
};

struct PlanRequest {
  std::string model;
  std::vector<PlanVariant> variants;
  Workload workload;
  Contract contract;
  PlanOverrides overrides;
  std::string system;  // "linux", "windows"; "" the topology's own
  LedgerSnapshot ledger;
  std::vector<EvictionCandidate> evictable;
  std::vector<InstalledEngine> installed;  // ignored where assume_installed
  bool assume_installed = false;           // profiles: every catalog engine of the system may be had
  Bytes disk_cache = 0;                    // quota of an instance's prompts on disk
  const ModelDescriptor* draft = nullptr;  // of overrides.draft_model; borrowed for the call
};

// Chooses where a model runs. Pure: no I/O, clock or locks; equal inputs give equal plans; ties go to
// the lowest device id. No product, chip or model-family name stands in it: what is known about them comes
// in through the descriptor, the topology, the catalog and the calibration.
//
// Threading: stateless, any thread. O(variants * engines * devices * settings).
// Returns a Plan, with `chosen` or with `refusal`.
// Errors: kInvalidArgument where the request contradicts itself (a device that does not exist, zero sessions,
// context below 1 or above what the model was trained for, a KV type nobody knows) or no variant has tensors.
absl::StatusOr<Plan> MakePlan(const PlanRequest& request, const Topology& topology,
                              const EngineCatalog& catalog, const Calibration& calibration);

}  // namespace rumbo
