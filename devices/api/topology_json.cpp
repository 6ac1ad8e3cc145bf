#include "devices/api/topology_json.h"

#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr size_t kMaxInput = 16 * kMiB;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxItems = 65536;

// Every field once: the writer and the reader below both walk these lists.
template <typename V, typename T>
void VisitLimit(V& v, T& x) {
  v("id", x.id), v("kind", x.kind), v("max_bytes", x.max_bytes), v("used_bytes", x.used_bytes);
  v("source", x.source);
}

template <typename V, typename T>
void VisitPool(V& v, T& x) {
  v("id", x.id), v("kind", x.kind), v("total_bytes", x.total_bytes), v("free_bytes", x.free_bytes);
  v("limits", x.limits), v("source", x.source);
}

template <typename V, typename T>
void VisitBackend(V& v, T& x) {
  v("name", x.name), v("usable", x.usable), v("reason", x.reason), v("remedy", x.remedy);
  v("version", x.version), v("selector", x.selector), v("pools", x.pools);
  v("may_span_pools", x.may_span_pools);
}

template <typename V, typename T>
void VisitDevice(V& v, T& x) {
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

template <typename V, typename T>
void VisitFinding(V& v, T& x) {
  v("severity", x.severity), v("code", x.code), v("device", x.device), v("text", x.text);
  v("remedy", x.remedy);
}

template <typename V, typename T>
void VisitPrice(V& v, T& x) {
  v("amount", x.amount), v("currency", x.currency), v("date", x.date), v("source", x.source);
}

template <typename V, typename T>
void VisitTopology(V& v, T& x) {
  v("source", x.source), v("system", x.system), v("name", x.name), v("devices", x.devices);
  v("pools", x.pools), v("findings", x.findings), v("price", x.price), v("interconnect", x.interconnect);
}

template <typename V, typename T>
void Visit(V& v, T& x) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, MemoryLimit>) VisitLimit(v, x);
  else if constexpr (std::is_same_v<U, MemoryPool>) VisitPool(v, x);
  else if constexpr (std::is_same_v<U, BackendSupport>) VisitBackend(v, x);
  else if constexpr (std::is_same_v<U, Device>) VisitDevice(v, x);
  else if constexpr (std::is_same_v<U, Finding>) VisitFinding(v, x);
  else if constexpr (std::is_same_v<U, Price>) VisitPrice(v, x);
  else VisitTopology(v, x);
}

// --- writing ---

json::value ToValue(const std::string& s) { return json::value(json::string(SanitizeUtf8(s))); }
json::value ToValue(bool b) { return json::value(b); }
json::value ToValue(Bytes n) { return json::value(n); }
json::value ToValue(int n) { return json::value(n); }

// Whole numbers are written as such: exact, and readable ("640000000000").
json::value ToValue(double d) {
  if (!std::isfinite(d)) return nullptr;
  if (std::abs(d) < 9007199254740992.0 && d == std::floor(d)) return json::value(static_cast<int64_t>(d));
  return json::value(d);
}

template <typename E>
  requires std::is_enum_v<E>
json::value ToValue(E e) {
  return json::value(Word(e));
}

template <typename T>
json::value ToValue(const std::optional<T>& x);
template <typename T>
json::value ToValue(const std::vector<T>& x);

struct Writer {
  json::object out;
  template <typename T>
  void operator()(const char* key, const T& x) {
    out.emplace(key, ToValue(x));
  }
  template <typename T>
  void operator()(const char* key, const Sourced<T>& x) {
    out.emplace(key, json::object{{"value", ToValue(x.value)}, {"source", ToValue(x.source)}});
  }
};

template <typename T>
  requires std::is_class_v<T>
json::value ToValue(const T& x) {
  Writer writer;
  Visit(writer, x);
  return std::move(writer.out);
}

template <typename T>
json::value ToValue(const std::optional<T>& x) {
  return x ? ToValue(*x) : json::value(nullptr);
}

template <typename T>
json::value ToValue(const std::vector<T>& x) {
  json::array out;
  out.reserve(x.size());
  for (const T& item : x) out.push_back(ToValue(item));
  return out;
}

// --- reading ---

// The first error wins; `path` says where we are.
struct ReadState {
  std::string error;
  std::string path = "$";
  void Fail(std::string_view what) {
    if (error.empty()) error = path + " " + std::string(what);
  }
};

template <typename E, size_t N>
void FromWord(const json::value& v, E& out, const E (&all)[N], ReadState& state) {
  const json::string* s = v.if_string();
  if (s == nullptr) return state.Fail("is not a string");
  for (E e : all) {
    if (*s == Word(e)) {
      out = e;
      return;
    }
  }
  state.Fail("has an unknown word");
}

