#include "base/status.h"
#include "daemon/rpc/message_stream.h"
#include "daemon/rpc/services.h"
#include "daemon/store/library.h"
#include "daemon/wire/convert.h"
#include "engines/worker_kit/grpc_status.h"
#include "rumbo/v1/model.grpc.pb.h"

namespace rumbo {
namespace {

using grpc::CallbackServerContext;

class ModelService final : public v1::ModelService::CallbackService {
 public:
  explicit ModelService(const ServiceContext& context)
      : peers_(context.peers), core_(context.core), library_(context.hooks.library) {}

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
    if (library_ != nullptr) library_->StopPull(request->name());
    core_->DeleteModel(request->name(), [reactor, response](absl::StatusOr<Bytes> freed) {
      if (freed.ok()) response->set_freed_bytes(*freed);
      reactor->Finish(ToGrpcStatus(freed.status()));
    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::LoadModelResponse>* LoadModel(CallbackServerContext* call,
                                                             const v1::LoadModelRequest* request) override {
    auto stream = MessageStream<v1::LoadModelResponse>::Create();
    LoadSpec spec;
    spec.model = request->name();
    spec.workload = FromProto(request->workload());
    spec.contract = FromProto(request->contract());
    spec.overrides = FromProto(request->overrides());
    if (request->has_keep_alive_s()) spec.keep_alive_s = request->keep_alive_s();
    spec.idempotency_key = request->idempotency_key();
    spec.uid = IdentityOf(*call, *peers_, "").uid;
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
                                                             const v1::PullModelRequest* request) override {
    using Stream = MessageStream<v1::PullModelResponse>;
    // The token lives as long as somebody listens.
    auto seat = std::make_shared<StreamToken>();
    auto stream = Stream::Create([seat] { seat->Drop(); });
    if (library_ == nullptr) {
      stream->End(NotImplemented("downloading models"));
      return stream.get();
    }
    PullWatcher watcher;
    watcher.on_progress = [stream](const PullProgress& progress) {
      v1::PullModelResponse message;
      ToProto(progress.step, message.mutable_progress());
      if (progress.bytes_per_s) message.mutable_progress()->set_bytes_per_s(*progress.bytes_per_s);
      if (progress.eta_s) message.mutable_progress()->set_eta_s(*progress.eta_s);
      stream->Push(std::move(message), true);
    };
    const bool plan_only = request->plan_only();
    watcher.on_plan = [stream](const PullPlan& plan) {
      v1::PullModelResponse message;
      ToProto(plan, message.mutable_plan());
      stream->Push(std::move(message));
    };
    watcher.on_end = [stream, plan_only](absl::StatusOr<StoredModel> model) {
      if (model.ok() && !plan_only) {
        v1::PullModelResponse message;
        ToProto(*model, message.mutable_model());
        stream->Push(std::move(message));
      }
      stream->End(model.status());
    };
    seat->Set(library_->Pull(
        {request->reference(), request->name(), plan_only, request->replace(), request->force()},
        std::move(watcher)));
    return stream.get();
  }

  grpc::ServerUnaryReactor* StopPull(CallbackServerContext* call, const v1::StopPullRequest* request,
                                     v1::StopPullResponse* response) override {
    auto* reactor = call->DefaultReactor();
    response->set_stopped(library_ != nullptr && library_->StopPull(request->name()));
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* SearchModels(CallbackServerContext* call, const v1::SearchModelsRequest* request,
                                         v1::SearchModelsResponse* response) override {
    auto* reactor = call->DefaultReactor();
    if (library_ == nullptr) return Missing(reactor);
    library_->Search(request->query(), request->hub(),
                     [reactor, response](absl::StatusOr<std::vector<SearchHit>> hits) {
                       if (!hits.ok()) return reactor->Finish(ToGrpcStatus(hits.status()));
                       for (const SearchHit& hit : *hits) {
                         v1::SearchHit* out = response->add_hits();
                         out->set_reference(hit.reference);
                         out->set_title(hit.title);
                         out->set_licence(hit.licence);
                         out->set_origin(hit.origin);
                         for (const std::string& variant : hit.variants) out->add_variants(variant);
                         if (hit.downloads) out->set_downloads(*hit.downloads);
                         out->set_source(hit.source);
                       }
                       reactor->Finish(grpc::Status::OK);
                     });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::VerifyModelsResponse>* VerifyModels(
      CallbackServerContext*, const v1::VerifyModelsRequest* request) override {
    auto cancelled = std::make_shared<std::atomic<bool>>(false);
    auto stream = MessageStream<v1::VerifyModelsResponse>::Create([cancelled] { *cancelled = true; });
    if (library_ == nullptr) {
      stream->End(NotImplemented("verifying models"));
      return stream.get();
    }
    library_->Verify({request->names().begin(), request->names().end()}, cancelled,
                     Teller<v1::VerifyModelsResponse>(stream),
                     [stream](absl::StatusOr<std::vector<VerifyResult>> results) {
                       if (results.ok()) {
                         v1::VerifyModelsResponse message;
                         for (const VerifyResult& result : *results) {
                           v1::VerifiedModel* out = message.mutable_results()->add_models();
                           out->set_name(result.model);
                           out->set_state(result.state);
                           out->set_text(result.text);
                         }
                         message.mutable_results();
                         stream->Push(std::move(message));
                       }
                       stream->End(results.status());
                     });
    return stream.get();
  }

  grpc::ServerUnaryReactor* CollectGarbage(CallbackServerContext* call,
                                           const v1::CollectGarbageRequest* request,
                                           v1::CollectGarbageResponse* response) override {
    auto* reactor = call->DefaultReactor();
    if (library_ == nullptr) return Missing(reactor);
    library_->Collect(request->dry_run(), [reactor, response](absl::StatusOr<Garbage> garbage) {
      if (garbage.ok()) {
        for (const Garbage::Item& item : garbage->items) {
          v1::GarbageItem* out = response->add_items();
          out->set_what(item.what);
          out->set_bytes(item.bytes);
        }
        response->set_bytes(garbage->bytes);
      }
      reactor->Finish(ToGrpcStatus(garbage.status()));
    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::ExportModelResponse>* ExportModel(
      CallbackServerContext*, const v1::ExportModelRequest* request) override {
    auto cancelled = std::make_shared<std::atomic<bool>>(false);
    auto stream = MessageStream<v1::ExportModelResponse>::Create([cancelled] { *cancelled = true; });
    if (library_ == nullptr) {
      stream->End(NotImplemented("exporting models"));
      return stream.get();
    }
    library_->Export(request->name(), request->folder(), cancelled, Teller<v1::ExportModelResponse>(stream),
                     [stream](absl::StatusOr<std::vector<std::string>> files) {
                       if (files.ok()) {
                         v1::ExportModelResponse message;
                         for (const std::string& file : *files) message.mutable_files()->add_paths(file);
                         stream->Push(std::move(message));
                       }
                       stream->End(files.status());
                     });
    return stream.get();
  }

  grpc::ServerUnaryReactor* AdoptModels(CallbackServerContext* call, const v1::AdoptModelsRequest* request,
                                        v1::AdoptModelsResponse* response) override {
    auto* reactor = call->DefaultReactor();
    if (library_ == nullptr) return Missing(reactor);
    library_->Adopt({request->names().begin(), request->names().end()}, request->adopt(),
                    [reactor, response](absl::StatusOr<std::vector<CachedModel>> models) {
                      if (!models.ok()) return reactor->Finish(ToGrpcStatus(models.status()));
                      for (const CachedModel& model : *models) {
                        v1::CachedModel* out = response->add_models();
                        out->set_name(model.name);
                        out->set_cache(model.cache);
                        out->set_path(model.path);
                        out->set_bytes(model.bytes);
                        out->set_state(model.state);
                        out->set_text(model.text);
                      }
                      reactor->Finish(grpc::Status::OK);
                    });
    return reactor;
  }

  grpc::ServerUnaryReactor* CheckModel(CallbackServerContext* call, const v1::CheckModelRequest* request,
                                       v1::CheckModelResponse* response) override {
    auto* reactor = call->DefaultReactor();
    if (library_ == nullptr) return Missing(reactor);
    library_->Check(request->name(), request->engine(),
                    [reactor, response](absl::StatusOr<std::vector<CheckItem>> items) {
                      if (!items.ok()) return reactor->Finish(ToGrpcStatus(items.status()));
                      for (const CheckItem& item : *items) {
                        v1::CheckResult* out = response->add_results();
                        out->set_severity(item.severity);
                        out->set_code(item.code);
                        out->set_text(item.text);
                        out->set_remedy(item.remedy);
                        out->set_file_name(item.file_name);
                        out->set_file_content(item.file_content);
                        out->set_source(item.source);
                      }
                      reactor->Finish(grpc::Status::OK);
                    });
    return reactor;
  }

 private:
  template <typename Response>
  static std::function<void(const StepProgress&)> Teller(std::shared_ptr<MessageStream<Response>> stream) {
    return [stream](const StepProgress& progress) {
      Response message;
      ToProto(progress, message.mutable_progress());
      stream->Push(std::move(message), true);
    };
  }

  static grpc::ServerUnaryReactor* Missing(grpc::ServerUnaryReactor* reactor) {
    reactor->Finish(ToGrpcStatus(NotImplemented("this needs the model library")));
    return reactor;
  }

  static void ToProto(const PullPlan& plan, v1::PullPlan* proto) {
    proto->set_reference(plan.reference);
    proto->set_name(plan.name);
    proto->set_licence(plan.licence);
    proto->set_gated(plan.gated);
    for (const PullCandidate& candidate : plan.candidates) {
      v1::PullCandidate* out = proto->add_candidates();
      out->set_id(candidate.id);
      out->set_format(candidate.format);
      if (candidate.bytes) out->set_size_bytes(*candidate.bytes);
      for (const std::string& file : candidate.files) out->add_files(file);
      out->set_fit(candidate.fit);
      out->set_chosen(candidate.chosen);
      out->set_reason(candidate.reason);
      if (candidate.decode_tok_s) out->set_decode_tok_s(*candidate.decode_tok_s);
      if (candidate.ttft_ms) out->set_ttft_ms(*candidate.ttft_ms);
      out->set_engine(candidate.engine);
    }
  }

  template <typename From, typename To>
  static void ToProto(const From& from, To* to) {
    rumbo::ToProto(from, to);
  }

  const PeerTable* const peers_;
  Core* const core_;
  ModelLibrary* const library_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewModelService(const ServiceContext& context) {
  return std::make_unique<ModelService>(context);
}

}  // namespace rumbo
