#include "rumbo/shape.h"

#include <boost/json.hpp>
#include <cmath>

#include "sdk/cpp/json.h"

namespace rumbo::inline sdk::shape_detail {
namespace {

namespace json = boost::json;

// A Node is a json::value; the header does not know.
const json::value& Value(const Node& node) { return reinterpret_cast<const json::value&>(node); }
const Node& AsNode(const json::value& value) { return reinterpret_cast<const Node&>(value); }

Error WrongShape(const std::string& what) {
  Error error;
  error.code = Code::kDataLoss;
  error.reason_code = "WRONG_SHAPE";
  error.message = "the answer does not have the shape that was asked for: " + what;
  error.next_step = "Allow more tokens, or simplify the shape.";
  return error;
}

}  // namespace

bool Read(const Node& node, std::string& out) {
  const json::string* text = Value(node).if_string();
  if (text != nullptr) out.assign(text->data(), text->size());
  return text != nullptr;
}

bool Read(const Node& node, bool& out) {
  const bool* value = Value(node).if_bool();
  if (value != nullptr) out = *value;
  return value != nullptr;
}

bool Read(const Node& node, int64_t& out) {
  // 3.0 is an integer in JSON.
  boost::system::error_code error;
  const int64_t value = Value(node).to_number<int64_t>(error);
  if (!error) out = value;
  return !error;
}

bool Read(const Node& node, double& out) {
  boost::system::error_code error;
  const double value = Value(node).to_number<double>(error);
  if (!error) out = value;
  return !error;
}

bool IsNull(const Node& node) { return Value(node).is_null(); }

const Node* Member(const Node& object, std::string_view name) {
  const json::object* members = Value(object).if_object();
  const json::value* value = members == nullptr ? nullptr : members->if_contains(name);
  return value == nullptr ? nullptr : &AsNode(*value);
}

bool IsArray(const Node& node) { return Value(node).is_array(); }
size_t Size(const Node& array) { return Value(array).get_array().size(); }
const Node& At(const Node& array, size_t index) { return AsNode(Value(array).get_array()[index]); }

std::string Quoted(std::string_view text) { return QuoteJson(text); }

std::optional<Error> WithParsed(const std::string& text,
                                const std::function<std::string(const Node&)>& body) {
  boost::system::error_code failed;
  const json::value root = json::parse(text, failed);
  if (failed) return WrongShape("it is no whole JSON text");
  const std::string wrong = body(AsNode(root));
  if (!wrong.empty()) return WrongShape(wrong);
  return std::nullopt;
}

}  // namespace rumbo::inline sdk::shape_detail