void FromValue(const json::value& v, DeviceKind& out, ReadState& s) {
  FromWord(v, out, {DeviceKind::kCpu, DeviceKind::kGpu, DeviceKind::kNpu}, s);
}
void FromValue(const json::value& v, MemoryKind& out, ReadState& s) {
  FromWord(v, out, {MemoryKind::kHost, MemoryKind::kDiscrete, MemoryKind::kUnified, MemoryKind::kUnknown}, s);
}
void FromValue(const json::value& v, PoolKind& out, ReadState& s) {
  FromWord(v, out, {PoolKind::kSystem, PoolKind::kVram, PoolKind::kCarveout}, s);
}
void FromValue(const json::value& v, LimitKind& out, ReadState& s) {
  FromWord(v, out,
           {LimitKind::kGtt, LimitKind::kTtm, LimitKind::kKfd, LimitKind::kCgroup, LimitKind::kReserve,
            LimitKind::kOther},
           s);
}
void FromValue(const json::value& v, Severity& out, ReadState& s) {
  FromWord(v, out, {Severity::kInfo, Severity::kWarning, Severity::kBroken}, s);
}

void FromValue(const json::value& v, std::string& out, ReadState& s) {
  if (const json::string* text = v.if_string()) out.assign(text->data(), text->size());
  else s.Fail("is not a string");
}
void FromValue(const json::value& v, bool& out, ReadState& s) {
  if (const bool* b = v.if_bool()) out = *b;
  else s.Fail("is not true or false");
}
void FromValue(const json::value& v, Bytes& out, ReadState& s) {
  if (const uint64_t* u = v.if_uint64()) out = *u;
  else if (const int64_t* i = v.if_int64(); i != nullptr && *i >= 0) out = static_cast<Bytes>(*i);
  else s.Fail("is not a whole number of bytes");
}
void FromValue(const json::value& v, int& out, ReadState& s) {
  const int64_t* i = v.if_int64();
  if (i != nullptr && *i >= std::numeric_limits<int>::min() && *i <= std::numeric_limits<int>::max()) {
    out = static_cast<int>(*i);
  } else {
    s.Fail("is not an integer");
  }
}
void FromValue(const json::value& v, double& out, ReadState& s) {
  if (const double* d = v.if_double()) out = *d;
  else if (const int64_t* i = v.if_int64()) out = static_cast<double>(*i);
  else if (const uint64_t* u = v.if_uint64()) out = static_cast<double>(*u);
  else s.Fail("is not a number");
}

template <typename T>
void FromValue(const json::value& v, std::optional<T>& out, ReadState& s) {
  if (v.is_null()) {
    out = std::nullopt;
    return;
  }
  T value{};
  FromValue(v, value, s);
  out = std::move(value);
}
template <typename T>
void FromValue(const json::value& v, std::vector<T>& out, ReadState& s);

struct Reader {
  const json::object& in;
  ReadState& state;

  template <typename T>
  void operator()(const char* key, T& x) {
    const json::value* v = in.if_contains(key);
    if (v == nullptr || !state.error.empty()) return;
    const size_t length = state.path.size();
    state.path += std::string(".") + key;
    Read(*v, x);
    state.path.resize(length);
  }

 private:
  template <typename T>
  void Read(const json::value& v, T& x) {
    FromValue(v, x, state);
  }
  template <typename T>
  void Read(const json::value& v, Sourced<T>& x) {
    const json::object* object = v.if_object();
    if (object == nullptr) return state.Fail("is not an object");
    Reader inner{*object, state};
    inner("value", x.value);
    inner("source", x.source);
  }
};

template <typename T>
  requires std::is_class_v<T>
void FromValue(const json::value& v, T& out, ReadState& s) {
  const json::object* object = v.if_object();
  if (object == nullptr) return s.Fail("is not an object");
  Reader reader{*object, s};
  Visit(reader, out);
}

template <typename T>
void FromValue(const json::value& v, std::vector<T>& out, ReadState& s) {
  const json::array* array = v.if_array();
  if (array == nullptr) return s.Fail("is not a list");
  if (array->size() > kMaxItems) return s.Fail("has too many items");
  out.clear();
  for (size_t i = 0; i < array->size() && s.error.empty(); ++i) {
    const size_t length = s.path.size();
    s.path += "[" + std::to_string(i) + "]";
    T item{};
    FromValue((*array)[i], item, s);
    out.push_back(std::move(item));
    s.path.resize(length);
  }
}

absl::Status Malformed(std::string_view what) {
  return InvalidArgument("topology: " + std::string(what), "Run rumbo-probe --json again, or fix the file.");
}

}  // namespace

std::string TopologyToJson(const Topology& topology) { return json::serialize(ToValue(topology)); }

absl::StatusOr<Topology> TopologyFromJson(std::string_view text) {
  if (text.size() > kMaxInput) return Malformed("longer than " + FormatBytes(kMaxInput));
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::error_code error;
  const json::value value = json::parse({text.data(), text.size()}, error, {}, options);
  if (error) return Malformed("not JSON: " + error.message());
  ReadState state;
  Topology topology;
  FromValue(value, topology, state);
  if (!state.error.empty()) return Malformed(state.error);
  return topology;
}

}  // namespace rumbo
