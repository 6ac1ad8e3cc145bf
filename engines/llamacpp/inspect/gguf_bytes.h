#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace rumbo::testing {

// Writes the bytes of a GGUF file by hand, right or wrong: for tests of what reads them.
class GgufBytes {
 public:
  template <typename T>
  GgufBytes& Raw(T value) {
    data_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& Text(std::string_view text) {
    Raw<uint64_t>(text.size());
    data_.append(text);
    return *this;
  }
  GgufBytes& Header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    data_ += "GGUF";
    return Raw(version).Raw(tensors).Raw(keys);
  }
  GgufBytes& Key(std::string_view name, std::string_view value) {
    return Text(name).Raw<int32_t>(8).Text(value);
  }
  GgufBytes& Key(std::string_view name, uint32_t value) { return Text(name).Raw<int32_t>(4).Raw(value); }
  GgufBytes& Tensor(std::string_view name, std::initializer_list<int64_t> dims, int32_t type,
                    uint64_t offset) {
    Text(name).Raw<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (const int64_t d : dims) Raw(d);
    return Raw(type).Raw(offset);
  }
  GgufBytes& Data(size_t bytes) {
    data_.resize((data_.size() + 31) / 32 * 32 + bytes);
    return *this;
  }
  const std::string& data() const { return data_; }

 private:
  std::string data_;
};

}  // namespace rumbo::testing
