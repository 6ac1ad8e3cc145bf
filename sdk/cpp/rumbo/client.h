#pragma once

#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "rumbo/error.h"
#include "rumbo/inference.h"
#include "rumbo/shape.h"
#include "rumbo/types.h"

// The way from an app to Rumbo:
//
//   auto client = rumbo::Client::Connect({.start_daemon = true}).value();
//   auto stream = client.Chat({.model = "smollm2", .messages = {rumbo::User("Hello")}});
//   for (const auto& chunk : stream) std::cout << chunk.text << std::flush;
namespace rumbo::inline sdk {

struct ConnectOptions {
  // "": $RUMBO_SOCKET, else $XDG_RUNTIME_DIR/rumbo/rumbo.sock, else /tmp/rumbo-<uid>/rumbo.sock; where
  // nothing stands there, /run/rumbo/rumbo.sock, the system service's.
  std::string socket;
  // Starts a daemon where none runs, and waits until it answers.
  bool start_daemon = false;
  // "": `rumbod` beside this program, else on the PATH.
  std::string daemon_program;
  // For a start: how long until the daemon must answer.
  std::chrono::milliseconds start_timeout{15000};
  // Names the app for fair shares and metrics.
  std::string app;
  // Called once where a daemon is started, with the file its output goes to.
  std::function<void(const std::string& log_path)> on_start;
};

struct CallOptions {
  // Absent: 60 s for calls that answer at once; none for streams, loads, imports and embeddings.
  std::optional<std::chrono::milliseconds> timeout;
  // Asking it to stop cancels the call, from any thread.
  std::stop_token cancel;
  // Calls are repeated only where the daemon says when (RetryInfo), at most so often, only before the first
  // event of a stream, and only for waits of up to `max_retry_wait` that end before the timeout.
  int max_retries = 2;
  std::chrono::milliseconds max_retry_wait{5000};
};

using OnProgress = std::function<void(const Progress&)>;
using OnChunk = std::function<void(const Chunk&)>;

// An answer while it is made. One thread at a time, except Cancel. Destroying it cancels what still runs.
class TextStream {
 public:
  class Source;
  explicit TextStream(std::unique_ptr<Source> source);
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;
  ~TextStream();

  // Waits for the next piece; nullopt at the end, good or bad: Finish() tells which.
  std::optional<Chunk> Next();

  // How it ended. Reads on to the end where Next() has not got there.
  Result<Finished> Finish();

  // What was known when the answer began; nullptr before the first Next() that had something.
  const Started* started() const;

  // Ends the stream from any thread: Next() gives nullopt, Finish() CANCELLED.
  void Cancel();

  class Iterator {
   public:
    using value_type = Chunk;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    Iterator() = default;
    explicit Iterator(TextStream* stream) : stream_(stream) { ++*this; }
    const Chunk& operator*() const { return *chunk_; }
    const Chunk* operator->() const { return &*chunk_; }
    Iterator& operator++() {
      chunk_ = stream_->Next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !chunk_; }

   private:
    TextStream* stream_ = nullptr;
    std::optional<Chunk> chunk_;
  };
  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() { return {}; }

 private:
  std::unique_ptr<Source> source_;
};

// A connection to one daemon. Thread-safe; copies share the connection. Calls block their caller; each fails
// with what the daemon gave as code, reason and next step, or with DAEMON_UNREACHABLE.
class Client {
 public:
  // Checks that somebody listens, and who; sends nothing yet.
  // Errors: UNAVAILABLE (DAEMON_UNREACHABLE), PERMISSION_DENIED; with start_daemon also what kept the daemon
  // from starting, with the end of its log.
  static Result<Client> Connect(const ConnectOptions& options = {});

  Result<Topology> Devices(const std::string& hardware = "", bool refresh = false,
                           const CallOptions& = {}) const;
  Result<InstanceList> Instances(const CallOptions& = {}) const;
  Result<DaemonStatus> Status(const CallOptions& = {}) const;
  // All engines of the catalog, or the one named.
  Result<EngineList> Engines(const std::string& name = "", const CallOptions& = {}) const;
  Result<DoctorReport> Doctor(const CallOptions& = {}) const;
  // Takes no new work and exits once running requests ended or `limit` passed (0: the daemon's default).
  Result<Done> Drain(std::chrono::milliseconds limit, const CallOptions& = {}) const;
  // Reads the daemon's configuration again.
  Result<ReloadReport> Reload(const CallOptions& = {}) const;
  // These three end when the caller cancels, the daemon ends the stream, or the connection breaks.
  // Every instance at once (`initial`), then each change.
  Result<Done> WatchInstances(const std::function<void(const Instance&, bool initial)>&,
                              const CallOptions& = {}) const;
  Result<Done> Logs(const LogsRequest&, const std::function<void(const std::string&)>& on_line,
                    const CallOptions& = {}) const;
  // Keeps a model loaded meanwhile.
  Result<Done> Lease(const LeaseRequest&, const std::function<void(const LeaseEvent&)>&,
                     const CallOptions& = {}) const;

