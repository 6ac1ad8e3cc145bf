#pragma once

#include <gguf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rumbo {

// Typed, checked access to the metadata of an open GGUF file; ggml's own getters abort on a wrong type. The
// first key of a wrong type is kept in error(). Borrows the context. Not thread-safe.
class GgufView {
 public:
  explicit GgufView(const gguf_context* context);

  const gguf_context* context() const { return context_; }
  const std::string& architecture() const { return architecture_; }
  // OK, or which key has a wrong type or value.
  const absl::Status& error() const { return error_; }
  void Fail(const std::string& message);

  bool Has(const std::string& key) const;
  // Keys are full names; Arch(x) is "<architecture>.<x>".
  std::string Arch(const std::string& key) const { return architecture_ + "." + key; }

  std::optional<uint64_t> Unsigned(const std::string& key);
  uint32_t Count(const std::string& key, uint32_t fallback = 0);  // at most 2^31 - 1
  std::optional<std::string> String(const std::string& key);
  std::optional<bool> Bool(const std::string& key);
  uint64_t ArraySize(const std::string& key);  // 0 where it is no array
  // One value for all, or one per layer. nullopt where the key is absent.
  std::optional<std::vector<uint32_t>> PerLayer(const std::string& key, size_t layers);

 private:
  std::optional<uint64_t> ElementAt(gguf_type type, const void* data, size_t index) const;

  const gguf_context* context_;
  std::string architecture_;
  absl::Status error_;
};

}  // namespace rumbo
