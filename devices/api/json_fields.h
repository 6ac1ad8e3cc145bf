#pragma once

#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/status.h"
#include "base/utf8.h"
#include "devices/api/topology.h"

// Structs to JSON and back from one list of fields each. A struct T takes part by a function beside it,
//   template <typename V> void VisitFields(V& v, T& x) { v("name", x.name); ... }
// (T const or not), an enum by EnumWords<E>::kAll and Word(E).
// Reading is strict about types, ignores unknown keys and has limits; it never throws.
namespace rumbo::json_fields {

namespace json = boost::json;

inline constexpr size_t kMaxInput = 16 * kMiB;
inline constexpr size_t kMaxDepth = 32;
inline constexpr size_t kMaxItems = 65536;

template <typename E>
struct EnumWords;

// --- writing ---

inline json::value ToValue(const std::string& s) { return json::value(json::string(SanitizeUtf8(s))); }
inline json::value ToValue(bool b) { return json::value(b); }
inline json::value ToValue(uint64_t n) { return json::value(n); }
inline json::value ToValue(uint32_t n) { return json::value(n); }
inline json::value ToValue(int n) { return json::value(n); }

// Whole numbers are written as such: exact, and readable ("640000000000").
inline json::value ToValue(double d) {
  if (!std::isfinite(d)) return nullptr;
  if (std::abs(d) < 9007199254740992.0 && d == std::floor(d)) return json::value(static_cast<int64_t>(d));
  return json::value(d);
}

template <typename E>
requires std::is_enum_v<E> json::value ToValue(E e) { return json::value(Word(e)); }

template <typename T>
json::value ToValue(const std::optional<T>& x);
template <typename T>
json::value ToValue(const std::vector<T>& x);
template <typename T>
json::value ToValue(const Sourced<T>& x);

struct Writer {
  json::object out;
  template <typename T>
  void operator()(const char* key, const T& x) {
    out.emplace(key, ToValue(x));
  }
};

template <typename T>
requires std::is_class_v<T> json::value ToValue(const T& x) {
  Writer writer;
  VisitFields(writer, x);
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

template <typename T>
json::value ToValue(const Sourced<T>& x) {
  return json::object{{"value", ToValue(x.value)}, {"source", ToValue(x.source)}};
}

// --- reading ---

// The first error wins; `path` says where we are.
struct State {
  std::string error;
  std::string path = "$";
  void Fail(std::string_view what) {
    if (error.empty()) error = path + " " + std::string(what);
  }
};

template <typename E>
requires std::is_enum_v<E>
void FromValue(const json::value& v, E& out, State& state) {
  const json::string* s = v.if_string();
  if (s == nullptr) return state.Fail("is not a string");
  for (E e : EnumWords<E>::kAll) {
    if (*s == Word(e)) {
      out = e;
      return;
    }
  }
  state.Fail("has an unknown word");
}

inline void FromValue(const json::value& v, std::string& out, State& s) {
  if (const json::string* text = v.if_string())
    out.assign(text->data(), text->size());
  else
    s.Fail("is not a string");
}
inline void FromValue(const json::value& v, bool& out, State& s) {
  if (const bool* b = v.if_bool())
    out = *b;
  else
    s.Fail("is not true or false");
}
inline void FromValue(const json::value& v, uint64_t& out, State& s) {
  if (const uint64_t* u = v.if_uint64())
    out = *u;
  else if (const int64_t* i = v.if_int64(); i != nullptr && *i >= 0)
    out = static_cast<uint64_t>(*i);
  else
    s.Fail("is not a whole number from 0 on");
}
template <typename T>
requires(std::is_same_v<T, int> || std::is_same_v<T, uint32_t>) void FromValue(const json::value& v, T& out,
                                                                               State& s) {
  const int64_t* i = v.if_int64();
  if (i != nullptr && *i >= std::numeric_limits<T>::min() && *i <= std::numeric_limits<T>::max()) {
    out = static_cast<T>(*i);
  } else {
    s.Fail("is not an integer, or too large");
  }
}
inline void FromValue(const json::value& v, double& out, State& s) {
  if (const double* d = v.if_double())
    out = *d;
  else if (const int64_t* i = v.if_int64())
    out = static_cast<double>(*i);
  else if (const uint64_t* u = v.if_uint64())
    out = static_cast<double>(*u);
  else
    s.Fail("is not a number");
}

template <typename T>
void FromValue(const json::value& v, std::optional<T>& out, State& s);
template <typename T>
void FromValue(const json::value& v, std::vector<T>& out, State& s);
template <typename T>
void FromValue(const json::value& v, Sourced<T>& out, State& s);

struct Reader {
  const json::object& in;
  State& state;

  template <typename T>
  void operator()(const char* key, T& x) {
    const json::value* v = in.if_contains(key);
    if (v == nullptr || !state.error.empty()) return;
    const size_t length = state.path.size();
    state.path += std::string(".") + key;
    FromValue(*v, x, state);
    state.path.resize(length);
  }
};

template <typename T>
requires std::is_class_v<T>
void FromValue(const json::value& v, T& out, State& s) {
  const json::object* object = v.if_object();
  if (object == nullptr) return s.Fail("is not an object");
  Reader reader{*object, s};
  VisitFields(reader, out);
}

template <typename T>
void FromValue(const json::value& v, std::optional<T>& out, State& s) {
  if (v.is_null()) {
    out = std::nullopt;
    return;
  }
  T value{};
  FromValue(v, value, s);
  out = std::move(value);
}

template <typename T>
void FromValue(const json::value& v, std::vector<T>& out, State& s) {
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

template <typename T>
void FromValue(const json::value& v, Sourced<T>& out, State& s) {
  const json::object* object = v.if_object();
  if (object == nullptr) return s.Fail("is not an object");
  Reader reader{*object, s};
  reader("value", out.value);
  reader("source", out.source);
}

template <typename T>
std::string ToJson(const T& x) {
  return json::serialize(ToValue(x));
}

// Errors: kInvalidArgument "`what`: ..." with `next_step`.
template <typename T>
absl::StatusOr<T> FromJson(std::string_view text, std::string_view what, std::string_view next_step) {
  const auto fail = [&](const std::string& why) {
    return InvalidArgument(std::string(what) + ": " + why, next_step);
  };
  if (text.size() > kMaxInput) return fail("longer than " + FormatBytes(kMaxInput));
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::error_code error;
  const json::value value = json::parse({text.data(), text.size()}, error, {}, options);
  if (error) return fail("not JSON: " + error.message());
  State state;
  T out;
  FromValue(value, out, state);
  if (!state.error.empty()) return fail(state.error);
  return out;
}

}  // namespace rumbo::json_fields
