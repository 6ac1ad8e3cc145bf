#include "engines/api/model_descriptor.h"

#include <boost/json.hpp>
#include <limits>

#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

namespace json = boost::json;

constexpr size_t kMaxInput = 8 * kMiB;
constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxLayers = 4096;
constexpr size_t kMaxItems = 65536;

// Every field once: writer and reader below both walk these lists.
template <typename V, typename T>
void Visit(V& v, T& x, const LayerDescriptor*) {
  v("attention_bytes", x.attention_bytes), v("dense_ffn_bytes", x.dense_ffn_bytes);
  v("expert_bytes", x.expert_bytes), v("heads", x.heads), v("kv_heads", x.kv_heads);
  v("key_length", x.key_length), v("value_length", x.value_length), v("window", x.window);
  v("recurrent", x.recurrent), v("recurrent_state_bytes", x.recurrent_state_bytes), v("mtp", x.mtp);
  v("index_length", x.index_length), v("query_width", x.query_width), v("attention_width", x.attention_width);
  v("fused_qkv", x.fused_qkv), v("feed_forward", x.feed_forward), v("gated", x.gated);
  v("expert_feed_forward", x.expert_feed_forward), v("mixer", x.mixer), v("mixer_width", x.mixer_width);
  v("mixer_conv_width", x.mixer_conv_width), v("conv_state_bytes", x.conv_state_bytes);
}

template <typename V, typename T>
void Visit(V& v, T& x, const ModelDescriptor*) {
  v("format", x.format), v("architecture", x.architecture), v("name", x.name);
  v("quantization", x.quantization), v("files", x.files), v("file_bytes", x.file_bytes);
  v("tensor_bytes", x.tensor_bytes), v("parameters", x.parameters);
  v("active_parameters", x.active_parameters), v("context_trained", x.context_trained);
  v("embedding_length", x.embedding_length), v("feed_forward_length", x.feed_forward_length);
  v("vocabulary", x.vocabulary), v("layers", x.layers);
  v("output_length", x.output_length), v("per_layer_embedding", x.per_layer_embedding);
  v("tied_output_copied", x.tied_output_copied);
  v("token_embedding_bytes", x.token_embedding_bytes), v("second_embedding_bytes", x.second_embedding_bytes),
      v("output_bytes", x.output_bytes);
  v("other_bytes", x.other_bytes), v("experts", x.experts), v("experts_used", x.experts_used);
  v("mla", x.mla), v("mtp_layers", x.mtp_layers), v("has_chat_template", x.has_chat_template);
  v("chat_template", x.chat_template), v("has_tokenizer", x.has_tokenizer);
  v("tokenizer_model", x.tokenizer_model), v("pooling", x.pooling), v("capabilities", x.capabilities);
  v("bytes_by_type", x.bytes_by_type), v("metadata", x.metadata), v("notes", x.notes);
  v("unknown_architecture", x.unknown_architecture);
}

struct Writer {
  json::object out;

  static json::value Value(const std::string& s) { return json::value(json::string(SanitizeUtf8(s))); }
  static json::value Value(bool b) { return json::value(b); }
  static json::value Value(uint32_t n) { return json::value(uint64_t{n}); }
  static json::value Value(uint64_t n) { return json::value(n); }
  static json::value Value(const LayerDescriptor& layer) {
    Writer w;
    Visit(w, layer, static_cast<const LayerDescriptor*>(nullptr));
    return json::value(std::move(w.out));
  }
  template <typename T>
  static json::value Value(const std::vector<T>& list) {
    json::array a;
    a.reserve(list.size());
    for (const T& item : list) a.push_back(Value(item));
    return json::value(std::move(a));
  }
  template <typename T>
  static json::value Value(const std::map<std::string, T>& map) {
    json::object o;
    for (const auto& [key, item] : map) o[SanitizeUtf8(key)] = Value(item);
    return json::value(std::move(o));
  }
  template <typename T>
  void operator()(const char* key, const T& field) {
    out[key] = Value(field);
  }
};

// Reads fields that are there; the first field of a wrong type is kept in `bad`.
struct Reader {
  const json::object& in;
  std::string& bad;

  static bool Get(const json::value& v, std::string& out) {
    if (!v.is_string()) return false;
    out.assign(v.get_string().data(), v.get_string().size());
    return true;
  }
  static bool Get(const json::value& v, bool& out) {
    if (!v.is_bool()) return false;
    out = v.get_bool();
    return true;
  }
  static bool Get(const json::value& v, uint64_t& out) {
    if (v.is_uint64()) {
      out = v.get_uint64();
      return true;
    }
    if (!v.is_int64() || v.get_int64() < 0) return false;
    out = static_cast<uint64_t>(v.get_int64());
    return true;
  }
  static bool Get(const json::value& v, uint32_t& out) {
    uint64_t wide = 0;
    if (!Get(v, wide) || wide > std::numeric_limits<uint32_t>::max()) return false;
    out = static_cast<uint32_t>(wide);
    return true;
  }
  static bool Get(const json::value& v, LayerDescriptor& out) {
    if (!v.is_object()) return false;
    std::string bad;
    Reader r{v.get_object(), bad};
    Visit(r, out, static_cast<const LayerDescriptor*>(nullptr));
    return bad.empty();
  }
  template <typename T>
  static bool Get(const json::value& v, std::vector<T>& out) {
    if (!v.is_array()) return false;
    const json::array& a = v.get_array();
    if (a.size() > (std::is_same_v<T, LayerDescriptor> ? kMaxLayers : kMaxItems)) return false;
    out.clear();
    for (const json::value& item : a) {
      T value{};
      if (!Get(item, value)) return false;
      out.push_back(std::move(value));
    }
    return true;
  }
  template <typename T>
  static bool Get(const json::value& v, std::map<std::string, T>& out) {
    if (!v.is_object() || v.get_object().size() > kMaxItems) return false;
    out.clear();
    for (const auto& item : v.get_object()) {
      if (!Get(item.value(), out[std::string(item.key().data(), item.key().size())])) return false;
    }
    return true;
  }
  template <typename T>
  void operator()(const char* key, T& field) {
    const json::value* value = in.if_contains(key);
    if (value != nullptr && bad.empty() && !Get(*value, field)) bad = key;
  }
};

}  // namespace

std::string DescriptorToJson(const ModelDescriptor& descriptor) {
  Writer w;
  Visit(w, descriptor, static_cast<const ModelDescriptor*>(nullptr));
  return json::serialize(w.out);
}

absl::StatusOr<ModelDescriptor> DescriptorFromJson(std::string_view text) {
  if (text.size() > kMaxInput) return InvalidArgument("a model descriptor is longer than 8 MiB");
  json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::system::error_code error;
  const json::value root = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return InvalidArgument("a model descriptor is not JSON: " + error.message());
  if (!root.is_object()) return InvalidArgument("a model descriptor is not a JSON object");
  ModelDescriptor descriptor;
  std::string bad;
  Reader r{root.get_object(), bad};
  Visit(r, descriptor, static_cast<const ModelDescriptor*>(nullptr));
  if (!bad.empty()) return InvalidArgument("a model descriptor has a wrong value in '" + bad + "'");
  return descriptor;
}

}  // namespace rumbo
