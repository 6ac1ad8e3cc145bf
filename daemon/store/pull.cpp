#include "daemon/store/pull.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <future>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/blob_files.h"
#include "daemon/store/reasons.h"
#include "daemon/store/reference.h"
#include "daemon/store/url.h"

namespace rumbo {
namespace {

constexpr size_t kMaxPulls = 8;
constexpr size_t kMaxHeads = 5;         // heads of files looked at for one plan
constexpr double kGoodTokensPerS = 15;  // from here on a better quantisation is worth more than speed

absl::Status Stopped() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the download is paused",
               "`rumbo pull` goes on where it stopped.");
}

// Waits for a callback of another executor, also where `give_up` turns true: what runs there may still speak
// of what is ours. Then `cancelled` asks it to end.
template <typename T>
absl::StatusOr<T> Await(const std::function<void(Callback<T>)>& call, const std::atomic<bool>& give_up,
                        std::atomic<bool>* cancelled = nullptr) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
  std::future<absl::StatusOr<T>> future = promise->get_future();
  call([promise](absl::StatusOr<T> value) { promise->set_value(std::move(value)); });
  while (future.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    if (give_up && cancelled != nullptr) *cancelled = true;
  }
  return future.get();
}

}  // namespace

struct Pulls::Watching {
  uint64_t id;
  PullWatcher watcher;
};

struct Pulls::Job {
  PullSpec spec;
  std::string name;
  std::string reference;
  std::atomic<bool> stop{false};
  std::thread thread;
  // Guarded by Pulls::mutex_.
  std::vector<Watching> watchers;
  std::optional<PullPlan> plan;
  std::optional<PullProgress> last;
  bool ended = false;
};

// One content on its way. The first who needs it runs it; others wait and read its progress.
struct Pulls::Transfer {
  std::atomic<bool> stop{false};
  int users = 0;
  bool ended = false;
  FetchProgress progress;
  absl::StatusOr<FetchedBlob> result = Internal("not ended");
};

struct Pulls::Found {
  ModelReference reference;
  RemoteModel model;
  std::vector<RemoteVariant> variants;
  std::vector<std::string> sources;  // per variant, the reference to remember
  std::string bearer;
  std::vector<std::string> named;  // hosts that the reference named
};

Pulls::Pulls(Core* core, ModelKeeper* store, const Fetcher* fetcher)
    : core_(core), store_(store), fetcher_(fetcher) {}

Pulls::~Pulls() {
  std::vector<std::shared_ptr<Job>> all;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    for (auto& [name, job] : jobs_) all.push_back(job);
    for (auto& job : ended_) all.push_back(job);
    ended_.clear();
    for (auto& job : all) job->stop = true;
    for (auto& [key, transfer] : transfers_) transfer->stop = true;
    changed_.notify_all();
  }
  for (auto& job : all) {
    if (job->thread.joinable()) job->thread.join();
  }
}

void Pulls::Reap() {
  std::vector<std::shared_ptr<Job>> done;
  {
    std::lock_guard lock(mutex_);
    done.swap(ended_);
  }
  for (auto& job : done) {
    if (job->thread.joinable()) job->thread.join();
  }
}

std::shared_ptr<void> Pulls::Join(PullSpec spec, PullWatcher watcher) {
  Reap();
  const auto parsed = ParseReference(spec.reference);
  if (!parsed.ok()) return watcher.on_end(parsed.status()), nullptr;
  std::string name = spec.name.empty() ? NameFor(*parsed) : spec.name;
  if (const absl::Status good = CheckModelName(name); !good.ok()) return watcher.on_end(good), nullptr;
  std::shared_ptr<Job> job;
  uint64_t id = 0;
  absl::Status refused;
  {
    std::lock_guard lock(mutex_);
    // A plan is nobody else's business; a pull is everybody's who wants that model.
    const std::string key = spec.plan_only ? "plan/" + std::to_string(next_watcher_) + "/" + name : name;
    if (closing_)
      refused = Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is shutting down");
    const auto it = jobs_.find(key);
    if (it != jobs_.end() && it->second->reference != FormatReference(*parsed)) {
      refused = Error(absl::StatusCode::kAlreadyExists, Reason::kModelExists,
                      name + " is being pulled from " + it->second->reference, "Choose another --name.");
    }
    if (it == jobs_.end() && jobs_.size() >= kMaxPulls) {
      refused = RetryableError(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                               "eight pulls are under way", "Wait for one to end.", std::chrono::seconds(10));
    }
    if (refused.ok()) {
      id = next_watcher_++;
      if (it != jobs_.end() && !it->second->stop) {
        job = it->second;
        if (job->plan) watcher.on_plan(*job->plan);
        if (job->last) watcher.on_progress(*job->last);
        job->watchers.push_back({id, std::move(watcher)});
      } else if (it != jobs_.end()) {
        refused =
            RetryableError(absl::StatusCode::kUnavailable, kDownloadFailed, name + " is just being paused",
                           "Try again.", std::chrono::milliseconds(500));
      } else {
        job = std::make_shared<Job>();
        job->spec = std::move(spec);
        job->name = name;
        job->reference = FormatReference(*parsed);
        job->watchers.push_back({id, std::move(watcher)});
        jobs_[key] = job;
        job->thread = std::thread([this, job, key] {
          ::pthread_setname_np(::pthread_self(), "rumbo-pull");
          Run(key, job);
        });
      }
    }
  }
  if (!refused.ok()) return watcher.on_end(refused), nullptr;
  return std::shared_ptr<void>(nullptr, [this, id, job](void*) { Leave(id, job); });
}

