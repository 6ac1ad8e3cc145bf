#include "engines/llamacpp/inspect/gguf_view.h"

#include <cstring>
#include <limits>

#include "engines/llamacpp/inspect/errors.h"

namespace rumbo {
namespace {

constexpr uint64_t kMaxCount = std::numeric_limits<int32_t>::max();

template <typename T>
std::optional<uint64_t> Load(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  if constexpr (std::is_signed_v<T>) {
    if (value < 0) return std::nullopt;
  }
  return static_cast<uint64_t>(value);
}

}  // namespace

GgufView::GgufView(const gguf_context* context) : context_(context) {
  architecture_ = String("general.architecture").value_or("");
}

void GgufView::Fail(const std::string& message) {
  if (error_.ok()) error_ = ModelInvalid(message);
}

bool GgufView::Has(const std::string& key) const { return gguf_find_key(context_, key.c_str()) >= 0; }

std::optional<uint64_t> GgufView::ElementAt(gguf_type type, const void* data, size_t index) const {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_BOOL:
      return Load<uint8_t>(data, index);
    case GGUF_TYPE_INT8:
      return Load<int8_t>(data, index);
    case GGUF_TYPE_UINT16:
      return Load<uint16_t>(data, index);
    case GGUF_TYPE_INT16:
      return Load<int16_t>(data, index);
    case GGUF_TYPE_UINT32:
      return Load<uint32_t>(data, index);
    case GGUF_TYPE_INT32:
      return Load<int32_t>(data, index);
    case GGUF_TYPE_UINT64:
      return Load<uint64_t>(data, index);
    case GGUF_TYPE_INT64:
      return Load<int64_t>(data, index);
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> GgufView::Unsigned(const std::string& key) {
  const int64_t id = gguf_find_key(context_, key.c_str());
  if (id < 0) return std::nullopt;
  const gguf_type type = gguf_get_kv_type(context_, id);
  std::optional<uint64_t> value;
  if (type != GGUF_TYPE_ARRAY && type != GGUF_TYPE_STRING)
    value = ElementAt(type, gguf_get_val_data(context_, id), 0);
  if (!value) Fail("'" + key + "' is not a whole number of at least zero");
  return value;
}

uint32_t GgufView::Count(const std::string& key, uint32_t fallback) {
  const auto value = Unsigned(key);
  if (!value) return fallback;
  if (*value > kMaxCount) {
    Fail("'" + key + "' is " + std::to_string(*value) + ", which no model has");
    return fallback;
  }
  return static_cast<uint32_t>(*value);
}

std::optional<std::string> GgufView::String(const std::string& key) {
  const int64_t id = gguf_find_key(context_, key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(context_, id) != GGUF_TYPE_STRING) {
    Fail("'" + key + "' is not text");
    return std::nullopt;
  }
  return std::string(gguf_get_val_str(context_, id));
}

std::optional<bool> GgufView::Bool(const std::string& key) {
  const int64_t id = gguf_find_key(context_, key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(context_, id) != GGUF_TYPE_BOOL) {
    Fail("'" + key + "' is not true or false");
    return std::nullopt;
  }
  return *static_cast<const uint8_t*>(gguf_get_val_data(context_, id)) != 0;
}

uint64_t GgufView::ArraySize(const std::string& key) {
  const int64_t id = gguf_find_key(context_, key.c_str());
  if (id < 0 || gguf_get_kv_type(context_, id) != GGUF_TYPE_ARRAY) return 0;
  return gguf_get_arr_n(context_, id);
}

std::optional<std::vector<uint32_t>> GgufView::PerLayer(const std::string& key, size_t layers) {
  const int64_t id = gguf_find_key(context_, key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(context_, id) != GGUF_TYPE_ARRAY) {
    return std::vector<uint32_t>(layers, Count(key));
  }
  const gguf_type type = gguf_get_arr_type(context_, id);
  const size_t n = gguf_get_arr_n(context_, id);
  if (type == GGUF_TYPE_STRING || n < layers) {
    Fail("'" + key + "' has " + std::to_string(n) + " entries for " + std::to_string(layers) + " layers");
    return std::nullopt;
  }
  std::vector<uint32_t> values;
  values.reserve(layers);
  for (size_t i = 0; i < layers; ++i) {
    const auto value = ElementAt(type, gguf_get_arr_data(context_, id), i);
    if (!value || *value > kMaxCount) {
      Fail("'" + key + "' has an entry that is no count");
      return std::nullopt;
    }
    values.push_back(static_cast<uint32_t>(*value));
  }
  return values;
}

}  // namespace rumbo
