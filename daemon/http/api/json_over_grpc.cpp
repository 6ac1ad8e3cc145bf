#include "daemon/http/api/json_over_grpc.h"

#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <charconv>

#include "base/status.h"
#include "daemon/http/access.h"
#include "daemon/http/errors.h"
#include "engines/worker_kit/grpc_status.h"

namespace rumbo {
namespace {

namespace pb = google::protobuf;

constexpr int64_t kMaxTimeoutMs = 86'400'000;

absl::Status ReadJson(const std::string& body, pb::Message* message) {
  pb::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto parsed = pb::util::JsonStringToMessage(body.empty() ? "{}" : body, message, options);
  if (parsed.ok()) return absl::OkStatus();
  return InvalidArgument("the body is not a " + message->GetDescriptor()->name() + ": " +
                             std::string(parsed.message().data(), parsed.message().size()),
                         "The messages stand in proto/rumbo/v1; names and types as there.");
}

std::string WriteJson(const pb::Message& message) {
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string out;
  if (!pb::util::MessageToJsonString(message, &out, options).ok()) out = "{}";
  return out;
}

// One call under way: gRPC's events become one JSON document or a stream of server-sent events. Held by gRPC
// until OnDone and by the Handle below.
class Relay final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Relay(const pb::MethodDescriptor* method, std::shared_ptr<ByteStream> out)
      : method_(method),
        path_("/" + method->service()->full_name() + "/" + method->name()),
        out_(std::move(out)),
        answer_(pb::MessageFactory::generated_factory()->GetPrototype(method->output_type())->New()) {}

  void Start(const std::shared_ptr<Relay>& self, const std::shared_ptr<grpc::Channel>& channel,
             const std::string& request, uint32_t uid, const std::string& owner,
             std::optional<int64_t> timeout_ms) {
    self_ = self;
    context_.AddMetadata("rumbo-uid", std::to_string(uid));
    context_.AddMetadata("rumbo-owner", owner);
    if (timeout_ms) {
      context_.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(*timeout_ms));
    }
    // A watch may have nothing to say for a long time; its reader wants to know that it stands.
    if (method_->server_streaming() && method_->name().rfind("Watch", 0) == 0) Begin();
    grpc::Slice slice(request);
    request_ = grpc::ByteBuffer(&slice, 1);
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, path_, {}, this);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&buffer_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  void Resume() {
    std::lock_guard lock(mutex_);
    if (!paused_) return;
    paused_ = false;
    StartRead(&buffer_);
    RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    grpc::ProtoBufferReader reader(&buffer_);
    if (!answer_->ParseFromZeroCopyStream(&reader)) return Cancel();
    buffer_.Clear();
    if (!method_->server_streaming()) {
      whole_ = WriteJson(*answer_);
      return StartRead(&buffer_);
    }
    Begin();
    std::lock_guard lock(mutex_);
    if (out_->Push("data: " + WriteJson(*answer_) + "\n\n")) return StartRead(&buffer_);
    paused_ = true;  // Resume comes from another thread and waits for the lock
    AddHold();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Relay> last = std::move(self_);
    if (begun_) {
      std::string end = "event: end\ndata: {}\n\n";
      if (!status.ok()) {
        end = "event: error\ndata: ";
        AppendRumboError(end, FromGrpcStatus(status));
        end += "\n\n";
      }
      out_->Push(end);
      return out_->End();
    }
    if (!status.ok()) return out_->Reply(ErrorReply(Dialect::kRumbo, FromGrpcStatus(status)));
    if (method_->server_streaming()) {
      Begin();
      out_->Push("event: end\ndata: {}\n\n");
      return out_->End();
    }
    HttpReply reply;
    reply.body = std::move(whole_);
    reply.headers.emplace_back("cache-control", "no-store");
    out_->Reply(std::move(reply));
  }

 private:
  void Begin() {
    if (begun_) return;
    begun_ = true;
    HttpReply head;
    head.content_type = "text/event-stream";
    head.headers.emplace_back("cache-control", "no-store");
    out_->Begin(std::move(head));
  }

  const pb::MethodDescriptor* const method_;
  const std::string path_;  // gRPC keeps a pointer to it
  const std::shared_ptr<ByteStream> out_;
  const std::unique_ptr<pb::Message> answer_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, buffer_;
  std::string whole_;
  std::shared_ptr<Relay> self_;
  std::mutex mutex_;
  bool paused_ = false;  // guarded by mutex_
  bool begun_ = false;
};

class Handle final : public GenerateCall {
 public:
  explicit Handle(std::shared_ptr<Relay> relay) : relay_(std::move(relay)) {}
  ~Handle() override {
    relay_->Cancel();
    relay_->Resume();  // one that waits for the client would never end
  }
  void Cancel() override { relay_->Cancel(); }
  void Resume() override { relay_->Resume(); }

