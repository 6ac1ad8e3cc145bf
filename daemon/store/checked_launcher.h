#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"
#include "daemon/store/store.h"
#include "engines/api/engine.h"

namespace rumbo {

// Launches only what is still as it was stored: before each launch, size and time of every file are compared
// with the index; where they differ the content is hashed, and a model that changed is refused with
// kFailedPrecondition (kHashMismatch) through on_exit. Files the index does not know pass.
//
// Threading: as Launcher. Looks at files on `executor`, where it may block.
class CheckedLauncher final : public Launcher {
 public:
  CheckedLauncher(Launcher* inner, ModelKeeper* store, Executor* executor);
  std::unique_ptr<LaunchedEngine> Launch(const LaunchSpec& spec, LaunchCallbacks callbacks) override;

 private:
  class Pending;
  Launcher* const inner_;
  ModelKeeper* const store_;
  Executor* const executor_;
};

}  // namespace rumbo
