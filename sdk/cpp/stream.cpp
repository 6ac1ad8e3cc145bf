#include "sdk/cpp/call.h"
#include "sdk/cpp/convert.h"

namespace rumbo::inline sdk {
namespace {

// One server stream with retries before its first message.
template <class Request, class Response>
class Reading {
 public:
  using Open =
      std::function<std::unique_ptr<grpc::ClientReader<Response>>(grpc::ClientContext*, const Request&)>;

  Reading(const Client::Channel& channel, Open open, Request request, const CallOptions& options)
      : open_(std::move(open)), request_(std::move(request)), scope_(options, std::nullopt) {
    channel.AwaitReturn();
    Begin();
  }
  ~Reading() {
    if (ended_) return;
    attempt_->context.TryCancel();
    Response ignored;
    while (reader_->Read(&ignored)) {
    }
    (void)reader_->Finish();
  }

  // False at the end; then error() says how.
  bool Read(Response* response) {
    while (!ended_) {
      if (reader_->Read(response)) {
        any_ = true;
        return true;
      }
      const grpc::Status status = reader_->Finish();
      ended_ = true;
      if (status.ok()) return false;
      error_ = FromStatus(status);
      if (any_ || !scope_.WaitToRetry(*error_)) return false;
      error_.reset();
      Begin();
    }
    return false;
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  void Begin() {
    reader_.reset();
    attempt_ = std::make_unique<CallScope::Attempt>(scope_);
    reader_ = open_(&attempt_->context, request_);
    ended_ = false;
  }

  const Open open_;
  const Request request_;
  CallScope scope_;
  std::unique_ptr<CallScope::Attempt> attempt_;
  std::unique_ptr<grpc::ClientReader<Response>> reader_;
  bool any_ = false;
  bool ended_ = false;
  std::optional<Error> error_;
};

Error BrokenStream(const char* what) {
  return {Code::kInternal,
          Reason::kInternal,
          "INTERNAL",
          what,
          "This is a fault of the daemon; please report it.",
          std::nullopt};
}

// Reads progress until the result comes. `pick` gives the result of a message, or nullopt for progress.
template <class Out, class Reader, class Response, class Pick>
Result<Out> ReadProgress(Reader& reader, Response& message, const OnProgress& on_progress, const Pick& pick) {
  std::optional<Out> out;
  while (reader.Read(&message)) {
    if (message.has_progress()) {
      if (on_progress) on_progress(From(message.progress()));
    } else if (auto picked = pick(message)) {
      out = std::move(picked);
    }
  }
  if (reader.error()) return *reader.error();
  if (!out) return BrokenStream("the daemon ended the call without a result");
  return std::move(*out);
}

void Add(const Chunk& chunk, Answer* answer) {
  answer->text += chunk.text;
  answer->reasoning += chunk.reasoning;
  for (const auto& delta : chunk.tool_calls) {
    if (delta.index > 4096) continue;  // Not a call that any model makes.
    if (answer->tool_calls.size() <= delta.index) answer->tool_calls.resize(delta.index + 1);
    ToolCall& call = answer->tool_calls[delta.index];
    call.id += delta.id;
    call.name += delta.name;
    call.arguments_json += delta.arguments_json;
  }
}

Result<Answer> Collect(TextStream stream, const OnChunk& on_chunk) {
  Answer answer;
  while (const auto chunk = stream.Next()) {
    Add(*chunk, &answer);
    if (on_chunk) on_chunk(*chunk);
  }
  auto finished = stream.Finish();
  if (!finished) return finished.error();
  if (stream.started() != nullptr) answer.started = *stream.started();
  answer.finished = *finished;
  return answer;
}

}  // namespace

class TextStream::Source {
 public:
  explicit Source(const CallOptions& options) {
    call = options;
    call.cancel = stop.get_token();
    if (options.cancel.stop_possible()) outer.emplace(options.cancel, [this] { stop.request_stop(); });
  }
  virtual ~Source() = default;
  virtual std::optional<Chunk> Next() = 0;
  virtual const std::optional<Error>& error() const = 0;

  std::stop_source stop;
  CallOptions call;
  std::optional<Started> started;
  std::optional<Finished> finished;

 private:
  std::optional<std::stop_callback<std::function<void()>>> outer;
};

namespace {

template <class Request, class Response>
class TextSource final : public TextStream::Source {
 public:
  TextSource(std::shared_ptr<Client::Channel> channel, typename Reading<Request, Response>::Open open,
             Request request, const CallOptions& options)
      : Source(options),
        channel_(std::move(channel)),
        reading_(*channel_, std::move(open), std::move(request), call) {}

  std::optional<Chunk> Next() override {
    while (reading_.Read(&message_)) {
      if (message_.has_chunk()) return From(message_.chunk());
      if (message_.has_started()) started = From(message_.started());
      if (message_.has_finished()) finished = From(message_.finished());
    }
    return std::nullopt;
  }
  const std::optional<Error>& error() const override { return reading_.error(); }