  Result<ModelList> Models(const CallOptions& = {}) const;
  Result<ModelDetails> GetModel(const std::string& name, const CallOptions& = {}) const;
  // `engine` "": whichever would run it.
  Result<CheckReport> CheckModel(const std::string& name, const CallOptions& = {},
                                 const std::string& engine = "") const;
  // Gives the bytes that became free.
  Result<uint64_t> DeleteModel(const std::string& name, const CallOptions& = {}) const;
  Result<Model> Import(const ImportRequest&, const OnProgress& = {}, const CallOptions& = {}) const;
  // Cancelling leaves; the download pauses once nobody watches it any more, and what came is kept.
  Result<Model> Pull(const PullRequest&, const OnProgress& = {}, const CallOptions& = {},
                     const std::function<void(const PullPlan&)>& on_plan = {}) const;
  // What a pull would take and why; fetches heads of files at most.
  Result<PullPlan> PlanPull(const PullRequest&, const OnProgress& = {}, const CallOptions& = {}) const;
  // False where no download of that model was under way.
  Result<bool> StopPull(const std::string& name, const CallOptions& = {}) const;
  Result<SearchHits> Search(const std::string& query, bool hub = false, const CallOptions& = {}) const;
  // `names` empty: all.
  Result<VerifiedModels> Verify(const std::vector<std::string>& names, const OnProgress& = {},
                                const CallOptions& = {}) const;
  Result<Garbage> CollectGarbage(bool dry_run, const CallOptions& = {}) const;
  // `folder`: absolute, on the daemon's machine.
  Result<ExportedFiles> Export(const std::string& name, const std::string& folder, const OnProgress& = {},
                               const CallOptions& = {}) const;
  // Models in other programs' caches; `adopt` takes them (`names` empty: all) into the index where they are.
  Result<CachedModels> Adopt(const std::vector<std::string>& names, bool adopt,
                             const CallOptions& = {}) const;
  Result<Done> Pin(const std::string& name, bool pinned, const CallOptions& = {}) const;

  Result<Plan> MakePlan(const PlanRequest&, const CallOptions& = {}) const;
  // `request.model` and `request.together` side by side.
  Result<JointPlan> MakePlans(const PlanRequest& request, const CallOptions& = {}) const;
  // Measures a model on this machine, for minutes. Callbacks on the caller's thread; either may be empty.
  Result<TuneResult> Tune(const TuneRequest&,
                          const std::function<void(const TuneProgress&)>& on_progress = {},
                          const std::function<void(const TuneTrial&)>& on_trial = {},
                          const CallOptions& = {}) const;
  // `id`: of an instance or a request, or a model's name.
  Result<Explanation> Explain(const std::string& id, const CallOptions& = {}) const;
  Result<AdviceTable> Advise(const AdviseRequest&, const CallOptions& = {}) const;

  Result<Loaded> Load(const LoadRequest&, const OnProgress& = {}, const CallOptions& = {}) const;
  // `name`: a model or an instance. Gives the ids of the instances that end.
  Result<std::vector<std::string>> Unload(const std::string& name, const CallOptions& = {}) const;

  // Answers as they come. The call starts at once; errors come out of Finish().
  TextStream Chat(const ChatRequest&, const CallOptions& = {}) const;
  TextStream Generate(const GenerateRequest&, const CallOptions& = {}) const;
  // The same with a callback on the caller's thread, and the whole at the end.
  Result<Answer> Chat(const ChatRequest&, const OnChunk&, const CallOptions& = {}) const;
  Result<Answer> Generate(const GenerateRequest&, const OnChunk&, const CallOptions& = {}) const;

  // An answer of a given shape (rumbo/shape.h): the engine can write nothing else; the answer is parsed and
  // checked. Errors: also kDataLoss (WRONG_SHAPE) where it was cut off.
  template <class T>
  Result<T> ChatAs(const Shape<T>& shape, ChatRequest request, const CallOptions& options = {}) const {
    request.sampling.json_schema = shape.JsonSchema();
    const auto answer = Chat(
        request, [](const Chunk&) {}, options);
    if (!answer) return answer.error();
    return shape.Parse(answer->text);
  }

  Result<Embeddings> Embed(const EmbedRequest&, const CallOptions& = {}) const;
  Result<Ranking> Rerank(const RerankRequest&, const CallOptions& = {}) const;
  Result<Tokens> Tokenize(const TokenizeRequest&, const CallOptions& = {}) const;
  Result<std::string> Detokenize(const std::string& model, const std::vector<int32_t>& ids,
                                 const CallOptions& = {}) const;

  class Channel;

 private:
  explicit Client(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
  std::shared_ptr<Channel> channel_;
};

}  // namespace rumbo::inline sdk
