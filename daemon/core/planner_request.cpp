#include <algorithm>
#include <cmath>
#include <set>

#include "base/status.h"
#include "daemon/core/memory_model.h"
#include "daemon/core/planner_options.h"

namespace rumbo {
namespace {

constexpr uint32_t kDefaultSessions = 4;
constexpr uint32_t kDefaultContext = 4096;  // per session
constexpr uint32_t kDefaultPrompt = 512;
constexpr uint32_t kDefaultAnswer = 256;
constexpr uint32_t kMaxSessions = 1u << 20;
constexpr uint32_t kMaxContext = 1u << 30;

const Device* NamedDevice(const Topology& topology, const std::string& name) {
  const Device* device = topology.FindDevice(name);
  if (device != nullptr) return device;
  for (const Device& d : topology.devices) {
    for (const BackendSupport& backend : d.backends) {
      if (backend.name == name) return &d;
    }
  }
  return nullptr;
}

std::string KnownDevices(const Topology& topology) {
  std::string list;
  for (const Device& device : topology.devices) list += (list.empty() ? "" : ", ") + device.id;
  return list;
}

absl::Status CheckOverrides(const PlanOverrides& overrides, const Topology& topology,
                            const EngineCatalog& catalog) {
  if (!overrides.engine.empty() && catalog.Find(overrides.engine) == nullptr) {
    std::string known;
    for (const CatalogEngine& engine : catalog.engines) known += (known.empty() ? "" : ", ") + engine.name;
    return InvalidArgument("there is no engine '" + overrides.engine + "'", "Choose one of: " + known + ".");
  }
  if (!overrides.device.empty() && NamedDevice(topology, overrides.device) == nullptr) {
    return InvalidArgument("there is no device or backend '" + overrides.device + "' here",
                           "Choose one of: " + KnownDevices(topology) + ".");
  }
  if (!overrides.kv_type.empty() && !IsCacheType(overrides.kv_type)) {
    return InvalidArgument("'" + overrides.kv_type + "' is no type of a KV cache",
                           "Choose f16, bf16, f32, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl or fp8.");
  }
  static const std::set<std::string> kPoolings = {"", "mean", "cls", "last", "rank"};
  if (kPoolings.count(overrides.pooling) == 0) {
    return InvalidArgument("'" + overrides.pooling + "' is no pooling", "Choose mean, cls or last.");
  }
  if (overrides.threads && *overrides.threads == 0) return InvalidArgument("zero threads cannot work");
  for (const Device& device : topology.devices) {
    if (device.kind != DeviceKind::kCpu || device.software || !overrides.threads || !device.threads_allowed)
      continue;
    if (static_cast<int64_t>(*overrides.threads) > *device.threads_allowed) {
      return InvalidArgument(std::to_string(*overrides.threads) + " threads are more than the " +
                                 std::to_string(*device.threads_allowed) + " that " +
                                 device.threads_allowed_source + " allows",
                             "Ask for fewer threads, or none.");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWorkload(const Workload& w) {
  static const std::set<std::string> kObjectives = {"", "latency", "throughput", "energy", "memory"};
  if (kObjectives.count(w.objective) == 0) {
    return InvalidArgument("'" + w.objective + "' is no objective",
                           "Choose latency, throughput, energy or memory.");
  }
  if (w.sessions && (*w.sessions == 0 || *w.sessions > kMaxSessions)) {
    return InvalidArgument(std::to_string(*w.sessions) + " sessions cannot be planned",
                           "Ask for one or more.");
  }
  if (w.context && (*w.context == 0 || *w.context > kMaxContext)) {
    return InvalidArgument("a context of " + std::to_string(*w.context) + " tokens cannot be planned",
                           "Ask for one token or more.");
  }
  if (w.draft_acceptance && !(*w.draft_acceptance >= 0 && *w.draft_acceptance <= 1)) {
    return InvalidArgument("the acceptance of drafts is a share from 0 to 1");
  }
  return absl::OkStatus();
}

absl::Status CheckSystem(const std::string& system) {
  static const std::set<std::string> kSystems = {"", "linux", "windows", "macos"};
  if (kSystems.count(system) > 0) return absl::OkStatus();
  return InvalidArgument("there is no system '" + system.substr(0, 40) + "'",
                         "Choose linux, windows or macos.");
}

absl::Status CheckContract(const Contract& contract) {
  static const std::set<std::string> kKinds = {"", "cpu", "gpu", "npu"};
  if (kKinds.count(contract.device_kind) == 0) {
    return InvalidArgument("'" + contract.device_kind + "' is no kind of device", "Choose cpu, gpu or npu.");
  }
  if (contract.min_tokens_per_s &&
      !(*contract.min_tokens_per_s >= 0 && std::isfinite(*contract.min_tokens_per_s))) {
    return InvalidArgument("the minimum of tokens per second is not a number of at least zero");
  }
  return absl::OkStatus();
}

uint32_t TrainedContext(const PlanRequest& request) {
  uint32_t trained = 0;
  for (const PlanVariant& variant : request.variants) {
    if (!request.overrides.variant.empty() && variant.id != request.overrides.variant) continue;
    trained = std::max(trained, variant.descriptor.context_trained);
  }
  return trained;
}

absl::Status CheckVariants(const PlanRequest& request, const EngineCatalog& catalog) {
  if (!request.overrides.draft_model.empty() && request.draft == nullptr) {
    return Error(absl::StatusCode::kNotFound, Reason::kModelNotFound,
                 "there is no model '" + request.overrides.draft_model + "' to guess ahead",
                 "`rumbo models` shows what there is.");
  }
  const CatalogEngine* engine = catalog.Find(request.overrides.engine);
  if (engine != nullptr && engine->memory == MemoryModel::kFixed) return absl::OkStatus();
  if (request.variants.empty()) return InvalidArgument("the model has no files to run");
  bool found = false;
  for (const PlanVariant& variant : request.variants) {
    found = found || request.overrides.variant.empty() || variant.id == request.overrides.variant;
    if (variant.descriptor.tensor_bytes == 0) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kModelInvalid,
                   "variant '" + variant.id + "' has no tensors", "Import the model again.");
    }
  }
  if (!found) return InvalidArgument("the model has no variant '" + request.overrides.variant + "'");
  return absl::OkStatus();
}

absl::Status CheckContext(const PlanRequest& request, uint32_t sessions) {
  const uint32_t trained = TrainedContext(request);
  const auto too_large = [&](uint64_t asked, const char* what) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kContextTooLarge,
                 "a context of " + std::to_string(asked) + " tokens " + what + " is more than the " +
                     std::to_string(trained) + " the model was trained for",
                 "Ask for at most " + std::to_string(trained) + " tokens per session.");
  };
  if (trained == 0) return absl::OkStatus();
  const uint64_t most = uint64_t{trained} * (request.workload.sessions ? sessions : 1);
  if (request.workload.context && *request.workload.context > most) {
    return too_large(*request.workload.context,
                     request.workload.sessions ? "for all sessions" : "for one session");
  }
  if (request.contract.min_context && *request.contract.min_context > trained) {
    return too_large(*request.contract.min_context, "per session");
  }
  return absl::OkStatus();
}

}  // namespace