 private:
  std::shared_ptr<Client::Channel> channel_;
  Response message_;
  Reading<Request, Response> reading_;
};

}  // namespace

TextStream::TextStream(std::unique_ptr<Source> source) : source_(std::move(source)) {}
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;

std::optional<Chunk> TextStream::Next() { return source_->Next(); }
const Started* TextStream::started() const { return source_->started ? &*source_->started : nullptr; }
void TextStream::Cancel() { source_->stop.request_stop(); }

Result<Finished> TextStream::Finish() {
  while (source_->Next()) {
  }
  if (source_->error()) return *source_->error();
  if (!source_->finished) return BrokenStream("the answer ended without its last message");
  return *source_->finished;
}

TextStream Client::Chat(const ChatRequest& in, const CallOptions& options) const {
  v1::ChatRequest request;
  To(in, channel_->app, &request);
  auto open = [channel = channel_](grpc::ClientContext* context, const v1::ChatRequest& wire) {
    return channel->inference->Chat(context, wire);
  };
  return TextStream(std::make_unique<TextSource<v1::ChatRequest, v1::ChatResponse>>(
      channel_, open, std::move(request), options));
}

TextStream Client::Generate(const GenerateRequest& in, const CallOptions& options) const {
  v1::GenerateRequest request;
  To(in, channel_->app, &request);
  auto open = [channel = channel_](grpc::ClientContext* context, const v1::GenerateRequest& wire) {
    return channel->inference->Generate(context, wire);
  };
  return TextStream(std::make_unique<TextSource<v1::GenerateRequest, v1::GenerateResponse>>(
      channel_, open, std::move(request), options));
}

Result<Answer> Client::Chat(const ChatRequest& request, const OnChunk& on_chunk,
                            const CallOptions& options) const {
  return Collect(Chat(request, options), on_chunk);
}

Result<Answer> Client::Generate(const GenerateRequest& request, const OnChunk& on_chunk,
                                const CallOptions& options) const {
  return Collect(Generate(request, options), on_chunk);
}

Result<Model> Client::Import(const ImportRequest& in, const OnProgress& on_progress,
                             const CallOptions& options) const {
  v1::ImportModelRequest request;
  request.set_path(in.path);
  request.set_name(in.name);
  request.set_expected_sha256(in.expected_sha256);
  request.set_replace(in.replace);
  request.set_variant(in.variant);
  Reading<v1::ImportModelRequest, v1::ImportModelResponse> reading(
      *channel_,
      [this](auto* context, const auto& wire) { return channel_->model->ImportModel(context, wire); },
      request, options);
  v1::ImportModelResponse message;
  return ReadProgress<Model>(reading, message, on_progress, [](const auto& m) {
    return m.has_model() ? std::optional(From(m.model())) : std::nullopt;
  });
}

Result<Done> Client::WatchInstances(const std::function<void(const Instance&, bool)>& on_change,
                                    const CallOptions& options) const {
  Reading<v1::WatchInstancesRequest, v1::WatchInstancesResponse> reading(
      *channel_,
      [this](auto* context, const auto& wire) { return channel_->instance->WatchInstances(context, wire); },
      v1::WatchInstancesRequest(), options);
  v1::WatchInstancesResponse message;
  while (reading.Read(&message)) on_change(From(message.instance()), message.initial());
  if (reading.error()) return *reading.error();
  return Done{};
}

Result<Done> Client::Logs(const LogsRequest& in, const std::function<void(const std::string&)>& on_line,
                          const CallOptions& options) const {
  v1::WatchLogsRequest request;
  request.set_filter(in.filter);
  request.set_last(in.last);
  request.set_follow(in.follow);
  Reading<v1::WatchLogsRequest, v1::WatchLogsResponse> reading(
      *channel_,
      [this](auto* context, const auto& wire) { return channel_->admin->WatchLogs(context, wire); }, request,
      options);
  v1::WatchLogsResponse message;
  while (reading.Read(&message)) on_line(message.line());
  if (reading.error()) return *reading.error();
  return Done{};
}

Result<Done> Client::Lease(const LeaseRequest& in, const std::function<void(const LeaseEvent&)>& on_event,
                           const CallOptions& options) const {
  v1::LeaseRequest request;
  request.set_model(in.model);
  request.set_priority(in.priority);
  request.set_app(channel_->app);
  To(in.workload, request.mutable_workload());
  Reading<v1::LeaseRequest, v1::LeaseResponse> reading(
      *channel_, [this](auto* context, const auto& wire) { return channel_->instance->Lease(context, wire); },
      request, options);
  v1::LeaseResponse message;
  while (reading.Read(&message)) on_event({message.event(), message.instance_id(), message.reason()});
  if (reading.error()) return *reading.error();
  return Done{};
}

static v1::PullModelRequest PullMessage(const PullRequest& in) {
  v1::PullModelRequest request;
  request.set_reference(in.reference);
  request.set_name(in.name);
  request.set_plan_only(in.plan_only);
  request.set_replace(in.replace);
  request.set_force(in.force);
  return request;
}

Result<Model> Client::Pull(const PullRequest& in, const OnProgress& on_progress, const CallOptions& options,
                           const std::function<void(const PullPlan&)>& on_plan) const {
  Reading<v1::PullModelRequest, v1::PullModelResponse> reading(
      *channel_,
      [this](auto* context, const auto& wire) { return channel_->model->PullModel(context, wire); },
      PullMessage(in), options);
  v1::PullModelResponse message;
  return ReadProgress<Model>(reading, message, on_progress, [&on_plan](const auto& m) {
    if (m.has_plan() && on_plan) on_plan(From(m.plan()));
    return m.has_model() ? std::optional(From(m.model())) : std::nullopt;
  });
}

Result<TuneResult> Client::Tune(const TuneRequest& in,
                                const std::function<void(const TuneProgress&)>& on_progress,
                                const std::function<void(const TuneTrial&)>& on_trial,
                                const CallOptions& options) const {
  v1::TuneModelRequest request;
  request.set_name(in.model);
  for (const uint32_t sessions : in.sessions) request.add_sessions(sessions);
  if (in.limit_s) request.set_limit_s(*in.limit_s);
  To(in.overrides, request.mutable_overrides());
  Reading<v1::TuneModelRequest, v1::TuneModelResponse> reading(
      *channel_, [this](auto* context, const auto& wire) { return channel_->plan->TuneModel(context, wire); },
      request, options);
  v1::TuneModelResponse message;
  std::optional<TuneResult> result;
  while (reading.Read(&message)) {
    if (message.has_progress() && on_progress) on_progress(From(message.progress()));
    if (message.has_trial() && on_trial) on_trial(From(message.trial()));
    if (message.has_result()) result = From(message.result());
  }
  if (reading.error()) return *reading.error();
  if (!result) return BrokenStream("the daemon ended the call without a result");
  return std::move(*result);
}

Result<PullPlan> Client::PlanPull(const PullRequest& in, const OnProgress& on_progress,
                                  const CallOptions& options) const {
  PullRequest only = in;
  only.plan_only = true;
  Reading<v1::PullModelRequest, v1::PullModelResponse> reading(
      *channel_,
      [this](auto* context, const auto& wire) { return channel_->model->PullModel(context, wire); },
      PullMessage(only), options);
  v1::PullModelResponse message;
  return ReadProgress<PullPlan>(reading, message, on_progress, [](const auto& m) {
    return m.has_plan() ? std::optional(From(m.plan())) : std::nullopt;
  });
}

Result<VerifiedModels> Client::Verify(const std::vector<std::string>& names, const OnProgress& on_progress,
                                      const CallOptions& options) const {
  v1::VerifyModelsRequest request;
  for (const auto& name : names) request.add_names(name);
  Reading<v1::VerifyModelsRequest, v1::VerifyModelsResponse> reading(
      *channel_,
      [this](auto* context, const auto& wire) { return channel_->model->VerifyModels(context, wire); },
      request, options);
  v1::VerifyModelsResponse message;
  return ReadProgress<VerifiedModels>(reading, message, on_progress,
                                      [](const auto& m) -> std::optional<VerifiedModels> {
                                        if (!m.has_results()) return std::nullopt;
                                        VerifiedModels out;
                                        for (const auto& model : m.results().models())
                                          out.models.push_back({model.name(), model.state(), model.text()});
                                        out.wire = Wire(std::make_shared<v1::VerifyResults>(m.results()));
                                        return out;
                                      });
}

Result<ExportedFiles> Client::Export(const std::string& name, const std::string& folder,
                                     const OnProgress& on_progress, const CallOptions& options) const {
  v1::ExportModelRequest request;
  request.set_name(name);
  request.set_folder(folder);
  Reading<v1::ExportModelRequest, v1::ExportModelResponse> reading(
      *channel_,
      [this](auto* context, const auto& wire) { return channel_->model->ExportModel(context, wire); },
      request, options);
  v1::ExportModelResponse message;
  return ReadProgress<ExportedFiles>(
      reading, message, on_progress, [](const auto& m) -> std::optional<ExportedFiles> {
        if (!m.has_files()) return std::nullopt;
        return ExportedFiles{{m.files().paths().begin(), m.files().paths().end()},
                             Wire(std::make_shared<v1::ExportedFiles>(m.files()))};
      });
}

Result<Loaded> Client::Load(const LoadRequest& in, const OnProgress& on_progress,
                            const CallOptions& options) const {
  v1::LoadModelRequest request;
  To(in, &request);
  Reading<v1::LoadModelRequest, v1::LoadModelResponse> reading(
      *channel_,
      [this](auto* context, const auto& wire) { return channel_->model->LoadModel(context, wire); }, request,
      options);
  v1::LoadModelResponse message;
  return ReadProgress<Loaded>(reading, message, on_progress, [](const auto& m) {
    return m.has_loaded() ? std::optional(From(m.loaded())) : std::nullopt;
  });
}

}  // namespace rumbo::inline sdk
