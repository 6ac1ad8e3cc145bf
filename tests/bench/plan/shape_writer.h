#pragma once

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rumbo::bench {

// Collects metadata and tensors of one GGUF file; matrices get `type`, or F16 where its blocks don't divide a
// row.
class ShapeWriter {
 public:
  explicit ShapeWriter(const std::string& architecture);
  ~ShapeWriter();
  ShapeWriter(const ShapeWriter&) = delete;
  ShapeWriter& operator=(const ShapeWriter&) = delete;

  ggml_type type = GGML_TYPE_Q4_K;

  // Keys of the architecture, without its prefix.
  void U32(const std::string& key, uint32_t value);
  void F32(const std::string& key, float value);
  void Bool(const std::string& key, bool value);
  void U32s(const std::string& key, const std::vector<uint32_t>& values);
  void I32s(const std::string& key, const std::vector<int32_t>& values);
  void Bools(const std::string& key, const std::vector<bool>& values);
  // Any other key, whole.
  void Text(const std::string& key, const std::string& value);
  void Number(const std::string& key, uint32_t value);

  void Matrix(const std::string& name, std::initializer_list<int64_t> dims);
  void MatrixOf(ggml_type type, const std::string& name, std::initializer_list<int64_t> dims);
  void Vector(const std::string& name, std::initializer_list<int64_t> dims);  // F32

  absl::Status Write(const std::string& path);

 private:
  std::string Key(const std::string& key) const { return architecture_ + "." + key; }
  void Add(ggml_type type, const std::string& name, std::initializer_list<int64_t> dims);

  std::string architecture_;
  gguf_context* gguf_;
  ggml_context* tensors_;
};

}  // namespace rumbo::bench
