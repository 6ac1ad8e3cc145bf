#include "daemon/http/sampling_in.h"

#include <charconv>

namespace rumbo {
namespace {

constexpr int64_t kInt31 = 2147483647;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxBias = 4096;

void ReadFloat(Fields& fields, std::string_view key, double low, double high, std::optional<float>& out) {
  if (const auto value = fields.Number(key, low, high)) out = static_cast<float>(*value);
}

void ReadUint(Fields& fields, std::string_view key, int64_t low, int64_t high, std::optional<uint32_t>& out) {
  if (const auto value = fields.Int(key, low, high)) out = static_cast<uint32_t>(*value);
}

void AddStop(Fields& fields, const std::string& path, const json::value& value, SamplingParams& out) {
  if (!value.is_string()) return fields.FailAt(path, "must be a string");
  const std::string_view text = View(value.get_string());
  if (text.empty() || text.size() > kMaxStopBytes) return fields.FailAt(path, "must have 1 to 1024 bytes");
  out.stop.emplace_back(text);
}

class OneConstraint {
 public:
  OneConstraint(Fields& fields, SamplingParams& out) : fields_(fields), out_(out) {}
  void Set(std::string_view key, std::string& target, std::string_view text) {
    if (text.empty()) return;
    if (!first_.empty()) {
      fields_.Fail(key, "cannot be combined with " + first_);
      return;
    }
    first_ = std::string(key);
    target = std::string(text);
  }
  void Schema(std::string_view key, std::string_view text) { Set(key, out_.json_schema, text); }
  void Grammar(std::string_view key, std::string_view text) { Set(key, out_.grammar, text); }
  void Regex(std::string_view key, std::string_view text) { Set(key, out_.regex, text); }

 private:
  Fields& fields_;
  SamplingParams& out_;
  std::string first_;
};

bool IsSchema(const json::value& value) { return value.is_object() || value.is_bool(); }

void ReadResponseFormat(Fields& fields, const RawJson& raw, OneConstraint& constraint) {
  const json::object* format = fields.Object("response_format");
  if (format == nullptr) return;
  Fields inner(*format, fields.Path("response_format"), fields.status());
  const std::string type(inner.String("type").value_or(""));
  const RawJson format_raw = raw.Member("response_format");
  if (type == "text") return;
  if (type == "json_object") {
    const json::value* schema = inner.Find("schema");  // llama.cpp's extension
    if (schema != nullptr && !IsSchema(*schema)) return inner.Fail("schema", "must be a JSON Schema");
    constraint.Schema("response_format", schema != nullptr ? format_raw.Member("schema").text()
                                                           : std::string_view(R"({"type":"object"})"));
    return;
  }
  if (type != "json_schema") return inner.Fail("type", "must be text, json_object or json_schema");
  const json::object* wrapped = inner.Object("json_schema");
  if (wrapped == nullptr) return inner.Fail("json_schema", "is required for this type");
  Fields named(*wrapped, inner.Path("json_schema"), fields.status());
  const json::value* schema = named.Find("schema");
  if (schema == nullptr || !IsSchema(*schema)) return named.Fail("schema", "must be a JSON Schema");
  constraint.Schema("response_format", format_raw.Member("json_schema").Member("schema").text());
}

void ReadRawSchema(Fields& fields, const RawJson& raw, std::string_view key, OneConstraint& constraint) {
  const json::value* schema = fields.Find(key);
  if (schema == nullptr) return;
  if (!IsSchema(*schema)) return fields.Fail(key, "must be a JSON Schema");
  constraint.Schema(key, raw.Member(key).text());
}

}  // namespace

void ReadCommonSampling(Fields& fields, SamplingParams& out) {
  ReadFloat(fields, "temperature", 0, 100, out.temperature);
  ReadFloat(fields, "top_p", 0, 1, out.top_p);
  ReadUint(fields, "top_k", 0, kInt31, out.top_k);
  ReadFloat(fields, "min_p", 0, 1, out.min_p);
  ReadFloat(fields, "typical_p", 0, 1, out.typical_p);
  for (const char* key : {"repeat_penalty", "repetition_penalty"}) {
    ReadFloat(fields, key, 1e-6, 100, out.repeat_penalty);
  }
  ReadFloat(fields, "presence_penalty", -100, 100, out.presence_penalty);
  ReadFloat(fields, "frequency_penalty", -100, 100, out.frequency_penalty);
  ReadUint(fields, "repeat_last_n", 0, kInt31, out.repeat_last_n);
  ReadUint(fields, "min_tokens", 0, kInt31, out.min_tokens);
  if (const auto ignore = fields.Bool("ignore_eos")) out.ignore_eos = *ignore;
  ReadFloat(fields, "dry_multiplier", 0, 100, out.dry_multiplier);
  ReadFloat(fields, "dry_base", 1, 100, out.dry_base);
  ReadUint(fields, "dry_allowed_length", 0, kInt31, out.dry_allowed_length);
  ReadFloat(fields, "xtc_probability", 0, 1, out.xtc_probability);
  ReadFloat(fields, "xtc_threshold", 0, 1, out.xtc_threshold);
  ReadUint(fields, "mirostat", 0, 2, out.mirostat);
  ReadFloat(fields, "mirostat_tau", 0, 100, out.mirostat_tau);
  ReadFloat(fields, "mirostat_eta", 0, 1, out.mirostat_eta);
}

void ReadStop(Fields& fields, std::string_view key, SamplingParams& out) {
  const json::value* stop = fields.Find(key);
  if (stop == nullptr) return;
  if (!stop->is_array()) return AddStop(fields, fields.Path(key), *stop, out);
  const json::array& list = stop->get_array();
  if (list.size() > kMaxStops) return fields.Fail(key, "must have at most 64 entries");
  for (size_t i = 0; i < list.size(); ++i) AddStop(fields, fields.Path(key, i), list[i], out);
}

void ReadLogitBias(Fields& fields, SamplingParams& out) {
  const json::object* bias = fields.Object("logit_bias");
  if (bias == nullptr) return;
  if (bias->size() > kMaxBias) return fields.Fail("logit_bias", "must have at most 4096 entries");
  for (const auto& [key, value] : *bias) {
    const std::string_view name = View(key);
    int32_t token = -1;
    const auto end = std::from_chars(name.data(), name.data() + name.size(), token);
    const auto number = AsNumber(value);
    if (end.ec != std::errc() || end.ptr != name.data() + name.size() || token < 0) {
      return fields.Fail("logit_bias", "must map token numbers to biases");
    }
    if (!number || *number < -100 || *number > 100) {
      return fields.Fail("logit_bias", "biases must be numbers from -100 to 100");
    }
    out.logit_bias.emplace_back(token, static_cast<float>(*number));
  }
}

void ReadConstraints(Fields& fields, const RawJson& raw, SamplingParams& out) {
  OneConstraint constraint(fields, out);
  ReadResponseFormat(fields, raw, constraint);
  ReadRawSchema(fields, raw, "json_schema", constraint);  // llama.cpp
  ReadRawSchema(fields, raw, "guided_json", constraint);  // vLLM
  for (const char* key : {"grammar", "guided_grammar"}) {
    if (const auto text = fields.String(key)) constraint.Grammar(key, *text);
  }
  for (const char* key : {"regex", "guided_regex"}) {
    if (const auto text = fields.String(key)) constraint.Regex(key, *text);
  }
}

}  // namespace rumbo
