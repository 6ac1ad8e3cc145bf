#include "engines/fake/fake_service.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include "base/status.h"
#include "engines/fake/fake_answer.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {

// The load: sleeps on a thread of its own, as real engines do.
class FakeLoad final : public grpc::ServerWriteReactor<engine::v1::LoadResponse> {
 public:
  FakeLoad(FakeService* service, const engine::v1::LoadRequest& request)
      : service_(service), settings_(request.settings()), version_("fake 1") {
    if (service_->load_started_.exchange(true)) {
      Finish(ToGrpcStatus(Error(absl::StatusCode::kFailedPrecondition, Reason::kInvalidArgument,
                                "a model is loaded already", "One process runs one model.")));
      return;
    }
    std::thread([this] { Run(); }).detach();
  }

  void OnWriteDone(bool) override {
    if (step_ >= 0) std::thread([this] { Run(); }).detach();
  }
  void OnCancel() override {
    if (hanging_.load()) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  static constexpr int kSteps = 4;

  void Run() {
    if (step_ == 0) {
      const std::map<std::string, std::string> extra(settings_.extra().begin(), settings_.extra().end());
      auto options = ParseFakeOptions(extra);
      if (!options.ok()) {
        step_ = -1;
        Finish(ToGrpcStatus(options.status()));
        return;
      }
      options_ = *std::move(options);
      if (!options_.open_path.empty()) {
        if (FILE* file = std::fopen(("/" + options_.open_path).c_str(), "r")) {
          std::fprintf(stderr, "opened %s\n", options_.open_path.c_str());
          std::fclose(file);
        }
      }
      if (!options_.stderr_text.empty()) std::fprintf(stderr, "%s\n", options_.stderr_text.c_str());
      if (options_.load_hang) {
        hanging_.store(true);
        return;
      }
    }
    if (step_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(options_.load_ms * 1000 / kSteps));
    if (step_ == kSteps / 2 && !EndEarly()) return;
    if (step_ == kSteps) {
      Ready();
      return;
    }
    message_.mutable_progress()->set_fraction(static_cast<double>(step_) / kSteps);
    message_.mutable_progress()->set_step(step_ == 0 ? "open" : "weights");
    ++step_;
    StartWrite(&message_);
  }

  // Returns false where the load ends here.
  bool EndEarly() {
    if (options_.exit_code >= 0) {
      std::fflush(stderr);
      _exit(options_.exit_code);
    }
    if (options_.load_error.empty()) return true;
    step_ = -1;
    Finish(ToGrpcStatus(
        Error(absl::StatusCode::kFailedPrecondition, Reason::kModelInvalid, options_.load_error)));
    return false;
  }

  void Ready() {
    if (!settings_.has_context_per_session()) settings_.set_context_per_session(4096);
    if (!settings_.has_sessions()) settings_.set_sessions(1);
    if (!settings_.has_context_total()) {
      settings_.set_context_total(settings_.context_per_session() * settings_.sessions());
    }
    service_->options_ = options_;
    service_->settings_ = settings_;
    service_->context_per_session_ = settings_.context_per_session();
    service_->loaded_.store(true, std::memory_order_release);

    auto* loaded = message_.mutable_loaded();
    loaded->set_engine_version(version_);
    *loaded->mutable_settings() = settings_;
    loaded->set_has_chat_template(true);
    for (const char* word : {"generate", "chat", "embed", "rerank"}) loaded->add_capabilities(word);
    loaded->set_context_trained(1 << 20);
    loaded->set_load_ms(options_.load_ms);
    AddMemory(loaded, "weights", options_.weights_bytes);
    AddMemory(loaded, "kv_cache", options_.kv_bytes);
    step_ = -1;
    StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
  }

  static void AddMemory(engine::v1::LoadedInfo* loaded, const char* what, uint64_t bytes) {
    auto* item = loaded->add_memory();
    item->set_pool("host");
    item->set_what(what);
    item->set_bytes(bytes);
    item->set_source("fake");
  }

  FakeService* const service_;
  v1::Settings settings_;
  const std::string version_;
  FakeOptions options_;
  engine::v1::LoadResponse message_;
  int step_ = 0;  // -1: over
  std::atomic<bool> hanging_{false};
};

namespace {

grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

std::set<std::string> Words(const std::string& text) {
  std::set<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(" \n\t", at);
    if (begin == std::string::npos) break;
    const size_t end = std::min(text.find_first_of(" \n\t", begin), text.size());
    words.insert(text.substr(begin, end - begin));
    at = end;
  }
  return words;
}

}  // namespace

