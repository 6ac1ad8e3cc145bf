#include "engines/llamacpp/core/schema_check.h"

#include <boost/json.hpp>
#include <set>
#include <string>

#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

namespace json = boost::json;

using Words = std::set<std::string, std::less<>>;

const Words& Annotations() {
  static const Words words = {"title",    "description", "default",  "examples",        "deprecated",
                              "readOnly", "writeOnly",   "$comment", "$schema",         "$id",
                              "$defs",    "definitions", "format",   "contentEncoding", "contentMediaType",
                              "strict",   "name"};
  return words;
}

// Keywords the conversion looks at, by the construct it chooses. Anything else beside them would be ignored.
const Words& KeptFor(std::string_view kind) {
  static const Words ref = {"$ref"};
  static const Words alternatives = {"anyOf", "oneOf"};
  static const Words constant = {"const", "type"};
  static const Words enumeration = {"enum", "type"};
  static const Words object = {"type", "properties", "required", "additionalProperties"};
  static const Words all = {"type", "allOf"};
  static const Words array = {"type", "items", "prefixItems", "minItems", "maxItems"};
  static const Words string = {"type", "pattern", "minLength", "maxLength"};
  static const Words integer = {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
  static const Words plain = {"type"};
  if (kind == "$ref") return ref;
  if (kind == "anyOf") return alternatives;
  if (kind == "const") return constant;
  if (kind == "enum") return enumeration;
  if (kind == "object") return object;
  if (kind == "allOf") return all;
  if (kind == "array") return array;
  if (kind == "string") return string;
  if (kind == "integer") return integer;
  return plain;
}

std::string Escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return EscapeForLog(out, 80);
}

class Checker {
 public:
  explicit Checker(const std::function<bool(std::string_view)>& pattern_supported)
      : pattern_supported_(pattern_supported) {}

