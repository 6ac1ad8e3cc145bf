#pragma once

#include "base/status.h"
#include "engines/api/engine.h"

namespace rumbo {

// An Engine for the short calls: tokens are bytes, an embedding is (length, 1, 0), a score is the document's
// length, a template writes "role: text" lines and the tools' schemas.
class FakeEngine : public Engine {
 public:
  std::unique_ptr<GenerateCall> Generate(const GenerateRequest&, Deadline,
                                         std::shared_ptr<GenerateSink> sink) override {
    sink->OnEnd(NotImplemented("Generate"), nullptr);
    return nullptr;
  }
  void Embed(std::vector<std::string> inputs, std::string, bool normalize, Deadline,
             Callback<EmbeddingResult> done) override {
    EmbeddingResult result;
    for (const auto& input : inputs) {
      const float length = static_cast<float>(input.size());
      result.embeddings.push_back(normalize ? std::vector<float>{0.6f, 0.8f, 0.0f}
                                            : std::vector<float>{length, 1, 0});
      result.prompt_tokens += static_cast<uint32_t>(input.size());
    }
    done(std::move(result));
  }
  void Rerank(std::string, std::vector<std::string> documents, Deadline,
              Callback<RerankScores> done) override {
    RerankScores scores;
    for (const auto& document : documents) scores.scores.push_back(static_cast<float>(document.size()));
    scores.prompt_tokens = 3;
    done(std::move(scores));
  }
  void Tokenize(std::string text, bool add_special, bool, Deadline, Callback<TokenizeResult> done) override {
    TokenizeResult result;
    if (add_special) result.ids.push_back(1), result.pieces.emplace_back("<s>");
    for (const char c : text)
      result.ids.push_back(static_cast<unsigned char>(c)), result.pieces.emplace_back(1, c);
    done(std::move(result));
  }
  void Detokenize(std::vector<int32_t> ids, Deadline, Callback<std::string> done) override {
    std::string text;
    for (const int32_t id : ids) text += static_cast<char>(id);
    done(std::move(text));
  }
  void ApplyTemplate(const ChatInput& chat, Deadline, Callback<TemplateResult> done) override {
    TemplateResult result;
    for (const auto& message : chat.messages) {
      result.prompt += message.role + ": ";
      for (const auto& part : message.content) result.prompt += part.text;
      result.prompt += "\n";
    }
    for (const auto& tool : chat.tools) result.prompt += tool.parameters_json_schema;
    result.tokens = static_cast<uint32_t>(result.prompt.size());
    done(std::move(result));
  }
  void GetStats(Deadline, Callback<EngineStats> done) override { done(EngineStats{}); }
};

}  // namespace rumbo