void Pulls::Leave(uint64_t watcher, const std::shared_ptr<Job>& job) {
  std::lock_guard lock(mutex_);
  auto& list = job->watchers;
  list.erase(std::remove_if(list.begin(), list.end(), [&](const Watching& w) { return w.id == watcher; }),
             list.end());
  if (list.empty() && !job->ended) job->stop = true;
  changed_.notify_all();
}

bool Pulls::Stop(const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto it = jobs_.find(name);
  if (it == jobs_.end()) return false;
  it->second->stop = true;
  changed_.notify_all();
  return true;
}

std::vector<std::string> Pulls::BusyKeys() {
  std::lock_guard lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, transfer] : transfers_) keys.push_back(key);
  for (const auto& [name, job] : jobs_) keys.push_back(PullIdFor(job->name) + ".pull");
  return keys;
}

void Pulls::Tell(Job& job, const PullProgress& progress) {
  std::lock_guard lock(mutex_);
  job.last = progress;
  for (Watching& watching : job.watchers) watching.watcher.on_progress(progress);
}

void Pulls::Run(const std::string& key, const std::shared_ptr<Job>& job) {
  absl::StatusOr<StoredModel> result = Internal("not run");
  try {
    result = Pull(*job);
  } catch (const std::exception& e) {
    result = Internal(std::string("pull: ") + e.what());
  }
  std::vector<Watching> watchers;
  {
    std::lock_guard lock(mutex_);
    job->ended = true;
    watchers.swap(job->watchers);
    // From here on nobody joins it any more, who would never hear of its end.
    jobs_.erase(key);
    ended_.push_back(job);
    changed_.notify_all();
  }
  // Without the lock: the last word to a watcher may be what lets go of it, and that ends in Leave.
  for (Watching& watching : watchers) watching.watcher.on_end(result);
}

// What the reference is: a listing of the hub, a registry's manifest, one address.
absl::StatusOr<Pulls::Found> Pulls::Find(Job& job, const ModelReference& reference) {
  Found found;
  found.reference = reference;
  PullProgress step;
  step.step.step = "plan";
  Tell(job, step);
  switch (reference.kind) {
    case ModelReference::Kind::kHub: {
      RUMBO_ASSIGN_OR_RETURN(found.model, fetcher_->Hub(reference.repository, reference.revision, job.stop));
      RUMBO_ASSIGN_OR_RETURN(found.variants,
                             SelectVariants(found.model, reference.file, reference.quantization));
      break;
    }
    case ModelReference::Kind::kRegistry: {
      RUMBO_ASSIGN_OR_RETURN(found.model, fetcher_->Registry(reference.host, reference.repository,
                                                             reference.tag, &found.bearer, job.stop));
      if (!reference.host.empty()) {
        for (const char* scheme : {"https://", "http://"}) {
          const auto url = ParseUrl(scheme + reference.host);
          if (url.ok()) found.named.push_back(url->host + ":" + std::to_string(url->port));
        }
      }
      RemoteVariant variant{"default", "gguf", {}, 0, ""};
      for (const RemoteFile& file : found.model.files) {
        if (file.path == "model" || file.path.rfind("model-", 0) == 0) variant.files.push_back(file);
      }
      if (variant.files.size() != 1) {
        return Error(absl::StatusCode::kFailedPrecondition, Reason::kFormatUnsupported,
                     "the registry's model has " + std::to_string(variant.files.size()) +
                         " weight files; Rumbo runs those with one",
                     "Take it from a hub as GGUF.");
      }
      variant.bytes = variant.files[0].bytes.value_or(0);
      found.variants.push_back(std::move(variant));
      break;
    }
    case ModelReference::Kind::kUrl: {
      RUMBO_ASSIGN_OR_RETURN(const Url url, ParseUrl(reference.url));
      found.named.push_back(url.host + ":" + std::to_string(url.port));
      RemoteFile file{"model", std::nullopt, reference.sha256, "", reference.url};
      found.model.files = {file};
      found.variants.push_back({"default", "gguf", {file}, 0, ""});
      break;
    }
    default:
      return Internal("not a reference that is downloaded");
  }
  found.sources.assign(found.variants.size(), FormatReference(reference));
  return found;
}