std::string RenderFakeChat(const engine::v1::ChatInput& chat) {
  std::string text;
  for (const auto& message : chat.messages()) {
    text += message.role() + ":";
    for (const auto& part : message.content()) text += " " + part.text();
    text += "\n";
  }
  if (!chat.continue_final_message()) text += "assistant:";
  return text;
}

FakeService::FakeService(int raw_fd) : raw_fd_(raw_fd) {}

absl::StatusOr<FakeOptions> FakeService::Loaded() const {
  if (!loaded_.load(std::memory_order_acquire)) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kInstanceStopped, "no model is loaded",
                 "Call Load first.");
  }
  return options_;
}

grpc::ServerWriteReactor<engine::v1::LoadResponse>* FakeService::Load(
    grpc::CallbackServerContext*, const engine::v1::LoadRequest* request) {
  return new FakeLoad(this, *request);
}

grpc::ServerWriteReactor<engine::v1::GenerateResponse>* FakeService::Generate(
    grpc::CallbackServerContext*, const engine::v1::GenerateRequest* request) {
  return FakeAnswer::Start(this, *request);
}

grpc::ServerUnaryReactor* FakeService::Embed(grpc::CallbackServerContext* context,
                                             const engine::v1::EmbedRequest* request,
                                             engine::v1::EmbedResponse* response) {
  constexpr size_t kDimensions = 8;
  for (const std::string& input : request->inputs()) {
    auto* embedding = response->add_embeddings();
    for (size_t i = 0; i < kDimensions; ++i) embedding->add_values(0);
    for (const std::string& word : Words(input)) {
      size_t bucket = 0;
      for (const char c : word) bucket = bucket * 31 + static_cast<unsigned char>(c);
      auto* value = embedding->mutable_values()->Mutable(static_cast<int>(bucket % kDimensions));
      *value += 1;
    }
    response->set_prompt_tokens(response->prompt_tokens() + FakeTokenizer::Count(input));
  }
  return Reply(context, Loaded().status());
}

grpc::ServerUnaryReactor* FakeService::Rerank(grpc::CallbackServerContext* context,
                                              const engine::v1::RerankRequest* request,
                                              engine::v1::RerankResponse* response) {
  const std::set<std::string> query = Words(request->query());
  for (const std::string& document : request->documents()) {
    float common = 0;
    for (const std::string& word : Words(document)) common += static_cast<float>(query.count(word));
    response->add_scores(common);
    response->set_prompt_tokens(response->prompt_tokens() + FakeTokenizer::Count(document));
  }
  return Reply(context, Loaded().status());
}

grpc::ServerUnaryReactor* FakeService::Tokenize(grpc::CallbackServerContext* context,
                                                const engine::v1::TokenizeRequest* request,
                                                engine::v1::TokenizeResponse* response) {
  auto ids = tokenizer_.Encode(request->text());
  if (!ids.ok()) return Reply(context, ids.status());
  for (const int32_t id : *ids) {
    response->add_ids(id);
    response->add_pieces(tokenizer_.Decode(id).value());
  }
  return Reply(context, Loaded().status());
}

grpc::ServerUnaryReactor* FakeService::Detokenize(grpc::CallbackServerContext* context,
                                                  const engine::v1::DetokenizeRequest* request,
                                                  engine::v1::DetokenizeResponse* response) {
  for (const int32_t id : request->ids()) {
    auto word = tokenizer_.Decode(id);
    if (!word.ok()) return Reply(context, word.status());
    response->mutable_raw()->append(*word);
  }
  return Reply(context, Loaded().status());
}

grpc::ServerUnaryReactor* FakeService::ApplyTemplate(grpc::CallbackServerContext* context,
                                                     const engine::v1::ApplyTemplateRequest* request,
                                                     engine::v1::ApplyTemplateResponse* response) {
  response->set_prompt(RenderFakeChat(request->chat()));
  response->set_tokens(FakeTokenizer::Count(response->prompt()));
  return Reply(context, Loaded().status());
}

grpc::ServerUnaryReactor* FakeService::GetStats(grpc::CallbackServerContext* context,
                                                const engine::v1::GetStatsRequest*,
                                                engine::v1::GetStatsResponse* response) {
  response->set_running(counters_.running);
  response->set_kv_used(counters_.kv_used);
  response->set_prompt_tokens(counters_.prompt_tokens);
  response->set_generated_tokens(counters_.generated_tokens);
  const absl::Status status = Loaded().status();
  if (status.ok()) response->set_kv_total(settings_.context_total());
  return Reply(context, status);
}

}  // namespace rumbo
