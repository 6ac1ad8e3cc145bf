#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/core.h"
#include "daemon/store/check.h"
#include "daemon/store/store.h"

namespace rumbo {

// How downloads are made; from the daemon's options.
struct FetchSettings {
  std::string hub = "https://huggingface.co";
  std::vector<std::string> hub_mirrors;  // tried after `hub`
  std::string registry = "https://registry.ollama.ai";
  std::vector<std::string> named_hosts;  // may be inside this network
  std::string token_file;                // "" none
  std::string proxy;
  uint64_t rate = 0;  // bytes per second
  int connections = 4;
  int stall_s = 30;
  int retry_ms = 300;
  bool offline = false;
};

struct PullSpec {
  std::string reference;
  std::string name;
  bool plan_only = false;
  bool replace = false;
  bool force = false;
};

struct PullProgress {
  StepProgress step;
  std::optional<double> bytes_per_s;
  std::optional<double> eta_s;
};

struct PullCandidate {
  std::string id;
  std::string format;
  std::optional<uint64_t> bytes;
  std::vector<std::string> files;
  std::string fit = "unknown";  // "fits", "does not fit", "unknown"
  bool chosen = false;
  std::string reason;
  std::optional<double> decode_tok_s;
  std::optional<double> ttft_ms;
  std::string engine;
};

struct PullPlan {
  std::string reference;
  std::string name;
  std::string licence;
  bool gated = false;
  std::vector<PullCandidate> candidates;
};

// One who waits for a pull. Called from the pull's thread; returns quickly, never blocks.
struct PullWatcher {
  std::function<void(const PullProgress&)> on_progress;
  std::function<void(const PullPlan&)> on_plan;
  std::function<void(absl::StatusOr<StoredModel>)> on_end;  // once and last; not after the token is gone
};

struct SearchHit {
  std::string reference;
  std::string title;
  std::string licence;
  std::string origin;  // "list", "hub"
  std::vector<std::string> variants;
  std::optional<uint64_t> downloads;
  std::string source;
};

struct CachedModel {
  std::string name;
  std::string cache;  // "huggingface", "ollama", "lmstudio"
  std::string path;   // what to adopt
  Bytes bytes = 0;
  std::string state = "found";  // "found", "adopted", "known", "refused"
  std::string text;
};

// Models from outside: pulls, searches, adoption, the preflight. Between the core, the store and rumbo-fetch.
//
// Threading: any thread. A pull has a thread of its own ("rumbo-pull"), eight at most; the rest runs on
// `aux`, which may block and is nobody else's. Destroy it before the core and the executors: that waits for
// what runs on `aux`.
class ModelLibrary {
 public:
  struct Parts {
    Core* core;
    ModelKeeper* store;
    Executor* aux;
    std::string bin_dir;
    FetchSettings fetch;
    std::vector<std::string> cache_roots;  // of other programs; empty: where they are by default
  };
  static std::unique_ptr<ModelLibrary> Create(Parts parts);
  virtual ~ModelLibrary() = default;

  // Joins the download of that model, or begins it. Dropping the token leaves; the last to leave pauses it.
  virtual std::shared_ptr<void> Pull(PullSpec spec, PullWatcher watcher) = 0;
  // Pauses; false where there is none of that name.
  virtual bool StopPull(const std::string& name) = 0;
  virtual void Search(std::string query, bool hub, Callback<std::vector<SearchHit>> done) = 0;
  virtual void Verify(std::vector<std::string> names, std::shared_ptr<std::atomic<bool>> cancelled,
                      std::function<void(const StepProgress&)> progress,
                      Callback<std::vector<VerifyResult>> done) = 0;
  virtual void Collect(bool dry_run, Callback<Garbage> done) = 0;
  virtual void Export(std::string name, std::string folder, std::shared_ptr<std::atomic<bool>> cancelled,
                      std::function<void(const StepProgress&)> progress,
                      Callback<std::vector<std::string>> done) = 0;
  virtual void Adopt(std::vector<std::string> names, bool adopt, Callback<std::vector<CachedModel>> done) = 0;
  virtual void Check(std::string name, std::string engine, Callback<std::vector<CheckItem>> done) = 0;
};

}  // namespace rumbo