absl::StatusOr<StoredModel> Pulls::Pull(Job& job) {
  RUMBO_ASSIGN_OR_RETURN(const ModelReference reference, ParseReference(job.spec.reference));
  if (reference.kind == ModelReference::Kind::kFile) {
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    return Await<StoredModel>(
        [&](Callback<StoredModel> done) {
          core_->ImportModel(
              {reference.file, job.name, "", job.spec.replace}, cancelled,
              [this, &job](const StepProgress& step) {
                Tell(job, {step, {}, {}});
              },
              std::move(done));
        },
        job.stop, cancelled.get());
  }
  Found found;
  if (reference.kind == ModelReference::Kind::kShortName) {
    const NamedModel* entry = BuiltInModelNames().Find(FormatReference(reference));
    if (entry == nullptr) {
      return Error(
          absl::StatusCode::kNotFound, Reason::kModelNotFound,
          "no short name is " + EscapeForLog(FormatReference(reference), 80),
          "`rumbo models search WORD` looks for one; or write hf:org/repo, ollama:name, https://... .");
    }
    absl::Status last;
    for (const NamedVariant& variant : entry->variants) {
      RUMBO_ASSIGN_OR_RETURN(const ModelReference real, ParseReference(variant.reference));
      auto one = Find(job, real);
      if (job.stop) return Stopped();
      if (!one.ok()) {
        last = one.status();
        continue;
      }
      for (size_t i = 0; i < one->variants.size(); ++i) {
        found.variants.push_back(one->variants[i]);
        found.variants.back().id = one->variants.size() == 1 ? variant.id : one->variants[i].id;
        found.sources.push_back(one->sources[i]);
      }
      found.model.revision = one->model.revision;
      if (found.bearer.empty()) found.bearer = one->bearer;
    }
    if (found.variants.empty()) return last;
    found.reference = reference;
    found.model.licence = entry->licence;
  } else {
    RUMBO_ASSIGN_OR_RETURN(found, Find(job, reference));
  }
  PullPlan plan;
  plan.reference = FormatReference(reference);
  plan.name = job.name;
  plan.licence = found.model.licence;
  plan.gated = found.model.gated;
  RUMBO_ASSIGN_OR_RETURN(const size_t chosen, Choose(job, found, plan));
  if (job.stop) return Stopped();
  {
    std::lock_guard lock(mutex_);
    job.plan = plan;
    for (Watching& watching : job.watchers) watching.watcher.on_plan(plan);
  }
  if (job.spec.plan_only) return StoredModel{job.name, {}, false};
  if (chosen >= found.variants.size()) {
    return Error(
        absl::StatusCode::kFailedPrecondition, Reason::kDoesNotFit,
        "no variant of " + plan.reference + " fits this machine",
        "`rumbo pull " + plan.reference + " --plan` says why; --force takes the smallest all the same.");
  }
  return FetchAll(job, found, found.variants[chosen], plan);
}

