#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Appends JSON to a reused buffer: the hot path of streaming, where nothing is allocated per token.
namespace rumbo::json_out {

// `text` with what JSON wants escaped, without quotes. Ill-formed UTF-8 becomes U+FFFD.
void AppendEscaped(std::string& out, std::string_view text);
// The same in quotes.
void AppendString(std::string& out, std::string_view text);
void AppendInt(std::string& out, int64_t value);
void AppendUint(std::string& out, uint64_t value);
// Shortest form that reads back as the same value; "null" for NaN and infinities.
void AppendDouble(std::string& out, double value);
void AppendFloat(std::string& out, float value);

}  // namespace rumbo::json_out

namespace rumbo {

// Objects and arrays without counting commas. Values in, text out; keys are ours and need no escaping.
//   JsonWriter w(out); w.Open('{').Key("id").String(id).Key("n").Uint(1).Close('}');
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& Open(char bracket) {
    Separate();
    out_ += bracket;
    first_ = true;
    return *this;
  }
  JsonWriter& Close(char bracket) {
    out_ += bracket;
    first_ = false;
    return *this;
  }
  JsonWriter& Key(std::string_view key) {
    Separate();
    out_ += '"';
    out_ += key;
    out_ += "\":";
    first_ = true;
    return *this;
  }
  JsonWriter& KeyEscaped(std::string_view key) {
    Separate();
    json_out::AppendString(out_, key);
    out_ += ':';
    first_ = true;
    return *this;
  }
  JsonWriter& String(std::string_view text) {
    Separate();
    json_out::AppendString(out_, text);
    return *this;
  }
  JsonWriter& Int(int64_t v) {
    Separate();
    json_out::AppendInt(out_, v);
    return *this;
  }
  JsonWriter& Uint(uint64_t v) {
    Separate();
    json_out::AppendUint(out_, v);
    return *this;
  }
  JsonWriter& Double(double v) {
    Separate();
    json_out::AppendDouble(out_, v);
    return *this;
  }
  JsonWriter& Float(float v) {
    Separate();
    json_out::AppendFloat(out_, v);
    return *this;
  }
  JsonWriter& Bool(bool v) { return Raw(v ? "true" : "false"); }
  JsonWriter& Null() { return Raw("null"); }
  // Text that is JSON already.
  JsonWriter& Raw(std::string_view json) {
    Separate();
    out_ += json;
    return *this;
  }
  // A value was appended to the text beside this writer, after Key().
  JsonWriter& Appended() {
    first_ = false;
    return *this;
  }

 private:
  void Separate() {
    if (!first_) out_ += ',';
    first_ = false;
  }
  std::string& out_;
  bool first_ = true;
};

}  // namespace rumbo
