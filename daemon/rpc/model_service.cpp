#include "base/status.h"
#include "daemon/rpc/message_stream.h"
#include "daemon/rpc/services.h"
#include "daemon/wire/convert.h"
#include "engines/worker_kit/grpc_status.h"
#include "rumbo/v1/model.grpc.pb.h"

namespace rumbo {
namespace {

using grpc::CallbackServerContext;

class ModelService final : public v1::ModelService::CallbackService {
 public:
  explicit ModelService(const ServiceContext& context) : core_(context.core) {}

  grpc::ServerUnaryReactor* ListModels(CallbackServerContext* call, const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    auto* reactor = call->DefaultReactor();
    core_->ListModels([reactor, response](absl::StatusOr<std::vector<StoredModel>> models) {
      if (!models.ok()) return reactor->Finish(ToGrpcStatus(models.status()));
      for (const StoredModel& model : *models) ToProto(model, response->add_models());
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* GetModel(CallbackServerContext* call, const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override {
    auto* reactor = call->DefaultReactor();
    core_->GetModel(request->name(), [reactor, response](absl::StatusOr<StoredModel> model) {
      if (!model.ok()) return reactor->Finish(ToGrpcStatus(model.status()));
      ToProto(*model, response->mutable_model());
      if (!model->variants.empty()) {
        ModelDescriptor descriptor = model->variants.front().descriptor;
        descriptor.files.clear();  // paths of the store are nobody's business
        response->set_descriptor_json(DescriptorToJson(descriptor));
        for (const auto& [key, value] : descriptor.metadata) (*response->mutable_metadata())[key] = value;
      }
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::ImportModelResponse>* ImportModel(
      CallbackServerContext*, const v1::ImportModelRequest* request) override {
    auto cancelled = std::make_shared<std::atomic<bool>>(false);
    auto stream = MessageStream<v1::ImportModelResponse>::Create([cancelled] { *cancelled = true; });
    core_->ImportModel(
        {request->path(), request->name(), request->expected_sha256(), request->replace(),
         request->variant()},
        cancelled,
        [stream](const StepProgress& progress) {
          v1::ImportModelResponse message;
          ToProto(progress, message.mutable_progress());
          stream->Push(std::move(message), true);
        },
        [stream](absl::StatusOr<StoredModel> model) {
          if (model.ok()) {
            v1::ImportModelResponse message;
            ToProto(*model, message.mutable_model());
            stream->Push(std::move(message));
          }
          stream->End(model.status());
        });
    return stream.get();
  }

  grpc::ServerUnaryReactor* DeleteModel(CallbackServerContext* call, const v1::DeleteModelRequest* request,
                                        v1::DeleteModelResponse* response) override {
    auto* reactor = call->DefaultReactor();
    core_->DeleteModel(request->name(), [reactor, response](absl::StatusOr<Bytes> freed) {
      if (freed.ok()) response->set_freed_bytes(*freed);
      reactor->Finish(ToGrpcStatus(freed.status()));
    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::LoadModelResponse>* LoadModel(CallbackServerContext*,
                                                             const v1::LoadModelRequest* request) override {
    auto stream = MessageStream<v1::LoadModelResponse>::Create();
    LoadSpec spec;
    spec.model = request->name();
    spec.workload = FromProto(request->workload());
    spec.contract = FromProto(request->contract());
    spec.overrides = FromProto(request->overrides());
    if (request->has_keep_alive_s()) spec.keep_alive_s = request->keep_alive_s();
    core_->LoadModel(
        std::move(spec),
        [stream](const StepProgress& progress) {
          v1::LoadModelResponse message;
          ToProto(progress, message.mutable_progress());
          stream->Push(std::move(message), true);
        },
        [stream](absl::StatusOr<LoadResult> result) {
          if (result.ok()) {
            v1::LoadModelResponse message;
            v1::Loaded* loaded = message.mutable_loaded();
            loaded->set_instance_id(result->instance_id);
            ToProto(result->plan, loaded->mutable_plan());
            ToProto(result->measured, loaded->mutable_measured());
            stream->Push(std::move(message));
          }
          stream->End(result.status());
        });
    return stream.get();
  }

  grpc::ServerUnaryReactor* UnloadModel(CallbackServerContext* call, const v1::UnloadModelRequest* request,
                                        v1::UnloadModelResponse* response) override {
    auto* reactor = call->DefaultReactor();
    std::optional<std::chrono::milliseconds> drain;
    if (request->drain_ms() > 0) drain = std::chrono::milliseconds(request->drain_ms());
    core_->UnloadModel(request->name(), drain,
                       [reactor, response](absl::StatusOr<std::vector<std::string>> ids) {
                         if (ids.ok()) {
                           for (const std::string& id : *ids) response->add_instance_ids(id);
                         }
                         reactor->Finish(ToGrpcStatus(ids.status()));
                       });
    return reactor;
  }

  grpc::ServerUnaryReactor* PinModel(CallbackServerContext* call, const v1::PinModelRequest* request,
                                     v1::PinModelResponse*) override {
    auto* reactor = call->DefaultReactor();
    core_->PinModel(request->name(), request->pinned(), [reactor](absl::StatusOr<bool> pinned) {
      reactor->Finish(ToGrpcStatus(pinned.status()));
    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::PullModelResponse>* PullModel(CallbackServerContext*,
                                                             const v1::PullModelRequest*) override {
    auto stream = MessageStream<v1::PullModelResponse>::Create();
    stream->End(NotImplemented("downloading models"));
    return stream.get();
  }

  grpc::ServerUnaryReactor* CheckModel(CallbackServerContext* call, const v1::CheckModelRequest*,
                                       v1::CheckModelResponse*) override {
    auto* reactor = call->DefaultReactor();
    reactor->Finish(ToGrpcStatus(NotImplemented("checking models before a load")));
    return reactor;
  }

 private:
  Core* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewModelService(const ServiceContext& context) {
  return std::make_unique<ModelService>(context);
}

}  // namespace rumbo
