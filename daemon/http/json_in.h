#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rumbo {

namespace json = boost::json;

// The body as a JSON object. kInvalidArgument where it is no JSON (ill-formed UTF-8 and lone surrogates
// included), nests deeper than `max_depth`, or is no object. The value lives in `storage`.
absl::StatusOr<json::object> ParseObject(std::string_view body, json::storage_ptr storage,
                                         size_t max_depth = 64);

inline std::string_view View(const json::string& s) { return {s.data(), s.size()}; }
inline std::string_view View(json::string_view s) { return {s.data(), s.size()}; }

// Typed, range-checked reading of one object's fields. null counts as absent. The first fault stays in the
// shared status, with the field's path; reading goes on with absent values, so callers check once at the end.
class Fields {
 public:
  Fields(const json::object& object, std::string path, absl::Status& status)
      : object_(object), path_(std::move(path)), status_(status) {}

  // nullptr where absent or null.
  const json::value* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  std::optional<std::string_view> String(std::string_view key);
  std::optional<bool> Bool(std::string_view key);
  std::optional<int64_t> Int(std::string_view key, int64_t low, int64_t high);
  std::optional<uint64_t> Uint64(std::string_view key);
  std::optional<double> Number(std::string_view key, double low, double high);
  const json::array* Array(std::string_view key);
  const json::object* Object(std::string_view key);

  // "path.key"
  std::string Path(std::string_view key) const;
  std::string Path(std::string_view key, size_t index) const;
  void Fail(std::string_view key, std::string_view message);
  void FailAt(std::string_view path, std::string_view message);
  absl::Status& status() { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  const json::object& object_;
  std::string path_;
  absl::Status& status_;
};

// An integer in [low, high], also where it is written as 16.0; nullopt otherwise.
std::optional<int64_t> AsInt(const json::value& value, int64_t low, int64_t high);
std::optional<double> AsNumber(const json::value& value);  // finite

// The same JSON without line breaks between its tokens, for formats where a line is a record. Valid JSON in.
std::string OneLineJson(std::string_view text);

// The bytes of a value inside valid JSON text, as the client wrote them: what must reach an engine unchanged
// (schemas, tool parameters) is cut out of the text rather than written anew. Views into the text.
class RawJson {
 public:
  explicit RawJson(std::string_view text);  // trims white space
  std::string_view text() const { return text_; }
  // The last member of that name, as JSON parsers take it; empty text where there is none or this is no
  // object.
  RawJson Member(std::string_view key) const;
  // The elements of an array; empty for anything else.
  std::vector<RawJson> Elements() const;

 private:
  size_t SkipSpace(size_t at) const;
  size_t ValueEnd(size_t at) const;
  size_t NextElement(size_t end) const;
  std::string_view text_;
};

}  // namespace rumbo
