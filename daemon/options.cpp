#include "daemon/options.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <map>

#include "base/nearest.h"
#include "base/os/files.h"
#include "base/os/paths.h"
#include "base/status.h"
#include "base/utf8.h"

namespace rumbo {
namespace {

using Setter = std::function<bool(DaemonOptions&, const std::string&)>;

// How a row's field is set (false where the value is none), and whether it is the same in two sets of
// options.
struct Field {
  Setter set;
  std::function<bool(const DaemonOptions&, const DaemonOptions&)> same;
};

struct Row {
  OptionRow row;
  Field field;
};

template <typename T>
Field FieldOf(T DaemonOptions::*field, Setter set) {
  return {std::move(set),
          [field](const DaemonOptions& a, const DaemonOptions& b) { return a.*field == b.*field; }};
}

Field Text(std::string DaemonOptions::*field) {
  return FieldOf(field, [field](DaemonOptions& o, const std::string& v) {
    o.*field = v;
    return !v.empty();
  });
}

Field AnyText(std::string DaemonOptions::*field) {
  return FieldOf(field, [field](DaemonOptions& o, const std::string& v) {
    o.*field = v;
    return true;
  });
}

Field Path(std::string DaemonOptions::*field) {
  return FieldOf(field, [field](DaemonOptions& o, const std::string& v) {
    o.*field = AbsolutePath(v);
    return !v.empty() && v.find('\0') == std::string::npos;
  });
}

Field Number(int64_t DaemonOptions::*field, int64_t lowest, int64_t highest) {
  return FieldOf(field, [=](DaemonOptions& o, const std::string& v) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), value);
    if (error != std::errc() || end != v.data() + v.size() || value < lowest || value > highest) return false;
    o.*field = value;
    return true;
  });
}

Field Switch(bool DaemonOptions::*field) {
  return FieldOf(field, [field](DaemonOptions& o, const std::string& v) {
    if (v != "on" && v != "off" && v != "true" && v != "false") return false;
    o.*field = v == "on" || v == "true";
    return true;
  });
}

bool SetSecondPort(DaemonOptions& o, const std::string& v) {
  o.http_second = v;
  return v == "off" ||
         (!v.empty() && v.size() <= 5 && v.find_first_not_of("0123456789") == std::string::npos &&
          std::atoi(v.c_str()) <= 65535);
}

bool SetSocketUsers(DaemonOptions& o, const std::string& v) {
  o.socket_users = v;
  return v == "own" || v == "all";
}

bool SetFormat(DaemonOptions& o, const std::string& v) {
  o.log_format = v;
  return v == "text" || v == "json";
}

bool SetLevel(DaemonOptions& o, const std::string& v) {
  o.log_level = v;
  return v == "error" || v == "warning" || v == "info" || v == "debug";
}

