#include "daemon/http/json_in.h"

#include <cmath>

#include "base/status.h"
#include "daemon/http/errors.h"
#include "daemon/http/gathered.h"
#include "daemon/http/json_out.h"

namespace rumbo {
namespace {

std::string Shown(double value) {
  std::string out;
  json_out::AppendDouble(out, value);
  return out;
}

}  // namespace

absl::StatusOr<json::object> ParseObject(std::string_view body, json::storage_ptr storage, size_t max_depth) {
  json::error_code error;
  json::parse_options options;
  options.max_depth = max_depth;
  json::value value = json::parse({body.data(), body.size()}, error, std::move(storage), options);
  if (error == json::error::too_deep) {
    return InvalidArgument("the request body nests deeper than " + std::to_string(max_depth) + " levels");
  }
  if (error) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kInvalidArgument,
                 "the request body is not valid JSON: " + error.message(), "Send one JSON object in UTF-8.");
  }
  if (!value.is_object()) return InvalidArgument("the request body is not a JSON object");
  return std::move(value.get_object());
}

std::string ObjectOrEmpty(const std::string& arguments_json) {
  json::monotonic_resource memory;
  return ParseObject(arguments_json, &memory).ok() ? arguments_json : "{}";
}

const json::value* Fields::Find(std::string_view key) const {
  const json::value* value = object_.if_contains({key.data(), key.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string Fields::Path(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

std::string Fields::Path(std::string_view key, size_t index) const {
  return Path(key) + "[" + std::to_string(index) + "]";
}

void Fields::Fail(std::string_view key, std::string_view message) { FailAt(Path(key), message); }

void Fields::FailAt(std::string_view path, std::string_view message) {
  if (status_.ok()) status_ = FieldError(path, message);
}

std::optional<std::string_view> Fields::String(std::string_view key) {
  const json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Fail(key, "must be a string");
    return std::nullopt;
  }
  return View(value->get_string());
}

std::optional<bool> Fields::Bool(std::string_view key) {
  const json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) {
    Fail(key, "must be true or false");
    return std::nullopt;
  }
  return value->get_bool();
}

std::optional<int64_t> Fields::Int(std::string_view key, int64_t low, int64_t high) {
  const json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = AsInt(*value, low, high);
  if (!number) {
    Fail(key, "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

std::optional<uint64_t> Fields::Uint64(std::string_view key) {
  const json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_uint64()) return value->get_uint64();
  if (value->is_int64()) return static_cast<uint64_t>(value->get_int64());
  Fail(key, "must be a whole number of at most 64 bits");
  return std::nullopt;
}

std::optional<double> Fields::Number(std::string_view key, double low, double high) {
  const json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = AsNumber(*value);
  if (!number || *number < low || *number > high) {
    Fail(key, "must be a number from " + Shown(low) + " to " + Shown(high));
    return std::nullopt;
  }
  return number;
}

const json::array* Fields::Array(std::string_view key) {
  const json::value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    Fail(key, "must be an array");
    return nullptr;
  }
  return &value->get_array();
}

const json::object* Fields::Object(std::string_view key) {
  const json::value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    Fail(key, "must be an object");
    return nullptr;
  }
  return &value->get_object();
}

std::optional<double> AsNumber(const json::value& value) {
  double number = 0;
  if (value.is_int64()) {
    number = static_cast<double>(value.get_int64());
  } else if (value.is_uint64()) {
    number = static_cast<double>(value.get_uint64());
  } else if (value.is_double()) {
    number = value.get_double();
  } else {
    return std::nullopt;
  }
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<int64_t> AsInt(const json::value& value, int64_t low, int64_t high) {
  int64_t number = 0;
  if (value.is_int64()) {
    number = value.get_int64();
  } else if (value.is_uint64()) {
    return std::nullopt;  // Boost keeps what fits int64 as int64
  } else if (value.is_double()) {
    const double d = value.get_double();
    if (!(d >= -9007199254740992.0 && d <= 9007199254740992.0) || d != std::floor(d)) return std::nullopt;
    number = static_cast<int64_t>(d);
  } else {
    return std::nullopt;
  }
  if (number < low || number > high) return std::nullopt;
  return number;
}

std::string OneLineJson(std::string_view text) {
  // Inside strings line breaks are escaped, so every raw one is white space.
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c != '\n' && c != '\r') out += c;
  }
  return out;
}

RawJson::RawJson(std::string_view text) : text_(text) {
  const size_t begin = SkipSpace(0);
  text_.remove_prefix(begin);
  while (!text_.empty() &&
         (text_.back() == ' ' || text_.back() == '\n' || text_.back() == '\r' || text_.back() == '\t')) {
    text_.remove_suffix(1);
  }
}

size_t RawJson::SkipSpace(size_t at) const {
  while (at < text_.size() &&
         (text_[at] == ' ' || text_[at] == '\n' || text_[at] == '\r' || text_[at] == '\t')) {
    ++at;
  }
  return at;
}

// The text is valid JSON, so strings and brackets are all that matters.
size_t RawJson::ValueEnd(size_t at) const {
  int depth = 0;
  for (; at < text_.size(); ++at) {
    const char c = text_[at];
    if (c == '"') {
      for (++at; at < text_.size() && text_[at] != '"'; ++at) {
        if (text_[at] == '\\') ++at;
      }
      at = std::min(at, text_.size() - 1);
      if (depth == 0) return std::min(at + 1, text_.size());
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    } else if (depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t')) {
      return at;
    }
  }
  return text_.size();
}

std::vector<RawJson> RawJson::Elements() const {
  std::vector<RawJson> out;
  if (text_.size() < 2 || text_.front() != '[') return out;
  size_t at = SkipSpace(1);
  if (at >= text_.size() || text_[at] == ']') return out;
  while (at != std::string_view::npos) {
    const size_t end = ValueEnd(at);
    if (end <= at) break;  // not JSON after all
    out.push_back(RawJson(text_.substr(at, end - at)));
    at = NextElement(end);
  }
  return out;
}

size_t RawJson::NextElement(size_t end) const {
  const size_t at = SkipSpace(end);
  return at >= text_.size() || text_[at] != ',' ? std::string_view::npos : SkipSpace(at + 1);
}

RawJson RawJson::Member(std::string_view key) const {
  RawJson found{std::string_view()};
  if (text_.size() < 2 || text_.front() != '{') return found;
  size_t at = SkipSpace(1);
  while (at < text_.size() && text_[at] == '"') {
    const size_t key_end = ValueEnd(at);
    if (key_end < at + 2) break;
    std::string_view name = text_.substr(at + 1, key_end - at - 2);
    std::string plain;
    if (name.find('\\') != std::string_view::npos) {
      json::error_code error;
      const json::value parsed = json::parse({text_.data() + at, key_end - at}, error);
      if (!error && parsed.is_string()) plain = std::string(View(parsed.get_string()));
      name = plain;
    }
    at = SkipSpace(key_end);
    if (at >= text_.size() || text_[at] != ':') break;
    at = SkipSpace(at + 1);
    const size_t end = ValueEnd(at);
    if (name == key) found = RawJson(text_.substr(at, end - at));
    at = NextElement(end);
  }
  return found;
}

}  // namespace rumbo