// Looks at the head of the variant's first file as the planner would at the whole; true where it fits.
bool Pulls::Estimate(Job& job, const Found& found, const RemoteVariant& variant, PullCandidate& candidate) {
  if (variant.format != "gguf") {
    candidate.reason = "only GGUF files can be planned before they are here";
    return false;
  }
  const std::string name = "head-" + PullIdFor(job.name + variant.id) + ".gguf";
  const std::string path = store_->partial_dir() + "/" + name;
  absl::StatusOr<Plan> plan = Internal("no plan");
  for (const uint64_t bytes : {uint64_t{8} << 20, uint64_t{32} << 20}) {
    const absl::Status head =
        fetcher_->Head(variant.files[0], name, bytes, found.bearer, found.named, job.stop);
    if (!head.ok()) {
      candidate.reason = "its head could not be looked at: " + MessageOf(head);
      break;
    }
    PullProgress step;
    step.step.step = "plan";
    Tell(job, step);
    plan = Await<Plan>(
        [&](Callback<Plan> done) {
          PlanQuery query;
          query.model = path;
          core_->MakePlan(std::move(query), std::move(done));
        },
        job.stop);
    // A head that is too short looks damaged: once more, with more of it.
    if (plan.ok() || ReasonOf(plan.status()) != Reason::kModelInvalid) break;
  }
  ::unlink(path.c_str());
  if (!plan.ok()) {
    if (candidate.reason.empty()) candidate.reason = MessageOf(plan.status());
    return false;
  }
  if (!plan->chosen) {
    candidate.fit = "does not fit";
    candidate.reason = plan->refusal ? plan->refusal->reason : "no engine here can run it";
    return false;
  }
  candidate.fit = "fits";
  candidate.engine = plan->chosen->engine;
  candidate.decode_tok_s = plan->chosen->predicted.decode_tok_s;
  candidate.ttft_ms = plan->chosen->predicted.ttft_ms;
  return true;
}

// Fills the plan's candidates and gives the index of the one to take; found.variants.size() where none fits.
absl::StatusOr<size_t> Pulls::Choose(Job& job, Found& found, PullPlan& plan) {
  for (const RemoteVariant& variant : found.variants) {
    PullCandidate candidate;
    candidate.id = variant.id;
    candidate.format = variant.format;
    if (variant.bytes > 0) candidate.bytes = variant.bytes;
    for (const RemoteFile& file : variant.files) candidate.files.push_back(file.path);
    candidate.reason = variant.problem;
    plan.candidates.push_back(std::move(candidate));
  }
  const size_t none = found.variants.size();
  if (found.variants.size() == 1) {
    plan.candidates[0].chosen = true;
    if (job.spec.plan_only) {
      Estimate(job, found, found.variants[0], plan.candidates[0]);
    } else {
      plan.candidates[0].reason = "the one that was named";
    }
    return size_t{0};
  }
  // The largest first; what is certainly wrong for a choice by itself not at all.
  std::vector<size_t> order;
  for (size_t i = 0; i < found.variants.size(); ++i) {
    if (found.variants[i].problem.empty() && found.variants[i].format == "gguf" &&
        found.variants[i].bytes > 0 && found.variants[i].id != "f32") {
      order.push_back(i);
    }
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return found.variants[a].bytes > found.variants[b].bytes; });
  // Evenly over the sizes where there are many.
  std::vector<size_t> looked;
  const size_t looks = std::min(order.size(), kMaxHeads);
  for (size_t i = 0; i < looks; ++i)
    looked.push_back(order[looks == 1 ? 0 : i * (order.size() - 1) / (looks - 1)]);
  std::optional<size_t> best, fastest;
  for (const size_t i : looked) {
    if (job.stop) return Stopped();
    PullCandidate& candidate = plan.candidates[i];
    if (!Estimate(job, found, found.variants[i], candidate)) continue;
    if (!fastest) fastest = i;
    const double speed = candidate.decode_tok_s.value_or(0);
    if (speed > plan.candidates[*fastest].decode_tok_s.value_or(0)) fastest = i;
    if (!best && speed >= kGoodTokensPerS) best = i;
    if (best && !job.spec.plan_only) break;
  }
  if (const auto chosen = best ? best : fastest) {
    PullCandidate& candidate = plan.candidates[*chosen];
    candidate.chosen = true;
    candidate.reason =
        best ? "the largest that was looked at, fits, and is predicted to give 15 tokens/s or more"
             : "the fastest of those that fit; none is predicted to give 15 tokens/s";
    return *chosen;
  }
  const bool refused = std::any_of(plan.candidates.begin(), plan.candidates.end(),
                                   [](const PullCandidate& c) { return c.fit == "does not fit"; });
  if (refused && !job.spec.force) return none;
  // Nothing is known: the customary middle, else the smallest.
  size_t chosen = order.empty() ? 0 : order.back();
  for (const size_t i : order) {
    if (!refused && found.variants[i].id.find("q4_k_m") != std::string::npos) chosen = i;
  }
  plan.candidates[chosen].chosen = true;
  plan.candidates[chosen].reason = refused ? "the smallest, since it was asked for by force"
                                           : "not planned: " + plan.candidates[chosen].reason;
  return chosen;
}