const std::vector<Row>& Rows() {
  static const std::vector<Row>* rows = new std::vector<Row>{
      {{"config", "RUMBO_CONFIG", "FILE", "~/.config/rumbo/config.yaml",
        "YAML file with any of these options; need not exist unless named."},
       Path(&DaemonOptions::config)},
      {{"socket", "RUMBO_SOCKET", "PATH", "$XDG_RUNTIME_DIR/rumbo/rumbo.sock",
        "Unix socket for gRPC, mode 0600."},
       Path(&DaemonOptions::socket)},
      {{"socket-users", "RUMBO_SOCKET_USERS", "own|all", "own",
        "Who may use the socket: our own user and root, or, as a service for many users, all whom its "
        "mode "
        "lets in."},
       FieldOf(&DaemonOptions::socket_users, SetSocketUsers)},
      {{"http", "RUMBO_HTTP", "ADDR:PORT|off", "127.0.0.1:11711",
        "Loopback address of the HTTP APIs, or off."},
       Text(&DaemonOptions::http)},
      {{"http-second-port", "RUMBO_HTTP_SECOND_PORT", "PORT|off", "off",
        "A second HTTP port, as 11434 for apps that know only Ollama's."},
       FieldOf(&DaemonOptions::http_second, SetSecondPort)},
      {{"http-hosts", "RUMBO_HTTP_HOSTS", "NAME:PORT,...", "none",
        "Host headers accepted beside 127.0.0.1, localhost and [::1] with our port."},
       AnyText(&DaemonOptions::http_hosts)},
      {{"http-origins", "RUMBO_HTTP_ORIGINS", "SCHEME://NAME:PORT,...", "none",
        "Web origins that may send requests, beside our own."},
       AnyText(&DaemonOptions::http_origins)},
      {{"http-remote", "RUMBO_HTTP_REMOTE", "ADDR:PORT|off", "off",
        "A second door for other machines, as 0.0.0.0:11712; needs TLS and at least one API token."},
       Text(&DaemonOptions::http_remote)},
      {{"http-tls-certificate", "RUMBO_HTTP_TLS_CERTIFICATE", "FILE", "none",
        "Certificate of that door, PEM, with its chain."},
       Path(&DaemonOptions::http_tls_certificate)},
      {{"http-tls-key", "RUMBO_HTTP_TLS_KEY", "FILE", "none", "Its key, PEM, closed to others."},
       Path(&DaemonOptions::http_tls_key)},
      {{"traces", "RUMBO_TRACES", "URL|off", "off",
        "OpenTelemetry collector that gets a span for each HTTP request, as http://127.0.0.1:4318."},
       Text(&DaemonOptions::traces)},
      {{"http-at-once", "RUMBO_HTTP_AT_ONCE", "N", "0",
        "Requests at once that one caller may have over HTTP; 0: no bound."},
       Number(&DaemonOptions::http_at_once, 0, 1'000'000)},
      {{"http-rate", "RUMBO_HTTP_RATE", "N", "0",
        "Requests per second that one caller may send over HTTP; 0: no bound."},
       Number(&DaemonOptions::http_rate, 0, 1'000'000)},
      {{"state-dir", "RUMBO_STATE_DIR", "DIR", "~/.local/share/rumbo", "Models, index, tokens."},
       Path(&DaemonOptions::state_dir)},
      {{"cache-dir", "RUMBO_CACHE_DIR", "DIR", "~/.cache/rumbo",
        "What can be made again: measurements, prompt caches."},
       Path(&DaemonOptions::cache_dir)},
      {{"keep-alive", "RUMBO_KEEP_ALIVE", "SECONDS", "300",
        "Idle seconds after which a model is unloaded; -1: never."},
       Number(&DaemonOptions::keep_alive_s, -1, 1'000'000'000)},
      {{"queue-limit", "RUMBO_QUEUE_LIMIT", "N", "4096",
        "Requests that may wait; more are refused with a retry time."},
       Number(&DaemonOptions::queue_limit, 1, 1'000'000)},
      {{"drain", "RUMBO_DRAIN", "SECONDS", "5",
        "Seconds that running requests get when a model or the daemon stops."},
       Number(&DaemonOptions::drain_s, 0, 3600)},
      {{"load-silence", "RUMBO_LOAD_SILENCE", "SECONDS", "60",
        "Seconds without a sign of life after which a load has hung."},
       Number(&DaemonOptions::load_silence_s, 1, 86400)},
      {{"prompt-cache", "RUMBO_PROMPT_CACHE", "MIB", "2048",
        "MiB of disk for each model's prompts, so that conversations go on after a restart; 0: none."},
       Number(&DaemonOptions::prompt_cache_mib, 0, 1 << 30)},
      {{"memory-limit", "RUMBO_MEMORY_LIMIT", "MIB", "0",
        "MiB of system memory that models may take in all; 0: what the machine has."},
       Number(&DaemonOptions::memory_limit_mib, 0, 1 << 30)},
      {{"battery-floor", "RUMBO_BATTERY_FLOOR", "PERCENT", "20",
        "On battery with less charge, batch work waits; 0: never."},
       Number(&DaemonOptions::battery_floor, 0, 100)},
      {{"heat-ceiling", "RUMBO_HEAT_CEILING", "PERCENT", "95",
        "With a sensor above this share of its critical temperature, batch work waits; 0: never."},
       Number(&DaemonOptions::heat_ceiling, 0, 100)},
      {{"promise-dir", "RUMBO_PROMISE_DIR", "DIR|off", "/dev/shm/rumbo-promises",
        "Where the daemons of all users say what memory they have promised."},
       Text(&DaemonOptions::promise_dir)},
      {{"isolate", "RUMBO_ISOLATE", "on|off", "on",
        "Workers in namespaces of their own, without a network, where the kernel allows it."},
       Switch(&DaemonOptions::isolate)},
      {{"sandbox", "RUMBO_SANDBOX", "on|off", "on",
        "Workers confine themselves to the files, devices and system calls that the engine's catalog names."},
       Switch(&DaemonOptions::sandbox)},
      {{"hardware-root", "RUMBO_HARDWARE_ROOT", "DIR", "/",
        "Folder below which the machine's /sys, /proc and /dev are read; another one than / is for tests."},
       Path(&DaemonOptions::hardware_root)},
      {{"offline", "RUMBO_OFFLINE", "on|off", "off", "Download nothing; no socket leaves this machine."},
       Switch(&DaemonOptions::offline)},
      {{"hub", "RUMBO_HUB", "URL,...", "https://huggingface.co",
        "The hub that hf: names, then mirrors of it."},
       Text(&DaemonOptions::hub)},
      {{"hub-token-file", "RUMBO_HUB_TOKEN_FILE", "FILE", "none",
        "A file with the token for gated and private models; sent to the hub and nowhere else."},
       Path(&DaemonOptions::hub_token_file)},
      {{"registry", "RUMBO_REGISTRY", "URL", "https://registry.ollama.ai",
        "The registry that ollama: names."},
       Text(&DaemonOptions::registry)},
      {{"fetch-hosts", "RUMBO_FETCH_HOSTS", "NAME[:PORT],...", "none",
        "Hosts inside your own network that downloads may reach, also by redirects."},
       AnyText(&DaemonOptions::fetch_hosts)},
      {{"fetch-proxy", "RUMBO_FETCH_PROXY", "URL", "https_proxy, all_proxy",
        "Proxy for downloads; never used for loopback."},
       AnyText(&DaemonOptions::fetch_proxy)},
      {{"fetch-rate", "RUMBO_FETCH_RATE", "KIB_PER_S", "0", "Most that one download takes; 0: no bound."},
       Number(&DaemonOptions::fetch_rate_kib, 0, 1'000'000'000)},
      {{"fetch-connections", "RUMBO_FETCH_CONNECTIONS", "N", "4", "Connections at once for one file."},
       Number(&DaemonOptions::fetch_connections, 1, 16)},
      {{"store-quota", "RUMBO_STORE_QUOTA", "GIB", "0",
        "Most that stored models and downloads take; 0: no bound."},
       Number(&DaemonOptions::store_quota_gib, 0, 1'000'000)},
      {{"model-caches", "RUMBO_MODEL_CACHES", "KIND:PATH,...", "their usual places",
        "Where other programs keep models (huggingface, ollama, lmstudio), for `rumbo models adopt`."},
       AnyText(&DaemonOptions::model_caches)},
      {{"log-level", "RUMBO_LOG_LEVEL", "LEVEL", "info",
        "error, warning, info or debug; prompts are never logged."},
       FieldOf(&DaemonOptions::log_level, SetLevel)},
      {{"log-format", "RUMBO_LOG_FORMAT", "text|json", "text",
        "Lines for people, or one JSON object per line."},
       FieldOf(&DaemonOptions::log_format, SetFormat)},
  };
  return *rows;
}

const Row* FindRow(std::string_view name) {
  for (const Row& row : Rows()) {
    if (name == row.row.name) return &row;
  }
  return nullptr;
}

absl::Status Unknown(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const Row& row : Rows()) names.push_back(row.row.name);
  std::string next = "`rumbod --help` lists the options.";
  if (const std::string nearest = Nearest(name, names); !nearest.empty())
    next = "Did you mean " + nearest + "? " + next;
  return InvalidArgument(where + ": unknown option " + EscapeForLog(name, 60), next);
}

absl::Status Set(DaemonOptions& options, const Row& row, const std::string& value, const std::string& where) {
  if (row.field.set(options, value)) return absl::OkStatus();
  return InvalidArgument(where + ": " + row.row.name + " cannot be \"" + EscapeForLog(value, 80) + "\"",
                         std::string("It is ") + row.row.argument + ": " + row.row.help);
}

absl::Status ReadFileInto(DaemonOptions& options, const std::string& path, bool must_exist) {
  const auto text = ReadFile(path, 1 << 20);
  if (!text.ok()) {
    if (!must_exist && absl::IsNotFound(text.status())) return absl::OkStatus();
    return Annotate(text.status(), "configuration");
  }
  YAML::Node root;
  try {
    root = YAML::Load(*text);
  } catch (const YAML::Exception& e) {
    return InvalidArgument(path + ": " + EscapeForLog(e.what(), 200), "Correct the file.");
  }
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap())
    return InvalidArgument(path + " is no list of `option: value` lines",
                           "docs/configuration.md shows what it may hold.");
  for (const auto& entry : root) {
    try {
      const std::string name = entry.first.as<std::string>();
      const std::string where = path + ":" + std::to_string(entry.first.Mark().line + 1);
      const Row* row = FindRow(name);
      if (row == nullptr || name == "config") return Unknown(name, where);
      RUMBO_RETURN_IF_ERROR(Set(options, *row, entry.second.as<std::string>(), where));
    } catch (const YAML::Exception& e) {
      return InvalidArgument(path + ": " + EscapeForLog(e.what(), 200), "Correct the file.");
    }
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<OptionRow>& OptionTable() {
  static const std::vector<OptionRow>* table = [] {
    auto* out = new std::vector<OptionRow>;
    for (const Row& row : Rows()) out->push_back(row.row);
    return out;
  }();
  return *table;
}

absl::StatusOr<DaemonOptions> ReadOptions(const std::vector<std::string>& args) {
  DaemonOptions options;
  options.socket = DefaultSocketPath();
  options.http = "127.0.0.1:11711";
  options.http_second = "off";
  options.http_remote = "off";
  options.traces = "off";
  options.log_format = "text";
  options.state_dir = DefaultStateDir();
  options.cache_dir = DefaultCacheDir();
  options.config = DefaultConfigFile();
  options.log_level = "info";
  options.socket_users = "own";
  options.hub = "https://huggingface.co";
  options.registry = "https://registry.ollama.ai";
  options.promise_dir = "/dev/shm/rumbo-promises";

  std::vector<std::pair<const Row*, std::string>> flags;
  bool config_named = std::getenv("RUMBO_CONFIG") != nullptr;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-h")
      options.help = true;
    else if (arg == "--version")
      options.version = true;
    else if (arg == "--print-docs")
      options.print_docs = true;
    else if (arg == "--print-manual")
      options.print_manual = true;
    else if (arg == "--print-engines")
      options.print_engines = true;
    else if (arg.rfind("--", 0) != 0)
      return Unknown(arg, "command line");
    else {
      const size_t equals = arg.find('=');
      const std::string name = arg.substr(2, equals == std::string::npos ? std::string::npos : equals - 2);
      const Row* row = FindRow(name);
      if (row == nullptr) return Unknown(name, "command line");
      if (equals == std::string::npos && i + 1 >= args.size()) {
        return InvalidArgument("command line: --" + name + " needs a value", row->row.help);
      }
      flags.emplace_back(row, equals == std::string::npos ? args[++i] : arg.substr(equals + 1));
      if (name == "config") {
        config_named = true;
        RUMBO_RETURN_IF_ERROR(Set(options, *row, flags.back().second, "command line"));
      }
    }
  }
  if (options.help || options.version || options.print_docs || options.print_manual || options.print_engines)
    return options;
  RUMBO_RETURN_IF_ERROR(ReadFileInto(options, options.config, config_named));
  for (const Row& row : Rows()) {
    const char* value = row.row.environment[0] != '\0' ? std::getenv(row.row.environment) : nullptr;
    if (value != nullptr && *value != '\0')
      RUMBO_RETURN_IF_ERROR(Set(options, row, value, row.row.environment));
  }
  for (const auto& [row, value] : flags) RUMBO_RETURN_IF_ERROR(Set(options, *row, value, "command line"));
  return options;
}

std::vector<std::string> ChangedOptions(const DaemonOptions& before, const DaemonOptions& after) {
  std::vector<std::string> changed;
  for (const Row& row : Rows()) {
    if (!row.field.same(before, after)) changed.push_back(row.row.name);
  }
  return changed;
}

std::string HelpText() {
  std::string out =
      "usage: rumbod [OPTIONS]\n\nRuns models for the apps of this machine: gRPC on a Unix socket, HTTP on "
      "loopback.\n\n";
  for (const Row& row : Rows()) {
    std::string left = std::string("  --") + row.row.name + " " + row.row.argument;
    if (left.size() < 30) left.resize(30, ' ');
    out += left + " " + row.row.help + " [" + row.row.default_text + "]\n";
  }
  out +=
      "  --help, --version\n\nEach option is also a key of the configuration file and an environment "
      "variable\n"
      "(docs/configuration.md). The command line wins over the environment, that over the file.\n";
  return out;
}

std::string OptionsManual(const std::string& version) {
  const auto roff = [](const std::string& text) {
    std::string out;
    for (const char c : text)
      out += c == '-' ? std::string("\\-") : c == '\\' ? std::string("\\e") : std::string(1, c);
    return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
  };
  std::string out =
      ".TH RUMBOD 8 \"\" \"rumbo " + version +
      "\" \"System Administration\"\n.SH NAME\nrumbod \\- runs models for the apps of this machine\n"
      ".SH SYNOPSIS\n.B rumbod\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
      "Answers gRPC on a Unix socket, and on loopback the HTTP APIs of OpenAI, Anthropic and Ollama. "
      "Each option is also a key of the configuration file and an environment variable; the command "
      "line wins over the environment, that over the file.\n.SH OPTIONS\n";
  for (const Row& row : Rows()) {
    out += ".TP\n.B " + roff(std::string("--") + row.row.name) + " \\fI" + roff(row.row.argument) + "\\fR\n" +
           roff(row.row.help) + " Default: " + roff(row.row.default_text) +
           ". Environment: " + roff(row.row.environment) + ".\n";
  }
  return out +
         ".SH SIGNALS\nSIGTERM and SIGINT: takes no new work, lets answers end within the time of\n.B "
         "\\-\\-drain\n"
         "and exits.\n.SH SEE ALSO\n.BR rumbo (1)\n";
}

std::string OptionsMarkdown() {
  std::string out = "| option | environment | value | default | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Row& row : Rows()) {
    std::string argument = row.row.argument;
    for (size_t at = 0; (at = argument.find('|', at)) != std::string::npos; at += 2)
      argument.insert(at, "\\");
    out += std::string("| `") + row.row.name + "` | `" + row.row.environment + "` | " + argument + " | `" +
           row.row.default_text + "` | " + row.row.help + " |\n";
  }
  return out;
}

}  // namespace rumbo
