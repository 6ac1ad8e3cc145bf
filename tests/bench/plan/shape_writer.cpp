#include "tests/bench/plan/shape_writer.h"

#include <unistd.h>

#include <cstdio>

#include "base/bytes.h"
#include "base/status.h"

namespace rumbo::bench {

ShapeWriter::ShapeWriter(const std::string& architecture)
    : architecture_(architecture), gguf_(gguf_init_empty()) {
  ggml_init_params params{64 * kMiB, nullptr, true};
  tensors_ = ggml_init(params);
  gguf_set_val_str(gguf_, "general.architecture", architecture.c_str());
  gguf_set_val_str(gguf_, "general.type", "model");
  gguf_set_val_str(gguf_, "tokenizer.ggml.model", "none");
}

ShapeWriter::~ShapeWriter() {
  gguf_free(gguf_);
  ggml_free(tensors_);
}

void ShapeWriter::U32(const std::string& key, uint32_t value) {
  gguf_set_val_u32(gguf_, Key(key).c_str(), value);
}
void ShapeWriter::F32(const std::string& key, float value) {
  gguf_set_val_f32(gguf_, Key(key).c_str(), value);
}
void ShapeWriter::Bool(const std::string& key, bool value) {
  gguf_set_val_bool(gguf_, Key(key).c_str(), value);
}
void ShapeWriter::Text(const std::string& key, const std::string& value) {
  gguf_set_val_str(gguf_, key.c_str(), value.c_str());
}
void ShapeWriter::Number(const std::string& key, uint32_t value) {
  gguf_set_val_u32(gguf_, key.c_str(), value);
}

void ShapeWriter::U32s(const std::string& key, const std::vector<uint32_t>& values) {
  gguf_set_arr_data(gguf_, Key(key).c_str(), GGUF_TYPE_UINT32, values.data(), values.size());
}
void ShapeWriter::I32s(const std::string& key, const std::vector<int32_t>& values) {
  gguf_set_arr_data(gguf_, Key(key).c_str(), GGUF_TYPE_INT32, values.data(), values.size());
}
void ShapeWriter::Bools(const std::string& key, const std::vector<bool>& values) {
  const std::vector<int8_t> bytes(values.begin(), values.end());
  gguf_set_arr_data(gguf_, Key(key).c_str(), GGUF_TYPE_BOOL, bytes.data(), bytes.size());
}

void ShapeWriter::Add(ggml_type tensor_type, const std::string& name, std::initializer_list<int64_t> dims) {
  int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};
  int n = 0;
  for (const int64_t d : dims) ne[n++] = d;
  // As llama.cpp's own quantiser does where a row is no multiple of 256.
  if (ne[0] % ggml_blck_size(tensor_type) != 0)
    tensor_type = ne[0] % 32 == 0 ? GGML_TYPE_Q5_0 : GGML_TYPE_F16;
  ggml_tensor* tensor = ggml_new_tensor(tensors_, tensor_type, n, ne);
  ggml_set_name(tensor, name.c_str());
  gguf_add_tensor(gguf_, tensor);
}

void ShapeWriter::Matrix(const std::string& name, std::initializer_list<int64_t> dims) {
  Add(type, name, dims);
}
void ShapeWriter::MatrixOf(ggml_type tensor_type, const std::string& name,
                           std::initializer_list<int64_t> dims) {
  Add(tensor_type, name, dims);
}
void ShapeWriter::Vector(const std::string& name, std::initializer_list<int64_t> dims) {
  Add(GGML_TYPE_F32, name, dims);
}

absl::Status ShapeWriter::Write(const std::string& path) {
  if (!gguf_write_to_file(gguf_, path.c_str(), /*only_meta=*/true)) return Internal("cannot write " + path);
  uint64_t end = 0;
  const size_t data = gguf_get_meta_size(gguf_);
  for (int64_t i = 0; i < gguf_get_n_tensors(gguf_); ++i) {
    end = std::max<uint64_t>(end, gguf_get_tensor_offset(gguf_, i) + gguf_get_tensor_size(gguf_, i));
  }
  if (::truncate(path.c_str(), static_cast<off_t>(data + RoundUp(end, 32))) != 0)
    return Internal("truncate " + path);
  return absl::OkStatus();
}

}  // namespace rumbo::bench