absl::StatusOr<StoredModel> Pulls::Record(const PullRecord& record, Job& job) {
  const std::string path = store_->partial_dir() + "/" + PullIdFor(record.model) + ".pull";
  RUMBO_RETURN_IF_ERROR(MakeDirectories(store_->partial_dir(), 0700));
  RUMBO_RETURN_IF_ERROR(WriteFileAtomically(path, PullRecordToJson(record)));
  // An end that was reached is recorded even while the last one leaves.
  static const std::atomic<bool> kNever{false};
  auto model = Await<StoredModel>(
      [&](Callback<StoredModel> done) {
        core_->ImportModel(
            {path, record.model, "", record.replace}, std::make_shared<std::atomic<bool>>(false),
            [](const StepProgress&) {}, std::move(done));
      },
      record.complete && !closing_ ? kNever : job.stop);
  // What was refused before a byte came leaves nothing.
  if (!model.ok() && !record.complete && ReasonOf(model.status()) == Reason::kModelExists)
    ::unlink(path.c_str());
  return model;
}

// Whether the model is here already, and sound. `*repair`: it is here and not sound.
absl::StatusOr<StoredModel> Pulls::Already(Job& job, const std::string& name, const RemoteVariant& variant,
                                           bool* repair) {
  *repair = false;
  const auto rows = Await<std::vector<IndexRow>>(
      [&](Callback<std::vector<IndexRow>> done) { store_->Rows(name, std::move(done)); }, job.stop);
  if (!rows.ok()) return rows.status();
  if (rows->empty() || !(*rows)[0].pull.empty()) return absl::NotFoundError("");
  std::set<std::string> stored;
  for (const StoredFile& file : (*rows)[0].files) stored.insert(file.sha256);
  for (const RemoteFile& file : variant.files) {
    if (file.sha256.empty() ? file.git_sha1.empty() : stored.count(file.sha256) == 0)
      return absl::NotFoundError("");
  }
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  auto results = Await<std::vector<VerifyResult>>(
      [&](Callback<std::vector<VerifyResult>> done) {
        store_->Verify(
            {name}, cancelled,
            [this, &job](const StepProgress& step) {
              Tell(job, {step, {}, {}});
            },
            std::move(done));
      },
      job.stop, cancelled.get());
  if (!results.ok()) return results.status();
  *repair = results->empty() || (*results)[0].state != "ok";
  if (*repair) return absl::NotFoundError("");
  return Await<StoredModel>([&](Callback<StoredModel> done) { core_->GetModel(name, std::move(done)); },
                            job.stop);
}

absl::StatusOr<StoredModel> Pulls::FetchAll(Job& job, const Found& found, const RemoteVariant& variant,
                                            const PullPlan& plan) {
  if (!variant.problem.empty())
    return Error(absl::StatusCode::kFailedPrecondition, kModelIncomplete, variant.problem,
                 "Choose another file.");
  bool repair = false;
  if (auto here = Already(job, job.name, variant, &repair); here.ok()) return here;
  if (job.stop) return Stopped();
  PullRecord record;
  record.model = job.name;
  record.licence = plan.licence;
  record.variant = variant.id.empty() ? "default" : variant.id;
  record.format = variant.format;
  record.replace = job.spec.replace || repair;
  record.reference = plan.reference;
  const bool set = variant.files.size() > 1 || variant.format != "gguf";
  uint64_t missing = 0;
  std::vector<bool> have(variant.files.size(), false);
  for (size_t i = 0; i < variant.files.size(); ++i) {
    const RemoteFile& file = variant.files[i];
    const std::string base = file.path.substr(file.path.rfind('/') + 1);
    record.files.push_back({set ? base : "", KeyFor(file), file.sha256, file.git_sha1, file.url, file.bytes});
    struct stat info;
    const std::string blob = store_->blobs_dir() + "/sha256-" + file.sha256;
    if (!repair && !file.sha256.empty() && ::stat(blob.c_str(), &info) == 0 &&
        (!file.bytes || static_cast<uint64_t>(info.st_size) == *file.bytes)) {
      // Another model has it. Only its hash tells whether it still is what it was.
      UniqueFd fd(::open(blob.c_str(), O_RDONLY | O_CLOEXEC));
      const auto hash =
          fd.valid() ? HashFile(fd.get(), job.stop, nullptr) : ErrnoStatus(errno, "open a blob");
      have[i] = hash.ok() && *hash == file.sha256;
    }
    uint64_t there = 0;
    if (::stat((store_->partial_dir() + "/" + record.files[i].key).c_str(), &info) == 0)
      there = static_cast<uint64_t>(info.st_blocks) * 512;
    if (!have[i]) missing = SaturatingAdd(missing, SaturatingSub(file.bytes.value_or(0), there));
  }
  if (const auto room =
          Await<bool>([&](Callback<bool> done) { store_->CheckRoom(missing, std::move(done)); }, job.stop);
      !room.ok()) {
    return room.status();
  }
  RUMBO_RETURN_IF_ERROR(Record(record, job).status());
  const uint64_t total = record.total();
  uint64_t before = 0;
  for (size_t i = 0; i < variant.files.size(); ++i) {
    if (!have[i]) {
      RUMBO_ASSIGN_OR_RETURN(const FetchedBlob blob,
                             FetchFile(job, variant.files[i], record.files[i].key, found, before, total));
      record.files[i].sha256 = blob.sha256;
      record.files[i].bytes = blob.bytes;
    }
    before += record.files[i].bytes.value_or(0);
  }
  PullProgress last;
  last.step.step = "inspect";
  last.step.done_bytes = before;
  last.step.total_bytes = before;
  last.step.fraction = 1.0;
  Tell(job, last);
  record.complete = true;
  auto model = Record(record, job);
  if (!model.ok() && absl::IsInvalidArgument(model.status())) DropUnfinished(job);
  return model;
}

