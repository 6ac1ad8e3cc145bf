#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/api/request.h"
#include "engines/api/settings.h"

// One running engine, whatever is behind it: an in-tree worker, a process with an HTTP API, a remote
// endpoint. Contract suite: tests/contract/engine_contract.h.  Fake: engines/fake (a real process that
// counts).
namespace rumbo {

// Receives the events of one answer. Called from the engine's own threads, one call at a time, in order;
// implementations return quickly and never call back into the engine except where said.
class GenerateSink {
 public:
  virtual ~GenerateSink() = default;
  virtual void OnStarted(const StartedEvent& event) = 0;

  // Takes the chunk. Returns false to pause: no further event comes until Call::Resume(). The sink may move
  // the contents out.
  virtual bool OnChunk(ChunkEvent& chunk) = 0;

  // Exactly once, the last call. `finished` is null unless `status` is OK.
  // Errors as in rumbo.v1.InferenceService.
  virtual void OnEnd(const absl::Status& status, const FinishedEvent* finished) = 0;
};

// One answer under way. Thread-safe. May be destroyed any time, also inside OnEnd; destroying it before OnEnd
// cancels, and the sink is then still kept alive until its OnEnd has come.
class GenerateCall {
 public:
  virtual ~GenerateCall() = default;
  // The sink's OnEnd comes at once with kCancelled (unless it came already); the engine frees the slot
  // within one step.
  virtual void Cancel() = 0;
  // After OnChunk decided to return false: it may come from another thread before OnChunk has returned, and
  // counts then too. From any thread but inside OnChunk.
  virtual void Resume() = 0;
};

struct EngineStats {
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint64_t kv_used = 0;  // cells
  uint64_t kv_total = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
  double step_ms = 0;
  double prompt_tok_s = 0;
  double decode_tok_s = 0;
  // The cache on disk: bytes of its files; sequences read back and written; failed writes and broken files.
  uint64_t disk_cache_bytes = 0;
  uint64_t disk_cache_loads = 0;
  uint64_t disk_cache_writes = 0;
  uint64_t disk_cache_failures = 0;
};

struct EngineInfo {
  std::string version;
  std::vector<MemoryItem> memory;  // what it really took; pools already mapped to pool ids
  EngineSettings settings;         // in force
  std::vector<std::string> capabilities;
  bool has_chat_template = false;
  uint32_t context_trained = 0;
  double load_ms = 0;
  std::string backend_variant;
};

struct EmbeddingResult {
  std::vector<std::vector<float>> embeddings;
  uint32_t prompt_tokens = 0;
};

struct RerankScores {
  std::vector<float> scores;
  uint32_t prompt_tokens = 0;
};

struct TokenizeResult {
  std::vector<int32_t> ids;
  std::vector<std::string> pieces;
};

struct TemplateResult {
  std::string prompt;
  uint32_t tokens = 0;
};

// A ready engine. All calls are asynchronous, thread-safe, and bounded by `deadline` where they take one;
// callbacks run on the engine's threads.
class Engine {
 public:
  template <typename T>
  using Callback = std::function<void(absl::StatusOr<T>)>;
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~Engine() = default;

  // Starts one answer. `sink` is kept until its OnEnd. Errors come through OnEnd, never from here.
  virtual std::unique_ptr<GenerateCall> Generate(const GenerateRequest& request, Deadline deadline,
                                                 std::shared_ptr<GenerateSink> sink) = 0;

  virtual void Embed(std::vector<std::string> inputs, std::string pooling, bool normalize, Deadline deadline,
                     Callback<EmbeddingResult> done) = 0;
  virtual void Rerank(std::string query, std::vector<std::string> documents, Deadline deadline,
                      Callback<RerankScores> done) = 0;
  virtual void Tokenize(std::string text, bool add_special, bool parse_special, Deadline deadline,
                        Callback<TokenizeResult> done) = 0;
  virtual void Detokenize(std::vector<int32_t> ids, Deadline deadline, Callback<std::string> done) = 0;
  virtual void ApplyTemplate(const ChatInput& chat, Deadline deadline, Callback<TemplateResult> done) = 0;
  virtual void GetStats(Deadline deadline, Callback<EngineStats> done) = 0;
};

// What to start. Filled by residency from a plan.
struct LaunchSpec {
  std::string instance_id;
  std::string engine;        // "llamacpp", "fake", ...
  std::string engine_build;  // which build or pack, e.g. "native"; "" the default
  std::string backend;
  std::vector<std::string> device_selectors;
  std::vector<std::string> files;
  std::string model_sha256;
  std::string chat_template;
  EngineSettings settings;
  std::string cache_dir;
  struct Adapter {
    std::string name;
    std::string file;
    std::string sha256;
  };
  std::vector<Adapter> adapters;         // that requests may name
  std::vector<std::string> draft_files;  // of a model that guesses ahead
};

// The life of one engine process. Callbacks of one launch come in order and never after `on_exit`.
struct LaunchCallbacks {
  std::function<void(int64_t pid)> on_started;
  std::function<void(double fraction, const std::string& step)> on_progress;
  // The engine is ready for requests and stays valid until on_exit was called and every call has ended.
  std::function<void(std::shared_ptr<Engine> engine, EngineInfo info)> on_ready;
  // The process is gone, with everything it started, and its memory is given back. `status` is OK only after
  // Stop(). Exactly once, also where it never started.
  std::function<void(absl::Status status)> on_exit;
};

// A launched engine. Destroying the handle kills the process group.
class LaunchedEngine {
 public:
  virtual ~LaunchedEngine() = default;
  // Asks it to end and kills it after `grace`. Idempotent.
  virtual void Stop(std::chrono::milliseconds grace) = 0;
};

// Starts engines. Implemented by daemon/supervisor; tests have their own.
class Launcher {
 public:
  virtual ~Launcher() = default;
  // Never blocks; errors come through on_exit. Callbacks run on the launcher's threads.
  virtual std::unique_ptr<LaunchedEngine> Launch(const LaunchSpec& spec, LaunchCallbacks callbacks) = 0;
};

// An engine that is installed and can be launched, with the facts the planner needs. Static for a daemon's
// life.
struct InstalledEngine {
  std::string name;                   // "llamacpp"
  std::string build;                  // "native", "prebuilt", "" ...
  std::string version;                // "0.5.0"
  std::vector<std::string> backends;  // "cpu", "vulkan", ...
};

}  // namespace rumbo
