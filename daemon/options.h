#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rumbo {

// What rumbod can be told. Every option is one row of the table in options.cpp, which gives the flag, the
// YAML key, the environment variable, --help and docs/configuration.md.
struct DaemonOptions {
  std::string config;
  std::string socket;
  std::string socket_users;  // "own" or "all"
  std::string http;          // "ADDR:PORT" or "off"
  std::string http_second;   // "PORT" or "off"
  std::string http_hosts;    // "name:port,..."
  std::string http_origins;  // "scheme://name:port,..."
  std::string http_remote;   // "ADDR:PORT" or "off"
  std::string http_tls_certificate;
  std::string http_tls_key;
  std::string traces;  // "http://HOST:PORT" or "off"
  int64_t http_at_once = 0;
  int64_t http_rate = 0;
  std::string state_dir;
  std::string cache_dir;
  std::string hardware_root = "/";
  std::string log_level;   // "error", "warning", "info", "debug"
  std::string log_format;  // "text", "json"
  int64_t keep_alive_s = 300;
  int64_t queue_limit = 4096;
  int64_t drain_s = 5;
  int64_t load_silence_s = 60;
  int64_t prompt_cache_mib = 2048;
  int64_t memory_limit_mib = 0;
  int64_t battery_floor = 20;
  int64_t heat_ceiling = 95;
  std::string promise_dir;  // "off": none
  bool isolate = true;
  bool sandbox = true;
  std::string hub;             // "https://...[,mirror,...]"
  std::string registry;        // "https://..."
  std::string fetch_hosts;     // "name[:port],..."
  std::string hub_token_file;  // "" none
  std::string fetch_proxy;     // "" as the environment says
  int64_t fetch_rate_kib = 0;  // KiB per second
  int64_t fetch_connections = 4;
  int64_t store_quota_gib = 0;
  bool offline = false;
  std::string model_caches;  // "kind:path,..."; "" the usual places
  bool help = false;
  bool version = false;
  bool print_docs = false;
  bool print_manual = false;
  bool print_engines = false;
};

struct OptionRow {
  const char* name;         // flag --name, YAML key name
  const char* environment;  // "" none
  const char* argument;     // "PATH", "N", "on|off"; "" for a switch
  const char* default_text;
  const char* help;  // one sentence
};

// The rows, in the order of --help.
const std::vector<OptionRow>& OptionTable();

// Command line over environment over file over default. Errors: kInvalidArgument naming the option, the
// nearest name for an unknown one, and where it stood; kFileNotFound for a --config that is not there.
absl::StatusOr<DaemonOptions> ReadOptions(const std::vector<std::string>& args);

// Names of the options that differ.
std::vector<std::string> ChangedOptions(const DaemonOptions& before, const DaemonOptions& after);

std::string HelpText();
std::string OptionsMarkdown();
// rumbod(8) in roff.
std::string OptionsManual(const std::string& version);

}  // namespace rumbo
