#include "sdk/cpp/json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <boost/json.hpp>
#include <charconv>
#include <cmath>

namespace rumbo {
namespace {

namespace bj = boost::json;
namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

bj::value MessageValue(const pb::Message& message);

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

bj::value Real(double value) { return std::isfinite(value) ? bj::value(value) : bj::value(nullptr); }

// A float through its own shortest digits: 0.1f is 0.1, not 0.10000000149011612.
bj::value Real(float value) {
  if (!std::isfinite(value)) return nullptr;
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  double wide = 0;
  std::from_chars(buffer, end, wide);
  return wide;
}

bj::value StringValue(const Field& field, const std::string& text) {
  return field.type() == Field::TYPE_BYTES ? bj::value(Base64(text)) : bj::value(text);
}

bj::value SingleValue(const pb::Message& message, const Field& field) {
  const pb::Reflection& r = *message.GetReflection();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_INT32:
      return r.GetInt32(message, &field);
    case Field::CPPTYPE_INT64:
      return r.GetInt64(message, &field);
    case Field::CPPTYPE_UINT32:
      return r.GetUInt32(message, &field);
    case Field::CPPTYPE_UINT64:
      return r.GetUInt64(message, &field);
    case Field::CPPTYPE_DOUBLE:
      return Real(r.GetDouble(message, &field));
    case Field::CPPTYPE_FLOAT:
      return Real(r.GetFloat(message, &field));
    case Field::CPPTYPE_BOOL:
      return r.GetBool(message, &field);
    case Field::CPPTYPE_ENUM:
      return bj::value(r.GetEnum(message, &field)->name());
    case Field::CPPTYPE_STRING:
      return StringValue(field, r.GetString(message, &field));
    case Field::CPPTYPE_MESSAGE:
      return MessageValue(r.GetMessage(message, &field));
  }
  return nullptr;
}

bj::value ElementValue(const pb::Message& message, const Field& field, int i) {
  const pb::Reflection& r = *message.GetReflection();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_INT32:
      return r.GetRepeatedInt32(message, &field, i);
    case Field::CPPTYPE_INT64:
      return r.GetRepeatedInt64(message, &field, i);
    case Field::CPPTYPE_UINT32:
      return r.GetRepeatedUInt32(message, &field, i);
    case Field::CPPTYPE_UINT64:
      return r.GetRepeatedUInt64(message, &field, i);
    case Field::CPPTYPE_DOUBLE:
      return Real(r.GetRepeatedDouble(message, &field, i));
    case Field::CPPTYPE_FLOAT:
      return Real(r.GetRepeatedFloat(message, &field, i));
    case Field::CPPTYPE_BOOL:
      return r.GetRepeatedBool(message, &field, i);
    case Field::CPPTYPE_ENUM:
      return bj::value(r.GetRepeatedEnum(message, &field, i)->name());
    case Field::CPPTYPE_STRING:
      return StringValue(field, r.GetRepeatedString(message, &field, i));
    case Field::CPPTYPE_MESSAGE:
      return MessageValue(r.GetRepeatedMessage(message, &field, i));
  }
  return nullptr;
}

std::string KeyText(const bj::value& key) {
  return key.is_string() ? std::string(key.get_string()) : PrintJson(key, 0);
}

// Sorted by key: protobuf maps have no order of their own, and equal messages print equal.
bj::value MapValue(const pb::Message& message, const Field& field) {
  const pb::Reflection& r = *message.GetReflection();
  const Field& key = *field.message_type()->map_key();
  const Field& value = *field.message_type()->map_value();
  std::vector<std::pair<std::string, bj::value>> entries;
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    const pb::Message& entry = r.GetRepeatedMessage(message, &field, i);
    entries.emplace_back(KeyText(SingleValue(entry, key)), SingleValue(entry, value));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  bj::object out;
  for (auto& [name, element] : entries) out[name] = std::move(element);
  return out;
}

bj::value FieldValue(const pb::Message& message, const Field& field) {
  const pb::Reflection& r = *message.GetReflection();
  if (field.is_map()) return MapValue(message, field);
  if (field.is_repeated()) {
    bj::array out;
    const int size = r.FieldSize(message, &field);
    out.reserve(size);
    for (int i = 0; i < size; ++i) out.push_back(ElementValue(message, field, i));
    return out;
  }
  if (field.has_presence() && !r.HasField(message, &field)) return nullptr;
  return SingleValue(message, field);
}

bj::value MessageValue(const pb::Message& message) {
  const pb::Descriptor& type = *message.GetDescriptor();
  bj::object out;
  out.reserve(type.field_count());
  for (int i = 0; i < type.field_count(); ++i)
    out[type.field(i)->name()] = FieldValue(message, *type.field(i));
  return out;
}

class Printer {
 public:
  explicit Printer(int indent) : indent_(indent) {}

  void Print(const bj::value& value, int depth) {
    if (const auto* object = value.if_object()) return PrintObject(*object, depth);
    if (const auto* array = value.if_array()) return PrintArray(*array, depth);
    if (const auto* number = value.if_double()) return PrintDouble(*number);
    text += bj::serialize(value);
  }

  std::string text;

 private:
  void Line(int depth) {
    if (indent_ > 0) text.append(1, '\n').append(static_cast<size_t>(indent_) * depth, ' ');
  }

  void PrintDouble(double number) {
    if (!std::isfinite(number)) {
      text += "null";
      return;
    }
    char buffer[64];
    text.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
  }

  void PrintArray(const bj::array& array, int depth) {
    if (array.empty()) {
      text += "[]";
      return;
    }
    text += '[';
    bool first = true;
    for (const auto& element : array) {
      if (!first) text += ',';
      first = false;
      Line(depth + 1);
      Print(element, depth + 1);
    }
    Line(depth);
    text += ']';
  }

  void PrintObject(const bj::object& object, int depth) {
    if (object.empty()) {
      text += "{}";
      return;
    }
    text += '{';
    bool first = true;
    for (const auto& [key, element] : object) {
      if (!first) text += ',';
      first = false;
      Line(depth + 1);
      text += bj::serialize(key);
      text += indent_ > 0 ? ": " : ":";
      Print(element, depth + 1);
    }
    Line(depth);
    text += '}';
  }

  const int indent_;
};

}  // namespace

bj::value ToJsonValue(const pb::Message& message) { return MessageValue(message); }

std::string PrintJson(const bj::value& value, int indent) {
  Printer printer(indent);
  printer.Print(value, 0);
  return std::move(printer.text);
}

std::string ToJson(const pb::Message& message, int indent) { return PrintJson(ToJsonValue(message), indent); }

std::string QuoteJson(std::string_view text) {
  return bj::serialize(bj::string_view(text.data(), text.size()));
}

}  // namespace rumbo
