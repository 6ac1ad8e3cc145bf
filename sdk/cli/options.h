#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rumbo/inference.h"
#include "rumbo/types.h"

// The command line, taken apart. Behind this header stands the one file that includes CLI11.
namespace rumbo::cli {

struct Options {
  std::string command;
  bool json = false;

  // The command's object: a model, a path, an id, a reference.
  std::string subject;
  // Further words: the prompt, texts, models.
  std::vector<std::string> words;

  // import, pull
  std::string name;
  std::string sha256;
  bool replace = false;
  std::string variant;
  bool plan = false;   // pull: only say what would be taken
  bool pause = false;  // pull: stop the one under way
  bool force = false;  // pull: also what does not fit

  // models
  bool dry_run = false;
  bool hub = false;

  // check
  std::string engine;
  std::string write_to;  // folder for the files that mend something

  // plan, load, advise
  Workload workload;
  PlanOverrides overrides;
  std::string hardware;
  std::string plan_system;
  bool together = false;
  bool all = false;
  bool csv = false;

  // tune
  std::vector<uint32_t> tune_sessions;
  std::optional<uint32_t> limit_s;

  std::string currency;
  std::optional<double> budget;

  uint32_t dimensions = 0;  // embed

  bool refresh = false;  // devices

  // top
  double interval_s = 1;
  bool once = false;

  // launch
  std::string key;
  bool print = false;

  bool off = false;     // pin: no longer; launch: no check
  bool follow = false;  // ps --watch, logs --follow

  uint32_t lines = 100;  // logs
  std::string priority;  // lease

  // run
  std::string system_prompt;
  Sampling sampling;
  std::vector<std::string> adapters;  // NAME or NAME=SCALE
  bool raw = false;
  bool verbose = false;
};

// Something to print instead of running: help and the version (exit 0), or what was wrong (exit 2).
struct Refused {
  int exit_code = 2;
  std::string text;
  std::string next_step;
};

std::variant<Options, Refused> ParseCommandLine(int argc, const char* const* argv);

}  // namespace rumbo::cli
