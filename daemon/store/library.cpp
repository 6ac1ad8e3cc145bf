#include "daemon/store/library.h"

#include <sys/stat.h>

#include <atomic>
#include <future>
#include <set>

#include "base/os/files.h"
#include "base/status.h"
#include "base/utf8.h"
#include "daemon/store/caches.h"
#include "daemon/store/check_files.h"
#include "daemon/store/fetcher.h"
#include "daemon/store/names.h"
#include "daemon/store/pull.h"
#include "daemon/store/reasons.h"

namespace rumbo {
namespace {

class Library final : public ModelLibrary {
 public:
  explicit Library(Parts parts)
      : parts_(std::move(parts)),
        fetcher_(parts_.bin_dir, parts_.fetch, parts_.store->partial_dir()),
        pulls_(parts_.core, parts_.store, &fetcher_) {
    if (parts_.cache_roots.empty()) parts_.cache_roots = DefaultCacheRoots();
  }
  ~Library() override {
    *stop_ = true;
    // What runs there speaks of us.
    std::promise<void> idle;
    parts_.aux->Post([&idle] { idle.set_value(); });
    idle.get_future().wait();
  }

  std::shared_ptr<void> Pull(PullSpec spec, PullWatcher watcher) override {
    return pulls_.Join(std::move(spec), std::move(watcher));
  }
  bool StopPull(const std::string& name) override { return pulls_.Stop(name); }

  void Search(std::string query, bool hub, Callback<std::vector<SearchHit>> done) override {
    parts_.aux->Post([this, query = std::move(query), hub, done = std::move(done)] {
      std::vector<SearchHit> hits;
      for (const NamedModel* model : BuiltInModelNames().Search(query)) {
        SearchHit hit{
            model->name, model->title, model->licence, "list", {}, {}, model->source + ", " + model->checked};
        for (const NamedVariant& variant : model->variants)
          hit.variants.push_back(variant.id + " = " + variant.reference);
        hits.push_back(std::move(hit));
      }
      if (!hub) return done(std::move(hits));
      auto more = fetcher_.Search(query, *stop_);
      if (!more.ok()) return done(more.status());
      hits.insert(hits.end(), more->begin(), more->end());
      done(std::move(hits));
    });
  }

  void Verify(std::vector<std::string> names, std::shared_ptr<std::atomic<bool>> cancelled,
              std::function<void(const StepProgress&)> progress,
              Callback<std::vector<VerifyResult>> done) override {
    parts_.store->Verify(std::move(names), std::move(cancelled), std::move(progress), std::move(done));
  }
  void Collect(bool dry_run, Callback<Garbage> done) override {
    parts_.store->Collect(dry_run, pulls_.BusyKeys(), std::move(done));
  }
  void Export(std::string name, std::string folder, std::shared_ptr<std::atomic<bool>> cancelled,
              std::function<void(const StepProgress&)> progress,
              Callback<std::vector<std::string>> done) override {
    parts_.store->Export(std::move(name), std::move(folder), std::move(cancelled), std::move(progress),
                         std::move(done));
  }

  void Adopt(std::vector<std::string> names, bool adopt, Callback<std::vector<CachedModel>> done) override {
    parts_.core->ListModels([this, names = std::move(names), adopt,
                             done = std::move(done)](absl::StatusOr<std::vector<StoredModel>> known) {
      if (!known.ok()) return done(known.status());
      parts_.aux->Post([this, names, adopt, done, known = std::move(*known)] {
        auto found = std::make_shared<std::vector<CachedModel>>(ScanCaches(parts_.cache_roots));
        std::set<std::string> paths;
        for (const StoredModel& model : known) {
          for (const StoredVariant& variant : model.variants) {
            const auto source = variant.descriptor.metadata.find("rumbo.source");
            if (source != variant.descriptor.metadata.end()) paths.insert(source->second);
          }
        }
        const std::set<std::string> wanted(names.begin(), names.end());
        std::vector<size_t> todo;
        for (size_t i = 0; i < found->size(); ++i) {
          CachedModel& model = (*found)[i];
          if (paths.count("adopted:" + model.path) > 0) model.state = "known";
          if (model.state == "found" && adopt && (names.empty() || wanted.count(model.name) > 0))
            todo.push_back(i);
        }
        AdoptNext(found, std::move(todo), done);
      });
    });
  }

  void Check(std::string name, std::string engine, Callback<std::vector<CheckItem>> done) override {
    parts_.core->GetModel(name, [this, name, engine, done](absl::StatusOr<StoredModel> model) {
      if (!model.ok() && (name.empty() || name[0] != '/')) return done(model.status());
      parts_.core->GetTopology("", false,
                               [this, name, engine, done, model](absl::StatusOr<Topology> topology) {
                                 parts_.aux->Post([this, name, engine, done, model, topology] {
                                   CheckRequest request;
                                   request.name = name;
                                   request.engine = engine;
                                   if (topology.ok()) request.topology = &*topology;
                                   if (model.ok() && !model->variants.empty()) {
                                     const StoredVariant& variant = model->variants[0];
                                     request.descriptor = variant.descriptor;
                                     request.files = variant.files;
                                     request.state = variant.state;
                                   }
                                   done(CheckModelFiles(parts_.bin_dir, request));
                                 });
                               });
    });
  }

 private:
  void AdoptNext(std::shared_ptr<std::vector<CachedModel>> found, std::vector<size_t> todo,
                 Callback<std::vector<CachedModel>> done) {
    if (todo.empty()) return done(std::move(*found));
    const size_t at = todo.back();
    todo.pop_back();
    const CachedModel model = (*found)[at];
    parts_.core->ImportModel(
        {"link:" + model.path, model.name, "", false}, std::make_shared<std::atomic<bool>>(false),
        [](const StepProgress&) {},
        [this, found, todo, done, at](absl::StatusOr<StoredModel> adopted) {
          CachedModel& result = (*found)[at];
          result.state = adopted.ok() ? "adopted" : "refused";
          if (!adopted.ok()) result.text = MessageOf(adopted.status());
          AdoptNext(found, todo, done);
        });
  }

  Parts parts_;
  std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
  Fetcher fetcher_;
  Pulls pulls_;
};

}  // namespace

std::unique_ptr<ModelLibrary> ModelLibrary::Create(Parts parts) {
  return std::make_unique<Library>(std::move(parts));
}

}  // namespace rumbo
