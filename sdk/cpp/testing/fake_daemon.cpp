#include "sdk/cpp/testing/fake_daemon.h"

#include <functional>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "rumbo/v1/admin.grpc.pb.h"
#include "rumbo/v1/device.grpc.pb.h"
#include "rumbo/v1/inference.grpc.pb.h"
#include "rumbo/v1/instance.grpc.pb.h"
#include "rumbo/v1/model.grpc.pb.h"
#include "rumbo/v1/plan.grpc.pb.h"

namespace rumbo {

struct FakeDaemon::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  Seen seen;
  int silent_open = 0;
  FakeDaemon* owner = nullptr;

  void Change(const std::function<void(Seen&)>& change) {
    std::lock_guard lock(mutex);
    change(seen);
    changed.notify_all();
  }
};

grpc::Status TypedStatus(grpc::StatusCode code, const std::string& reason, const std::string& message,
                         const std::string& next_step, std::optional<std::chrono::milliseconds> retry) {
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("rumbo");
  (*info.mutable_metadata())["next_step"] = next_step;
  details.add_details()->PackFrom(info);
  if (retry) {
    google::rpc::RetryInfo when;
    when.mutable_retry_delay()->set_seconds(retry->count() / 1000);
    when.mutable_retry_delay()->set_nanos(static_cast<int32_t>(retry->count() % 1000) * 1'000'000);
    details.add_details()->PackFrom(when);
  }
  return grpc::Status(code, message, details.SerializeAsString());
}