// What is no model goes for good, out of the core's list too: the same bytes would come again. A complete
// model of that name stays.
void Pulls::DropUnfinished(Job& job) {
  static const std::atomic<bool> kNever{false};
  const auto rows = Await<std::vector<IndexRow>>(
      [&](Callback<std::vector<IndexRow>> done) { store_->Rows(job.name, std::move(done)); }, kNever);
  if (!rows.ok() || rows->empty() || (*rows)[0].pull.empty()) return;
  Await<Bytes>([&](Callback<Bytes> done) { core_->DeleteModel(job.name, std::move(done)); }, kNever)
      .status()
      .IgnoreError();
}

// Runs the download of one content, or waits for whoever runs it.
absl::StatusOr<FetchedBlob> Pulls::FetchFile(Job& job, const RemoteFile& file, const std::string& key,
                                             const Found& found, uint64_t before, uint64_t total) {
  const auto tell = [&](const FetchProgress& p) {
    PullProgress out;
    out.step.step = p.step.empty() ? "download" : p.step;
    out.step.done_bytes = before + p.done;
    const uint64_t all = total > 0 ? total : p.total ? before + *p.total : 0;
    if (all > 0) {
      out.step.total_bytes = all;
      out.step.fraction = std::min(1.0, static_cast<double>(before + p.done) / static_cast<double>(all));
    }
    if (p.bytes_per_s > 0) {
      out.bytes_per_s = p.bytes_per_s;
      if (all > before + p.done) out.eta_s = static_cast<double>(all - before - p.done) / p.bytes_per_s;
    }
    Tell(job, out);
  };
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto it = transfers_.find(key);
    if (it == transfers_.end()) break;
    const std::shared_ptr<Transfer> other = it->second;
    ++other->users;
    while (!other->ended && !job.stop) {
      changed_.wait_for(lock, std::chrono::milliseconds(200));
      const FetchProgress progress = other->progress;
      lock.unlock();
      tell(progress);
      lock.lock();
    }
    if (--other->users == 0 && !other->ended) other->stop = true;
    if (job.stop) return Stopped();
    // Where it was stopped, its owner had left: this one goes on.
    if (other->result.ok() || !absl::IsCancelled(other->result.status())) return other->result;
  }
  auto own = std::make_shared<Transfer>();
  own->users = 1;
  transfers_[key] = own;
  lock.unlock();
  // The owner leaving does not end what others wait for.
  std::thread watch([this, &job, own] {
    std::unique_lock inner(mutex_);
    changed_.wait(inner, [&] { return own->ended || job.stop; });
    if (!own->ended && --own->users == 0) own->stop = true;
  });
  auto result = fetcher_->Blob(file, key, found.bearer, found.named, own->stop, [&](const FetchProgress& p) {
    {
      std::lock_guard inner(mutex_);
      own->progress = p;
    }
    if (!job.stop) tell(p);
  });
  lock.lock();
  own->ended = true;
  own->result = result;
  transfers_.erase(key);
  changed_.notify_all();
  lock.unlock();
  watch.join();
  if (!result.ok() && absl::IsCancelled(result.status())) return Stopped();
  return result;
}

}  // namespace rumbo
