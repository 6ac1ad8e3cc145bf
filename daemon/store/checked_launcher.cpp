#include "daemon/store/checked_launcher.h"

#include <mutex>

#include "base/status.h"

namespace rumbo {

// The handle of a launch whose files are being looked at, then of the real one.
class CheckedLauncher::Pending final : public LaunchedEngine {
 public:
  struct State {
    std::mutex mutex;
    std::unique_ptr<LaunchedEngine> inner;
    bool dropped = false;  // the handle is gone
    bool stopped = false;  // asked to end before it was launched
  };

  Pending() : state_(std::make_shared<State>()) {}
  ~Pending() override {
    std::unique_ptr<LaunchedEngine> inner;
    std::lock_guard lock(state_->mutex);
    state_->dropped = true;
    inner = std::move(state_->inner);
  }
  void Stop(std::chrono::milliseconds grace) override {
    std::lock_guard lock(state_->mutex);
    state_->stopped = true;
    if (state_->inner) state_->inner->Stop(grace);
  }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  const std::shared_ptr<State> state_;
};

CheckedLauncher::CheckedLauncher(Launcher* inner, ModelKeeper* store, Executor* executor)
    : inner_(inner), store_(store), executor_(executor) {}

std::unique_ptr<LaunchedEngine> CheckedLauncher::Launch(const LaunchSpec& spec, LaunchCallbacks callbacks) {
  auto handle = std::make_unique<Pending>();
  executor_->Post([this, spec, callbacks = std::move(callbacks), state = handle->state()]() mutable {
    const absl::Status same = store_->CheckUnchanged(spec.files);
    std::lock_guard lock(state->mutex);
    if (state->dropped) return callbacks.on_exit(absl::CancelledError(""));
    if (state->stopped) return callbacks.on_exit(absl::OkStatus());
    if (!same.ok()) return callbacks.on_exit(same);
    state->inner = inner_->Launch(spec, std::move(callbacks));
  });
  return handle;
}

}  // namespace rumbo