namespace {

using grpc::ServerContext;
using grpc::ServerWriter;
using grpc::Status;
using State = FakeDaemon::State;

constexpr char kEvil[] = "evil\x1b]0;owned\x07\x1b[2J";

Status NoSuchModel(const std::string& name) {
  return TypedStatus(grpc::NOT_FOUND, "MODEL_NOT_FOUND", "no model is called \"" + name + "\"",
                     "See `rumbo models`.");
}

bool Known(const std::string& name) {
  for (const char* known : {"hello", "echo", "base", "evil", "busy", "silent", "crash", "cut", "big"}) {
    if (name == known) return true;
  }
  return false;
}

v1::Model MakeModel(const std::string& name) {
  v1::Model model;
  model.set_name(name == "evil" ? kEvil : name);
  v1::Variant* variant = model.add_variants();
  variant->set_id("default");
  variant->set_format("gguf");
  variant->set_architecture("llama");
  variant->set_quantization("q4_1");
  variant->set_size_bytes(98'000'000'000);
  variant->set_context_trained(8192);
  variant->set_has_chat_template(name != "base");
  variant->set_state("complete");
  return model;
}

v1::Plan MakeCannedPlan(const std::string& model) {
  v1::Plan plan;
  plan.set_model(model);
  plan.set_hardware("probe");
  for (const char* absent : {"vllm", "sglang"}) {
    v1::Rejected* missing = plan.add_rejected();
    missing->set_engine(absent);
    missing->set_reason_code("ENGINE_NOT_INSTALLED");
    missing->set_reason(std::string(absent) + " is not installed here");
  }
  v1::Rejected* rejected = plan.add_rejected();
  rejected->set_engine("llamacpp");
  rejected->set_engine_build("native");
  rejected->set_backend("vulkan");
  rejected->add_devices("gpu0");
  rejected->set_reason_code("DEVICE_NOT_USABLE");
  rejected->set_reason("llvmpipe is a renderer on the CPU");
  if (model == "big") {
    v1::Refusal* refusal = plan.mutable_refusal();
    refusal->set_reason_code("DOES_NOT_FIT");
    refusal->set_reason("system lacks room");
    refusal->set_pool("system");
    refusal->set_missing_bytes(3ull << 30);
    refusal->mutable_nearest()->set_context(512);
    refusal->set_next_step("Ask for less context.");
    return plan;
  }
  v1::Candidate* chosen = plan.mutable_chosen();
  chosen->set_variant("default");
  chosen->set_engine("llamacpp");
  chosen->set_backend("cpu");
  chosen->add_devices("cpu0");
  chosen->mutable_settings()->set_context_total(4096);
  chosen->mutable_settings()->set_mmap(true);
  (*chosen->mutable_settings()->mutable_extra())["numa"] = "off";
  v1::MemoryItem* weights = chosen->add_memory();
  weights->set_pool("system");
  weights->set_what("weights");
  weights->set_bytes(98 << 20);
  chosen->mutable_predicted()->set_decode_tok_s(85.5);
  chosen->mutable_predicted()->set_uncertainty(0.2);
  chosen->add_reasons("the only usable device");
  return plan;
}

class Devices final : public v1::DeviceService::Service {
  Status ListDevices(ServerContext*, const v1::ListDevicesRequest* request,
                     v1::ListDevicesResponse* response) override {
    if (!request->hardware().empty() && request->hardware() != "r9700") {
      return TypedStatus(grpc::NOT_FOUND, "PROFILE_NOT_FOUND", "no profile " + request->hardware(), "");
    }
    v1::Topology* t = response->mutable_topology();
    t->set_source("probe");
    v1::MemoryPool* pool = t->add_pools();
    pool->set_id("system");
    pool->set_kind("system");
    pool->set_total_bytes(32ull << 30);
    pool->set_free_bytes(24ull << 30);
    v1::MemoryLimit* limit = pool->add_limits();
    limit->set_id("cgroup");
    limit->set_kind("cgroup");
    limit->set_max_bytes(16ull << 30);
    v1::MemoryPool* vram = t->add_pools();
    vram->set_id("vram0");
    vram->set_kind("vram");
    v1::Device* cpu = t->add_devices();
    cpu->set_id("cpu0");
    cpu->set_kind("cpu");
    cpu->set_name("A CPU \x1b[31mred");
    cpu->add_pools("system");
    cpu->set_present(true);
    cpu->set_accessible(true);
    cpu->set_usable(true);
    cpu->set_reason("it computes");
    v1::Device* gpu = t->add_devices();
    gpu->set_id("gpu0");
    gpu->set_kind("gpu");
    gpu->add_pools("vram0");
    gpu->set_present(true);
    gpu->set_reason("no render group");
    return Status::OK;
  }
};

class Instances final : public v1::InstanceService::Service {
  Status ListInstances(ServerContext*, const v1::ListInstancesRequest*,
                       v1::ListInstancesResponse* response) override {
    v1::Instance* instance = response->add_instances();
    instance->set_id("i-1");
    instance->set_model(kEvil);
    instance->set_engine("llamacpp");
    instance->set_state("ready");
    instance->set_since(1);
    return Status::OK;
  }
};

class Admin final : public v1::AdminService::Service {
 public:
  explicit Admin(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Status GetStatus(ServerContext* context, const v1::GetStatusRequest*,
                   v1::GetStatusResponse* response) override {
    response->set_version("9.9.9");
    response->set_http_address("127.0.0.1:11711");
    response->set_pid(42);
    const bool deadline = context->deadline() < std::chrono::system_clock::now() + std::chrono::hours(24);
    state_->Change([&](auto& seen) { seen.has_deadline = deadline; });
    return Status::OK;
  }
  Status Doctor(ServerContext*, const v1::DoctorRequest*, v1::DoctorResponse* response) override {
    v1::Finding* finding = response->add_findings();
    finding->set_severity(state_->owner->doctor_broken ? "broken" : "warning");
    finding->set_code("gpu.no_render_group");
    finding->set_text("you are not in the group render");
    finding->set_remedy("usermod -aG render you");
    return Status::OK;
  }

 private:
  std::shared_ptr<State> state_;
};

class Models final : public v1::ModelService::Service {
 public:
  explicit Models(std::shared_ptr<State> state) : state_(std::move(state)) {}

  Status ListModels(ServerContext*, const v1::ListModelsRequest*, v1::ListModelsResponse* response) override {
    *response->add_models() = MakeModel("hello");
    *response->add_models() = MakeModel("evil");
    return Status::OK;
  }
  Status GetModel(ServerContext*, const v1::GetModelRequest* request,
                  v1::GetModelResponse* response) override {
    if (!Known(request->name())) return NoSuchModel(request->name());
    *response->mutable_model() = MakeModel(request->name());
    (*response->mutable_metadata())["general.name"] = "x";
    return Status::OK;
  }
  Status ImportModel(ServerContext*, const v1::ImportModelRequest* request,
                     ServerWriter<v1::ImportModelResponse>* writer) override {
    state_->Change([&](auto& seen) { seen.import = *request; });
    if (request->path().find("damaged") != std::string::npos) {
      return TypedStatus(grpc::INVALID_ARGUMENT, "MODEL_INVALID", "the file is cut", "Download it again.");
    }
    v1::ImportModelResponse message;
    message.mutable_progress()->set_step("hash");
    message.mutable_progress()->set_fraction(0.5);
    writer->Write(message);
    *message.mutable_model() = MakeModel(request->name());
    writer->Write(message);
    return Status::OK;
  }
  Status LoadModel(ServerContext*, const v1::LoadModelRequest* request,
                   ServerWriter<v1::LoadModelResponse>* writer) override {
    state_->Change([&](auto& seen) { seen.load = *request; });
    if (request->name() == "big") {
      return TypedStatus(grpc::RESOURCE_EXHAUSTED, "DOES_NOT_FIT", "system lacks 3.0 GiB",
                         "Use --context 512.");
    }
    if (!Known(request->name())) return NoSuchModel(request->name());
    v1::LoadModelResponse message;
    message.mutable_progress()->set_step("load");
    writer->Write(message);
    message.mutable_loaded()->set_instance_id("i-7");
    *message.mutable_loaded()->mutable_plan() = MakeCannedPlan(request->name());
    writer->Write(message);
    return Status::OK;
  }
  Status UnloadModel(ServerContext*, const v1::UnloadModelRequest* request,
                     v1::UnloadModelResponse* response) override {
    if (!Known(request->name())) return NoSuchModel(request->name());
    response->add_instance_ids("i-7");
    return Status::OK;
  }

 private:
  std::shared_ptr<State> state_;
};

class Plans final : public v1::PlanService::Service {
 public:
  explicit Plans(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Status MakePlan(ServerContext*, const v1::MakePlanRequest* request,
                  v1::MakePlanResponse* response) override {
    state_->Change([&](auto& seen) { seen.plan = *request; });
    if (!Known(request->model()) && request->model()[0] != '/') return NoSuchModel(request->model());
    *response->mutable_plan() = MakeCannedPlan(request->model());
    for (const std::string& model : request->together()) *response->add_together() = MakeCannedPlan(model);
    return Status::OK;
  }
  Status TuneModel(ServerContext*, const v1::TuneModelRequest* request,
                   ServerWriter<v1::TuneModelResponse>* writer) override {
    if (!Known(request->name())) return NoSuchModel(request->name());
    v1::TuneModelResponse message;
    message.mutable_progress()->set_step("llamacpp native on cpu");
    message.mutable_progress()->set_total(1);
    writer->Write(message);
    v1::TuneTrial* trial = message.mutable_trial();
    trial->set_engine("llamacpp");
    trial->set_engine_build("native");
    trial->set_backend("cpu");
    trial->set_sessions(request->sessions().empty() ? 1 : request->sessions(0));
    trial->set_aggregate_tok_s(99);
    trial->set_ttft_ms(12);
    const v1::TuneTrial measured = *trial;
    writer->Write(message);
    v1::TuneWinner* winner = message.mutable_result()->add_winners();
    winner->set_objective("latency");
    *winner->mutable_trial() = measured;
    message.mutable_result()->set_trials(1);
    writer->Write(message);
    return Status::OK;
  }
  Status Explain(ServerContext*, const v1::ExplainRequest* request, v1::ExplainResponse* response) override {
    *response->mutable_plan() = MakeCannedPlan(request->id());
    response->mutable_measured()->set_decode_tok_s(90);
    return Status::OK;
  }

 private:
  std::shared_ptr<State> state_;
};

class Inference final : public v1::InferenceService::Service {
 public:
  explicit Inference(std::shared_ptr<State> state) : state_(std::move(state)) {}

  Status Chat(ServerContext* context, const v1::ChatRequest* request,
              ServerWriter<v1::ChatResponse>* writer) override {
    state_->Change([&](auto& seen) {
      seen.chat = *request;
      ++seen.calls;
    });
    if (request->model() == "base") {
      return TypedStatus(grpc::FAILED_PRECONDITION, "CAPABILITY_MISSING", "base has no chat template",
                         "Use --raw.");
    }
    std::string last;
    if (request->messages_size() > 0) {
      const auto& message = request->messages(request->messages_size() - 1);
      if (message.content_size() > 0) last = message.content(0).text();
    }
    return Answer<v1::ChatResponse>(context, request->model(), last, writer);
  }

  Status Generate(ServerContext* context, const v1::GenerateRequest* request,
                  ServerWriter<v1::GenerateResponse>* writer) override {
    state_->Change([&](auto& seen) {
      seen.generate = *request;
      ++seen.calls;
    });
    return Answer<v1::GenerateResponse>(context, request->model(), request->prompt(), writer);
  }

  Status Tokenize(ServerContext*, const v1::TokenizeRequest* request,
                  v1::TokenizeResponse* response) override {
    for (const char c : request->text()) {
      response->add_ids(c);
      response->add_pieces(std::string(1, c));
    }
    return Status::OK;
  }

  Status Embed(ServerContext*, const v1::EmbedRequest* request, v1::EmbedResponse* response) override {
    for (int i = 0; i < request->inputs_size(); ++i) {
      response->add_embeddings()->add_values(0.1f);
    }
    return Status::OK;
  }

 private:
  template <class Response>
  Status Answer(ServerContext* context, const std::string& model, const std::string& prompt,
                ServerWriter<Response>* writer) {
    if (!Known(model)) return NoSuchModel(model);
    if (model == "busy") {
      std::lock_guard lock(state_->mutex);
      if (state_->owner->busy_times > 0) {
        --state_->owner->busy_times;
        return TypedStatus(grpc::RESOURCE_EXHAUSTED, "QUEUE_FULL", "64 requests wait", "",
                           std::chrono::milliseconds(10));
      }
    }
    Response message;
    message.mutable_started()->set_request_id("r-1");
    message.mutable_started()->set_engine("llamacpp");
    message.mutable_started()->set_backend("cpu");
    message.mutable_started()->add_devices("cpu0");
    writer->Write(message);
    if (model == "silent") return WaitForCancel(context);
    const auto say = [&](const std::string& text) {
      Response chunk;
      chunk.mutable_chunk()->set_text(text);
      chunk.mutable_chunk()->set_tokens(1);
      writer->Write(chunk);
    };
    if (model == "crash" || model == "cut") {
      say("Hel");
      if (model == "cut") return Status::OK;
      return TypedStatus(grpc::UNAVAILABLE, "ENGINE_CRASHED", "the engine died after 1 token", "Ask again.");
    }
    if (model == "echo") say(prompt);
    if (model == "evil")
      say("a\x1b[31mb\xc2\x9b\x07"
          "c\n\td");
    if (model != "echo" && model != "evil") {
      for (const char* piece : {"Hello", ", ", "world"}) say(piece);
    }
    Response end;
    end.mutable_finished()->set_reason("stop");
    end.mutable_finished()->mutable_usage()->set_completion_tokens(3);
    end.mutable_finished()->mutable_timings()->set_decode_tok_s(123.4);
    writer->Write(end);
    return Status::OK;
  }

  Status WaitForCancel(ServerContext* context) {
    std::unique_lock lock(state_->mutex);
    ++state_->silent_open;
    state_->changed.notify_all();
    while (!context->IsCancelled()) state_->changed.wait_for(lock, std::chrono::milliseconds(2));
    ++state_->seen.cancelled;
    state_->changed.notify_all();
    return Status::CANCELLED;
  }

  std::shared_ptr<State> state_;
};

}  // namespace

FakeDaemon::FakeDaemon(const std::string& socket) : state_(std::make_shared<State>()) {
  state_->owner = this;
  services_.push_back(std::make_unique<Devices>());
  services_.push_back(std::make_unique<Instances>());
  services_.push_back(std::make_unique<Admin>(state_));
  services_.push_back(std::make_unique<Models>(state_));
  services_.push_back(std::make_unique<Plans>(state_));
  services_.push_back(std::make_unique<Inference>(state_));
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix://" + socket, grpc::InsecureServerCredentials());
  for (const auto& service : services_) builder.RegisterService(service.get());
  server_ = builder.BuildAndStart();
}

FakeDaemon::~FakeDaemon() { Stop(); }

void FakeDaemon::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

FakeDaemon::Seen FakeDaemon::seen() const {
  std::lock_guard lock(state_->mutex);
  return state_->seen;
}

bool FakeDaemon::WaitForCancelled(int count) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::seconds(10),
                                  [&] { return state_->seen.cancelled >= count; });
}

bool FakeDaemon::WaitForSilent() {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::seconds(10), [&] { return state_->silent_open > 0; });
}

}  // namespace rumbo