std::string SystemOf(const PlanRequest& request, const Topology& topology) {
  return request.system.empty() ? topology.system : request.system;
}

uint32_t DefaultContextPerSession(const PlanRequest& request) {
  const uint32_t trained = TrainedContext(request);
  return trained == 0 ? kDefaultContext : std::min(trained, kDefaultContext);
}

absl::StatusOr<Workload> CompleteWorkload(const PlanRequest& request, const Topology& topology,
                                          const EngineCatalog& catalog) {
  RUMBO_RETURN_IF_ERROR(CheckWorkload(request.workload));
  RUMBO_RETURN_IF_ERROR(CheckSystem(request.system));
  RUMBO_RETURN_IF_ERROR(CheckContract(request.contract));
  RUMBO_RETURN_IF_ERROR(CheckOverrides(request.overrides, topology, catalog));
  RUMBO_RETURN_IF_ERROR(CheckVariants(request, catalog));
  Workload w = request.workload;
  if (!w.sessions) w.sessions = kDefaultSessions;
  RUMBO_RETURN_IF_ERROR(CheckContext(request, *w.sessions));
  if (w.objective.empty()) w.objective = "latency";
  if (!w.prompt_tokens) w.prompt_tokens = kDefaultPrompt;
  if (!w.answer_tokens) w.answer_tokens = kDefaultAnswer;
  if (!w.shared_prefix_tokens) w.shared_prefix_tokens = 0;
  if (!w.context) {
    const uint32_t each =
        std::max(DefaultContextPerSession(request), request.contract.min_context.value_or(0));
    w.context = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{each} * *w.sessions, kMaxContext));
  }
  return w;
}

}  // namespace rumbo