 private:
  const std::shared_ptr<Relay> relay_;
};

bool IsPath(const std::string& text) {
  return !text.empty() && (text.front() == '/' || text.front() == '.' || text.rfind("file:", 0) == 0);
}

// Whether a request names a file: as `path`, or where a model's name stands.
bool NamesAFile(const pb::Message& request) {
  const auto* reflection = request.GetReflection();
  for (const char* name : {"path", "model", "models", "together", "name", "folder", "reference"}) {
    const auto* field = request.GetDescriptor()->FindFieldByName(name);
    if (field == nullptr || field->cpp_type() != pb::FieldDescriptor::CPPTYPE_STRING) continue;
    if (!field->is_repeated() && IsPath(reflection->GetString(request, field))) return true;
    for (int i = 0; field->is_repeated() && i < reflection->FieldSize(request, field); ++i) {
      if (IsPath(reflection->GetRepeatedString(request, field, i))) return true;
    }
  }
  return false;
}

// What the daemon's own user may do beyond the scope of the route: end and place what others run, and name
// files, which it could read anyway.
absl::Status CheckOwnership(const HttpRequest& caller, std::string_view method, const pb::Message& request) {
  if (caller.own_user) return absl::OkStatus();
  const auto denied = [](std::string_view what, std::string_view next) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied, what, next);
  };
  if (NamesAFile(request)) {
    return denied("files are named by the daemon's own user only", "Use the name of a stored model.");
  }
  const bool may_change = (caller.scopes & (1u << static_cast<int>(Scope::kModels))) != 0;
  for (const std::string_view changing :
       {"ModelService/LoadModel", "ModelService/UnloadModel", "InstanceService/Lease"}) {
    if (method == changing && !may_change) {
      return denied("this takes a token with the scope models",
                    "Ask the owner of this daemon for such a token.");
    }
  }
  return absl::OkStatus();
}

// Whose prompts a request may reuse: a user of this machine, or the holder of a token from another one.
std::string OwnerOf(const HttpRequest& caller) {
  if (caller.client.uid != UINT32_MAX) return std::to_string(caller.client.uid);
  std::string owner;
  for (const char c : caller.principal) owner += c > 0x20 && c < 0x7f ? c : '?';
  return owner;
}

absl::StatusOr<std::optional<int64_t>> TimeoutOf(const HttpRequest& request) {
  const std::string_view text = request.Header("x-rumbo-timeout-ms");
  if (text.empty()) return std::optional<int64_t>();
  int64_t ms = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || ms < 1 || ms > kMaxTimeoutMs) {
    return FieldError("x-rumbo-timeout-ms", "must be a whole number from 1 to 86400000");
  }
  return std::optional<int64_t>(ms);
}

}  // namespace

void JsonOverGrpc::Connect(std::shared_ptr<grpc::Channel> channel) {
  std::lock_guard lock(mutex_);
  channel_ = std::move(channel);
}

std::shared_ptr<grpc::Channel> JsonOverGrpc::channel() {
  std::lock_guard lock(mutex_);
  return channel_;
}

void JsonOverGrpc::Call(std::string_view method, ExchangePtr exchange) {
  const auto refuse = [&](const absl::Status& status) {
    exchange->Reply(ErrorReply(Dialect::kRumbo, status));
  };
  std::string name = "rumbo.v1." + std::string(method);
  for (char& c : name) c = c == '/' ? '.' : c;
  const auto* descriptor = pb::DescriptorPool::generated_pool()->FindMethodByName(name);
  if (descriptor == nullptr || descriptor->client_streaming()) {
    return refuse(NotImplemented(std::string(method) + " over HTTP"));
  }
  const auto open = channel();
  if (!open) {
    return refuse(RetryableError(absl::StatusCode::kUnavailable, Reason::kUnspecified,
                                 "the daemon is starting", "Try again.", std::chrono::milliseconds(100)));
  }
  const auto timeout = TimeoutOf(exchange->request());
  if (!timeout.ok()) return refuse(timeout.status());
  std::unique_ptr<pb::Message> request(
      pb::MessageFactory::generated_factory()->GetPrototype(descriptor->input_type())->New());
  if (const absl::Status read = ReadJson(exchange->request().body, request.get()); !read.ok()) {
    return refuse(read);
  }
  if (const absl::Status may = CheckOwnership(exchange->request(), method, *request); !may.ok()) {
    return refuse(may);
  }
  exchange->Stream([descriptor, open, bytes = request->SerializeAsString(), timeout_ms = *timeout,
                    uid = exchange->request().client.uid,
                    owner = OwnerOf(exchange->request())](std::shared_ptr<ByteStream> out) {
    auto relay = std::make_shared<Relay>(descriptor, std::move(out));
    relay->Start(relay, open, bytes, uid, owner, timeout_ms);
    return std::make_unique<Handle>(std::move(relay));
  });
}

}  // namespace rumbo
