#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rumbo/error.h"

// Structured answers as structs, without macros or generated code:
//
//   struct Person { std::string name; int64_t age = 0; std::optional<std::string> email; };
//   const auto shape = rumbo::Shape<Person>()
//       .Field("name", &Person::name)
//       .Field("age", &Person::age, "in years")
//       .Field("email", &Person::email);
//   Person who = client.ChatAs(shape, {.model = "smollm2", .messages = {rumbo::User("Who wrote
//   Faust?")}}).value();
//
// Members may be std::string, bool, integers, floating point, structs with a Shape of their own, and
// std::vector and std::optional of those; an optional member may be missing, the others may not.
namespace rumbo::inline sdk {

namespace shape_detail {

// A value of a parsed JSON text. Each Read gives false where the value is of another type or out of range.
class Node;
bool Read(const Node& node, std::string& out);
bool Read(const Node& node, bool& out);
bool Read(const Node& node, int64_t& out);
bool Read(const Node& node, double& out);
bool IsNull(const Node& node);
const Node* Member(const Node& object, std::string_view name);  // nullptr: none, or no object
bool IsArray(const Node& node);
size_t Size(const Node& array);
const Node& At(const Node& array, size_t index);
std::string Quoted(std::string_view text);
// Calls `body` with the root of `text`; the error that it gives, or that `text` is no JSON.
std::optional<Error> WithParsed(const std::string& text, const std::function<std::string(const Node&)>& body);

}  // namespace shape_detail

template <class T>
class Shape {
 public:
  // A member of T under its name in the answer. `description` helps the model.
  template <class M>
  Shape& Field(std::string name, M T::*member, std::string description = "") {
    return Add<M>(std::move(name), SchemaOf<M>(), std::move(description),
                  [member](const shape_detail::Node& node, T& into) { return Take(node, into.*member); });
  }
  // The same for a member that is a struct, or a vector or optional of structs, with a shape of its own.
  template <class M, class S>
  Shape& Field(std::string name, M T::*member, Shape<S> shape, std::string description = "") {
    std::string schema = shape.JsonSchema();
    if constexpr (IsVector<Bare<M>>::value) schema = "{\"type\":\"array\",\"items\":" + schema + "}";
    return Add<M>(std::move(name), std::move(schema), std::move(description),
                  [member, shape = std::move(shape)](const shape_detail::Node& node, T& into) {
                    return TakeShaped(node, into.*member, shape);
                  });
  }

  // The JSON Schema: an object with these members and no others.
  std::string JsonSchema() const {
    std::string members, required;
    for (const Entry& entry : fields_) {
      if (!members.empty()) members += ',';
      members += shape_detail::Quoted(entry.name) + ":" + entry.schema;
      if (entry.optional) continue;
      if (!required.empty()) required += ',';
      required += shape_detail::Quoted(entry.name);
    }
    return "{\"type\":\"object\",\"properties\":{" + members + "},\"required\":[" + required +
           "],\"additionalProperties\":false}";
  }

  // A T of a JSON text. Errors: kDataLoss naming the member that is missing or of another type, or that the
  // text is no whole JSON.
  Result<T> Parse(const std::string& text) const {
    T out{};
    const auto error =
        shape_detail::WithParsed(text, [&](const shape_detail::Node& root) { return ReadInto(root, out); });
    if (error) return *error;
    return out;
  }

  // "" or what is wrong, with the path of the member. For shapes inside shapes.
  std::string ReadInto(const shape_detail::Node& object, T& out) const {
    for (const Entry& entry : fields_) {
      const shape_detail::Node* node = shape_detail::Member(object, entry.name);
      if (node == nullptr || (entry.optional && shape_detail::IsNull(*node))) {
        if (!entry.optional) return entry.name + " is missing";
        continue;
      }
      if (const std::string wrong = entry.take(*node, out); !wrong.empty()) {
        return entry.name + (wrong[0] == ' ' ? "" : ".") + wrong;
      }
    }
    return "";
  }

 private:
  struct Entry {
    std::string name;
    std::string schema;
    bool optional;
    std::function<std::string(const shape_detail::Node&, T&)> take;
  };

  template <class M>
  struct IsVector : std::false_type {};
  template <class M>
  struct IsVector<std::vector<M>> : std::true_type {};
  template <class M>
  struct IsOptional : std::false_type {};
  template <class M>
  struct IsOptional<std::optional<M>> : std::true_type {};
  template <class M>
  struct Inner {
    using type = M;
  };
  template <class M>
  struct Inner<std::optional<M>> {
    using type = M;
  };
  template <class M>
  using Bare = typename Inner<M>::type;

  template <class M>
  Shape& Add(std::string name, std::string schema, std::string description,
             std::function<std::string(const shape_detail::Node&, T&)> take) {
    if (!description.empty()) {
      schema.insert(schema.size() - 1, ",\"description\":" + shape_detail::Quoted(description));
    }
    fields_.push_back({std::move(name), std::move(schema), IsOptional<M>::value, std::move(take)});
    return *this;
  }

  template <class M>
  static std::string SchemaOf() {
    using B = Bare<M>;
    if constexpr (IsVector<B>::value) {
      return "{\"type\":\"array\",\"items\":" + SchemaOf<typename B::value_type>() + "}";
    } else if constexpr (std::same_as<B, std::string>) {
      return "{\"type\":\"string\"}";
    } else if constexpr (std::same_as<B, bool>) {
      return "{\"type\":\"boolean\"}";
    } else if constexpr (std::integral<B>) {
      return "{\"type\":\"integer\"}";
    } else {
      static_assert(std::floating_point<B>, "give a member that is a struct its own Shape");
      return "{\"type\":\"number\"}";
    }
  }

  template <class M>
  static std::string Take(const shape_detail::Node& node, M& out) {
    if constexpr (IsOptional<M>::value) {
      return Take(node, out.emplace());
    } else if constexpr (IsVector<M>::value) {
      if (!shape_detail::IsArray(node)) return " is no list";
      for (size_t i = 0; i < shape_detail::Size(node); ++i) {
        typename M::value_type element{};
        if (const std::string wrong = Take(shape_detail::At(node, i), element); !wrong.empty()) return wrong;
        out.push_back(std::move(element));
      }
      return "";
    } else if constexpr (std::same_as<M, std::string> || std::same_as<M, bool>) {
      return shape_detail::Read(node, out) ? "" : " has another type";
    } else if constexpr (std::integral<M>) {
      int64_t wide = 0;
      if (!shape_detail::Read(node, wide) || !std::in_range<M>(wide)) return " is no integer of its range";
      out = static_cast<M>(wide);
      return "";
    } else {
      double wide = 0;
      if (!shape_detail::Read(node, wide)) return " is no number";
      out = static_cast<M>(wide);
      return "";
    }
  }

  template <class M, class S>
  static std::string TakeShaped(const shape_detail::Node& node, M& out, const Shape<S>& shape) {
    if constexpr (IsOptional<M>::value) {
      return TakeShaped(node, out.emplace(), shape);
    } else if constexpr (IsVector<M>::value) {
      if (!shape_detail::IsArray(node)) return " is no list";
      for (size_t i = 0; i < shape_detail::Size(node); ++i) {
        if (const std::string wrong = shape.ReadInto(shape_detail::At(node, i), out.emplace_back());
            !wrong.empty())
          return wrong;
      }
      return "";
    } else {
      return shape.ReadInto(node, out);
    }
  }

  std::vector<Entry> fields_;
};

}  // namespace rumbo::inline sdk
