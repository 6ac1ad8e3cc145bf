#include "daemon/http/token_in.h"

#include "base/status.h"
#include "daemon/http/json_in.h"

namespace rumbo {
namespace {

constexpr size_t kMaxInputs = 2048;
constexpr int64_t kInt31 = 2147483647;

std::string RequiredModel(Fields& fields) {
  const auto model = fields.String("model");
  if (!model || model->empty()) fields.Fail("model", "must name a model");
  return std::string(model.value_or(""));
}

void ReadTexts(Fields& fields, std::string_view key, std::vector<std::string>& out) {
  const json::value* value = fields.Find(key);
  if (value == nullptr) return fields.Fail(key, "is required");
  if (value->is_string()) {
    out.emplace_back(View(value->get_string()));
    return;
  }
  const json::array* list = fields.Array(key);
  if (list == nullptr) return;
  if (list->empty() || list->size() > kMaxInputs) return fields.Fail(key, "must have 1 to 2048 entries");
  for (size_t i = 0; i < list->size(); ++i) {
    const json::value& entry = (*list)[i];
    if (entry.is_string()) {
      out.emplace_back(View(entry.get_string()));
    } else if (entry.is_number() || entry.is_array()) {
      return fields.FailAt(
          fields.Path(key, i),
          "must be text: token numbers of another model's tokenizer mean nothing here. LangChain "
          "sends text with check_embedding_ctx_length=False");
    } else if (entry.is_object() && entry.get_object().if_contains("text") != nullptr &&
               entry.get_object().at("text").is_string()) {
      out.emplace_back(View(entry.get_object().at("text").get_string()));
    } else {
      return fields.FailAt(fields.Path(key, i), "must be a string");
    }
  }
}

}  // namespace

absl::StatusOr<EmbeddingsRequest> DecodeEmbeddings(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  EmbeddingsRequest out;
  out.model = RequiredModel(fields);
  ReadTexts(fields, "input", out.inputs);
  out.dimensions = static_cast<uint32_t>(fields.Int("dimensions", 1, 1 << 20).value_or(0));
  const std::string_view format = fields.String("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.Fail("encoding_format", "must be float or base64");
  out.base64 = format == "base64";
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<RerankRequest> DecodeRerank(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  RerankRequest out;
  out.model = RequiredModel(fields);
  const auto query = fields.String("query");
  if (!query) fields.Fail("query", "is required");
  out.query = std::string(query.value_or(""));
  ReadTexts(fields, "documents", out.documents);
  out.top_n = static_cast<uint32_t>(fields.Int("top_n", 1, kInt31).value_or(0));
  out.return_documents = fields.Bool("return_documents").value_or(false);
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<TokenizeRequest> DecodeTokenize(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  TokenizeRequest out;
  out.model = std::string(fields.String("model").value_or(""));
  // "content" is llama.cpp's word, "prompt" vLLM's.
  const char* key = fields.Has("content") ? "content" : "prompt";
  const auto text = fields.String(key);
  if (!text) fields.Fail("content", "is required");
  out.text = std::string(text.value_or(""));
  const bool vllm = fields.Has("prompt");
  out.add_special = fields.Bool(vllm ? "add_special_tokens" : "add_special").value_or(vllm);
  out.parse_special = fields.Bool("parse_special").value_or(true);
  out.with_pieces = fields.Bool("with_pieces").value_or(fields.Bool("return_token_strs").value_or(false));
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<DetokenizeRequest> DecodeDetokenize(std::string_view body, size_t max_depth) {
  json::monotonic_resource memory;
  RUMBO_ASSIGN_OR_RETURN(const json::object object, ParseObject(body, &memory, max_depth));
  absl::Status status;
  Fields fields(object, "", status);
  DetokenizeRequest out;
  out.model = std::string(fields.String("model").value_or(""));
  const json::array* tokens = fields.Array("tokens");
  if (tokens == nullptr) fields.Fail("tokens", "is required");
  for (size_t i = 0; tokens != nullptr && i < tokens->size() && status.ok(); ++i) {
    const auto id = AsInt((*tokens)[i], 0, kInt31);
    id ? out.ids.push_back(static_cast<int32_t>(*id))
       : fields.FailAt(fields.Path("tokens", i), "must be a token number");
  }
  if (!status.ok()) return status;
  return out;
}

}  // namespace rumbo
