#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/api/request.h"

// The bodies of the short calls: embeddings, rerank, tokens. Pure; any thread; errors name the field.
namespace rumbo {

struct EmbeddingsRequest {
  std::string model;
  std::vector<std::string> inputs;
  uint32_t dimensions = 0;
  bool base64 = false;
};
absl::StatusOr<EmbeddingsRequest> DecodeEmbeddings(std::string_view body, size_t max_depth = 64);

struct RerankRequest {
  std::string model;
  std::string query;
  std::vector<std::string> documents;
  uint32_t top_n = 0;
  bool return_documents = false;
};
absl::StatusOr<RerankRequest> DecodeRerank(std::string_view body, size_t max_depth = 64);

struct TokenizeRequest {
  std::string model;
  std::string text;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
};
absl::StatusOr<TokenizeRequest> DecodeTokenize(std::string_view body, size_t max_depth = 64);

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> ids;
};
absl::StatusOr<DetokenizeRequest> DecodeDetokenize(std::string_view body, size_t max_depth = 64);

}  // namespace rumbo
