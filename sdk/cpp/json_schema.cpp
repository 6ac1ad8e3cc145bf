#include "sdk/cpp/json_schema.h"

#include <google/protobuf/descriptor.h>

#include <boost/json.hpp>
#include <map>

#include "sdk/cpp/json.h"

namespace rumbo {
namespace {

namespace bj = boost::json;
namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

class Writer {
 public:
  bj::object Message(const pb::Descriptor& type) {
    bj::object properties;
    bj::array required;
    for (int i = 0; i < type.field_count(); ++i) {
      const Field& field = *type.field(i);
      properties[field.name()] = Whole(field);
      required.push_back(bj::value(field.name()));
    }
    return {{"type", "object"},
            {"additionalProperties", false},
            {"required", std::move(required)},
            {"properties", std::move(properties)}};
  }

  bj::object TakeDefinitions() {
    bj::object out;
    for (auto& [name, schema] : definitions_) out[name] = std::move(schema);
    return out;
  }

 private:
  bj::value Whole(const Field& field) {
    if (field.is_map()) {
      return bj::object{{"type", "object"},
                        {"additionalProperties", Single(*field.message_type()->map_value())}};
    }
    if (field.is_repeated()) return bj::object{{"type", "array"}, {"items", Single(field)}};
    bj::value one = Single(field);
    if (!field.has_presence()) return one;
    return bj::object{{"anyOf", bj::array{std::move(one), bj::object{{"type", "null"}}}}};
  }

  bj::value Single(const Field& field) {
    switch (field.cpp_type()) {
      case Field::CPPTYPE_INT32:
      case Field::CPPTYPE_INT64:
        return bj::object{{"type", "integer"}};
      case Field::CPPTYPE_UINT32:
      case Field::CPPTYPE_UINT64:
        return bj::object{{"type", "integer"}, {"minimum", 0}};
      case Field::CPPTYPE_DOUBLE:
      case Field::CPPTYPE_FLOAT:  // NaN and infinities are null
        return bj::object{{"type", bj::array{"number", "null"}}};
      case Field::CPPTYPE_BOOL:
        return bj::object{{"type", "boolean"}};
      case Field::CPPTYPE_ENUM: {
        bj::array words;
        for (int i = 0; i < field.enum_type()->value_count(); ++i)
          words.push_back(bj::value(field.enum_type()->value(i)->name()));
        return bj::object{{"enum", std::move(words)}};
      }
      case Field::CPPTYPE_STRING:
        return bj::object{{"type", "string"}};
      case Field::CPPTYPE_MESSAGE: {
        const pb::Descriptor& type = *field.message_type();
        if (definitions_.count(type.name()) == 0) {
          definitions_[type.name()] = nullptr;  // a type that holds itself ends here
          definitions_[type.name()] = Message(type);
        }
        return bj::object{{"$ref", "#/$defs/" + type.name()}};
      }
    }
    return bj::object();
  }

  std::map<std::string, bj::value> definitions_;
};

}  // namespace

std::string JsonSchemaOf(const pb::Descriptor& type, const std::string& title) {
  Writer writer;
  bj::object schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  for (auto& [key, value] : writer.Message(type)) schema[key] = value;
  schema["$defs"] = writer.TakeDefinitions();
  return PrintJson(schema, 2) + "\n";
}

}  // namespace rumbo
