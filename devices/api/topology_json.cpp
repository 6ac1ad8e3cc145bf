#include "devices/api/topology_json.h"

#include "devices/api/json_fields.h"

namespace rumbo {

namespace json_fields {
template <>
struct EnumWords<DeviceKind> {
  static constexpr DeviceKind kAll[] = {DeviceKind::kCpu, DeviceKind::kGpu, DeviceKind::kNpu};
};
template <>
struct EnumWords<MemoryKind> {
  static constexpr MemoryKind kAll[] = {MemoryKind::kHost, MemoryKind::kDiscrete, MemoryKind::kUnified,
                                        MemoryKind::kUnknown};
};
template <>
struct EnumWords<PoolKind> {
  static constexpr PoolKind kAll[] = {PoolKind::kSystem, PoolKind::kVram, PoolKind::kCarveout};
};
template <>
struct EnumWords<LimitKind> {
  static constexpr LimitKind kAll[] = {LimitKind::kGtt,    LimitKind::kTtm,     LimitKind::kKfd,
                                       LimitKind::kCgroup, LimitKind::kReserve, LimitKind::kOther};
};
template <>
struct EnumWords<Severity> {
  static constexpr Severity kAll[] = {Severity::kInfo, Severity::kWarning, Severity::kBroken};
};
}  // namespace json_fields

namespace {
template <typename T, typename U>
concept Is = std::is_same_v<std::remove_const_t<T>, U>;
}

template <typename V, Is<MemoryLimit> T>
void VisitFields(V& v, T& x) {
  v("id", x.id), v("kind", x.kind), v("max_bytes", x.max_bytes), v("used_bytes", x.used_bytes);
  v("devices", x.devices), v("backends", x.backends), v("source", x.source);
}

template <typename V, Is<MemoryPool> T>
void VisitFields(V& v, T& x) {
  v("id", x.id), v("kind", x.kind), v("total_bytes", x.total_bytes), v("free_bytes", x.free_bytes);
  v("limits", x.limits), v("source", x.source);
}

template <typename V, Is<BackendSupport> T>
void VisitFields(V& v, T& x) {
  v("name", x.name), v("usable", x.usable), v("reason", x.reason), v("remedy", x.remedy);
  v("version", x.version), v("selector", x.selector), v("pools", x.pools);
  v("may_span_pools", x.may_span_pools);
}

template <typename V, Is<Device> T>
void VisitFields(V& v, T& x) {
  v("id", x.id), v("kind", x.kind), v("name", x.name), v("vendor", x.vendor);
  v("memory_kind", x.memory_kind), v("memory_kind_rule", x.memory_kind_rule);
  v("pools", x.pools), v("backends", x.backends);
  v("present", x.present), v("accessible", x.accessible), v("usable", x.usable);
  v("reason", x.reason), v("remedy", x.remedy), v("evidence", x.evidence);
  v("pci_address", x.pci_address), v("pci_id", x.pci_id), v("pci_revision", x.pci_revision);
  v("gfx_target", x.gfx_target), v("driver", x.driver), v("driver_version", x.driver_version);
  v("parent", x.parent), v("software", x.software), v("secondary", x.secondary);
  v("bandwidth_bytes_s", x.bandwidth_bytes_s), v("fp16_flops", x.fp16_flops), v("bf16_flops", x.bf16_flops);
  v("fp8_flops", x.fp8_flops), v("int8_ops", x.int8_ops), v("fp32_flops", x.fp32_flops);
  v("power_watts", x.power_watts), v("link_bytes_s", x.link_bytes_s);
  v("number_formats", x.number_formats), v("compute_units", x.compute_units);
  v("cores_physical", x.cores_physical), v("cores_logical", x.cores_logical);
  v("threads_allowed", x.threads_allowed), v("threads_allowed_source", x.threads_allowed_source);
  v("isa", x.isa), v("numa_node", x.numa_node);
}

template <typename V, Is<Finding> T>
void VisitFields(V& v, T& x) {
  v("severity", x.severity), v("code", x.code), v("device", x.device), v("text", x.text);
  v("remedy", x.remedy);
}

template <typename V, Is<Price> T>
void VisitFields(V& v, T& x) {
  v("amount", x.amount), v("currency", x.currency), v("date", x.date), v("source", x.source);
}

template <typename V, Is<Topology> T>
void VisitFields(V& v, T& x) {
  v("source", x.source), v("system", x.system), v("name", x.name), v("devices", x.devices);
  v("pools", x.pools), v("findings", x.findings), v("price", x.price), v("interconnect", x.interconnect);
}

std::string TopologyToJson(const Topology& topology) { return json_fields::ToJson(topology); }

absl::StatusOr<Topology> TopologyFromJson(std::string_view text) {
  return json_fields::FromJson<Topology>(text, "topology", "Run rumbo-probe --json again, or fix the file.");
}

}  // namespace rumbo