  absl::Status Schema(const json::value& value, const std::string& pointer) {
    if (!value.is_object()) return Refuse(pointer, "is no schema object");
    const json::object& schema = value.get_object();
    const std::string kind = Kind(schema);
    const Words kept = kind == "types" ? KeptForTypes(schema.at("type").get_array()) : KeptFor(kind);
    for (const auto& [raw_key, child] : schema) {
      const std::string_view key(raw_key.data(), raw_key.size());
      const std::string at = pointer + "/" + Escaped(key);
      if (Annotations().contains(key)) {
        if (key == "$defs" || key == "definitions") RUMBO_RETURN_IF_ERROR(Definitions(child, at));
        continue;
      }
      if (!kept.contains(key)) return Refuse(at, "is not enforced for " + Describe(kind));
      RUMBO_RETURN_IF_ERROR(Keyword(key, child, at));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Refuse(const std::string& pointer, const std::string& what) {
    return InvalidArgument(
        "sampling.json_schema: " + (pointer.empty() ? "/" : pointer) + " " + what,
        "Remove or rewrite it: answers are never generated without a constraint they were asked to keep.");
  }

  static std::string Describe(const std::string& kind) {
    return kind == "any" ? "a schema without a type" : "this kind of schema (" + kind + ")";
  }

  // The construct the conversion will choose: the same order as there.
  static std::string Kind(const json::object& schema) {
    const auto has = [&](const char* key) { return schema.contains(key); };
    if (has("$ref")) return "$ref";
    if (has("anyOf") || has("oneOf")) return "anyOf";
    std::string type;
    if (const json::value* value = schema.if_contains("type")) {
      if (value->is_array()) return "types";
      if (value->is_string()) type = value->get_string().c_str();
    }
    if (has("const")) return "const";
    if (has("enum")) return "enum";
    if (type.empty()) {
      if (has("properties") || has("additionalProperties")) return "object";
      if (has("allOf")) return "allOf";
      if (has("items") || has("prefixItems")) return "array";
      if (has("pattern") || has("minLength") || has("maxLength")) return "string";
      return "any";
    }
    if ((type == "object" || type == "string") && has("allOf") && !has("properties")) return "allOf";
    return type;
  }

  // A list of types is converted like one schema of each type: what is kept for one of them is kept, as
  // keywords of one type say nothing about values of another. Numbers are the exception: their range is kept
  // for integers only.
  static Words KeptForTypes(const json::array& types) {
    Words kept = KeptFor("any");
    bool number = false;
    for (const json::value& type : types) {
      if (!type.is_string()) continue;
      const Words& more = KeptFor({type.get_string().data(), type.get_string().size()});
      kept.insert(more.begin(), more.end());
      number |= type.get_string() == "number";
    }
    if (number) {
      for (const char* word : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
        kept.erase(word);
    }
    return kept;
  }

  absl::Status Definitions(const json::value& value, const std::string& pointer) {
    if (!value.is_object()) return Refuse(pointer, "is no object");
    for (const auto& [name, schema] : value.get_object()) {
      RUMBO_RETURN_IF_ERROR(Schema(schema, pointer + "/" + Escaped({name.data(), name.size()})));
    }
    return absl::OkStatus();
  }

  absl::Status Keyword(std::string_view key, const json::value& value, const std::string& at) {
    if (key == "properties") return Definitions(value, at);
    if (key == "anyOf" || key == "oneOf" || key == "allOf" || key == "prefixItems") return List(value, at);
    if (key == "items") return value.is_array() ? List(value, at) : Schema(value, at);
    if (key == "additionalProperties") return value.is_bool() ? absl::OkStatus() : Schema(value, at);
    if (key == "pattern") return Pattern(value, at);
    if (key == "minLength" || key == "maxLength" || key == "minItems" || key == "maxItems")
      return Count(value, at);
    return absl::OkStatus();
  }

  absl::Status List(const json::value& value, const std::string& at) {
    if (!value.is_array()) return Refuse(at, "is no array");
    size_t i = 0;
    for (const json::value& schema : value.get_array()) {
      RUMBO_RETURN_IF_ERROR(Schema(schema, at + "/" + std::to_string(i++)));
    }
    return absl::OkStatus();
  }

  absl::Status Pattern(const json::value& value, const std::string& at) {
    if (!value.is_string()) return Refuse(at, "is no text");
    const json::string& text = value.get_string();
    if (!pattern_supported_({text.data(), text.size()})) {
      return Refuse(at, "is a pattern that cannot be enforced (\"" +
                            EscapeForLog({text.data(), text.size()}, 80) + "\")");
    }
    return absl::OkStatus();
  }

  static absl::Status Count(const json::value& value, const std::string& at) {
    if (!value.is_int64() || value.get_int64() < 0) return Refuse(at, "is no count");
    if (value.get_int64() > kMaxSchemaRepeat) {
      return Refuse(
          at, "is " + std::to_string(value.get_int64()) + ", more than " + std::to_string(kMaxSchemaRepeat));
    }
    return absl::OkStatus();
  }

  const std::function<bool(std::string_view)>& pattern_supported_;
};

size_t CountNodes(const json::value& value) {
  size_t count = 1;
  if (value.is_array()) {
    for (const auto& child : value.get_array()) count += CountNodes(child);
  } else if (value.is_object()) {
    for (const auto& [key, child] : value.get_object()) count += CountNodes(child);
  }
  return count;
}

}  // namespace

absl::Status CheckSchema(std::string_view schema,
                         const std::function<bool(std::string_view)>& pattern_supported) {
  json::parse_options options;
  options.max_depth = kMaxSchemaDepth;
  boost::system::error_code error;
  const json::value value = json::parse({schema.data(), schema.size()}, error, {}, options);
  if (error) {
    return InvalidArgument("sampling.json_schema is no JSON of at most " + std::to_string(kMaxSchemaDepth) +
                           " levels: " + error.message());
  }
  if (CountNodes(value) > kMaxSchemaNodes) {
    return InvalidArgument("sampling.json_schema has more than " + std::to_string(kMaxSchemaNodes) +
                           " values");
  }
  return Checker(pattern_supported).Schema(value, "");
}

}  // namespace rumbo
