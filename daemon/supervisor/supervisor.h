#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/supervisor/sandbox_journal.h"
#include "engines/api/catalog.h"
#include "engines/api/engine.h"

namespace rumbo {

class WorkerRecord;

// One program that speaks rumbo.engine.v1.
struct EngineProgram {
  InstalledEngine engine;
  std::string path;
  std::vector<std::string> args;
  std::map<std::string, std::string> failure_texts;  // in what it writes -> what that means
};

struct SupervisorOptions {
  std::chrono::milliseconds load_silence{60000};  // a load without a sign of life for so long has hung
  bool isolate = true;                            // see SpawnSpec::isolate
  // Where the sandbox of each engine and backend is written; null: workers run without one. Both outlive the
  // supervisor.
  const EngineCatalog* catalog = nullptr;
  SandboxJournal* journal = nullptr;  // may be null
  std::string cache_dir;              // GPU drivers get a folder of it for compiled shaders; "" none
  bool groups = true;                 // a control group per worker, where that is possible
  WorkerRecord* record = nullptr;     // outlives the supervisor; may be missing
};

// Starts workers, watches them, and ends them with everything they started.
//
// Threading: one thread of its own ("rumbo-super"); Launch and the handles from any thread. Callbacks run on
// that thread or on gRPC's. A load that gives no sign of life is ended after `load_silence`, unless it
// computes or reads meanwhile: then it gets that time again, ten times at most. A worker's stderr goes to our
// log, line by line; its last lines become part of the error when it fails.
std::unique_ptr<Launcher> NewSupervisor(SupervisorOptions options, std::vector<EngineProgram> programs);

// The in-tree workers that are installed under `bin_dir`/engines (and the fake one in `bin_dir`): the best
// build of an engine first. Reads PACK files; starts nothing.
std::vector<EngineProgram> FindWorkers(const std::string& bin_dir);

}  // namespace rumbo
