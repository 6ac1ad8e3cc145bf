#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engines/api/request.h"
#include "engines/llamacpp/core/job.h"

struct llama_model;
struct common_chat_templates;
struct common_chat_params;

namespace rumbo {

// A conversation as the model's template writes it, with what is needed to read the answer.
struct RenderedChat {
  std::string prompt;
  std::shared_ptr<const common_chat_params> params;
};

// The chat template of a model. Thread-safe after Make.
class ChatTemplate {
 public:
  ~ChatTemplate();

  // `override_source` replaces the file's template; "": the file's own. Null where neither is there.
  // kInvalidArgument where the override does not parse.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Make(const llama_model* model,
                                                            const std::string& override_source);

  // Errors: kInvalidArgument (empty, unknown role, text that is not UTF-8, template argument that is no JSON,
  // the template refuses), kFailedPrecondition with kCapabilityMissing (tools without support, images,
  // audio). `sampling` brings a JSON schema that the template's grammar has to wrap.
  absl::StatusOr<RenderedChat> Render(const ChatInput& chat, const SamplingParams& sampling) const;

  bool supports_tools() const { return supports_tools_; }
  bool supports_thinking() const { return supports_thinking_; }

 private:
  ChatTemplate() = default;
  bool AnswersArePlain() const;

  struct Deleter {
    void operator()(common_chat_templates* templates) const;
  };
  std::unique_ptr<common_chat_templates, Deleter> templates_;
  bool supports_tools_ = false;
  bool supports_thinking_ = false;
  // Without tools an answer is nothing but its text, and the template need not be analysed for each request.
  bool plain_ = false;
};

}  // namespace rumbo
