// rumbo-inspect: reads a model file that nobody vouches for and prints what it is as JSON. Short-lived and
// confined: it opens the files, gives up the file system, the network and the right to start programs, and
// only then reads. Exit codes: 0 printed a descriptor, 1 printed {"error":{...}}, 2 usage.

#include <fcntl.h>
#include <ggml.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/os/files.h"
#include "base/os/sandbox.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "base/utf8.h"
#include "engines/llamacpp/inspect/errors.h"
#include "engines/llamacpp/inspect/gguf_describe.h"
#include "engines/llamacpp/inspect/model_files.h"
#include "engines/llamacpp/inspect/safetensors_describe.h"

namespace rumbo {
namespace {

int Usage() {
  std::fputs(
      "usage: rumbo-inspect (--fd N [--fd N ...] | PATH) [--json | --tensors] | --sandbox\n"
      "  PATH    a .gguf file (the other parts of a split model are found beside it), or a folder with\n"
      "          config.json and *.safetensors\n"
      "  --fd N  the same, already open (several for a split model, in order)\n"
      "  --sandbox  only says what this program is confined by on this machine\n",
      stderr);
  return 2;
}

void Print(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

int Fail(const absl::Status& status) {
  boost::json::object error;
  error["reason"] = std::string(ReasonCode(ReasonOf(status)));
  error["message"] = SanitizeUtf8(MessageOf(status));
  error["next_step"] = SanitizeUtf8(NextStepOf(status));
  Print(boost::json::serialize(boost::json::object{{"error", error}}) + "\n");
  return 1;
}

// ggml aborts on what it thinks impossible, and a reader may crash: still one JSON error, nothing else.
void OnFatalSignal(int) {
  static constexpr char kText[] =
      "{\"error\":{\"reason\":\"MODEL_INVALID\",\"message\":\"the reader gave up on this file\","
      "\"next_step\":\"Use another copy of the model.\"}}\n";
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, kText, sizeof kText - 1);
  ::_exit(1);
}

absl::StatusOr<SandboxReport> Confine() {
  SandboxOptions options;
  options.allow_threads = false;
  options.max_file_bytes = 64 * kMiB;
  options.max_cpu_seconds = 20;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  options.max_address_bytes = 4 * kGiB;
#endif
  return EnterSandbox(options);
}

// What a reader is confined by on this machine. 0: all of it, 3: the kernel lacks a part, 1: not to be had.
int ShowSandbox() {
  const auto report = Confine();
  std::string text = report.ok() ? report->Describe() : MessageOf(report.status());
  if (report.ok()) {
    for (const std::string& missing : report->missing) text += "; " + missing;
  }
  Print(text);
  return !report.ok() ? 1 : report->missing.empty() ? 0 : 3;
}

int Run(const ModelFiles& files, bool tensors) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGXCPU})
    ::signal(signal, OnFatalSignal);
  ggml_log_set([](ggml_log_level, const char* text, void*) { std::fputs(text, stderr); }, nullptr);
  const auto confined = Confine();
  if (!confined.ok()) return Fail(confined.status());
  for (const std::string& missing : confined->missing)
    std::fprintf(stderr, "rumbo-inspect: %s\n", missing.c_str());
  if (tensors) {
    const auto list =
        files.folder ? ListSafetensors(files) : ModelInvalid("only folders have a list of tensors");
    if (!list.ok()) return Fail(list.status());
    Print(*list + "\n");
    return 0;
  }
  std::vector<int> fds;
  for (const UniqueFd& fd : files.fds) fds.push_back(fd.get());
  const auto descriptor = files.folder ? DescribeSafetensors(files) : DescribeGguf(fds, files.names);
  if (!descriptor.ok()) return Fail(descriptor.status());
  Print(DescriptorToJson(*descriptor) + "\n");
  return 0;
}

int Main(int argc, char** argv) {
  ModelFiles files;
  std::string path;
  bool tensors = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--json") continue;
    if (arg == "--sandbox" && argc == 2) return ShowSandbox();
    if (arg == "--tensors") {
      tensors = true;
      continue;
    }
    if (arg == "--fd" && i + 1 < argc) {
      char* end = nullptr;
      const long fd = std::strtol(argv[++i], &end, 10);
      if (*end != '\0' || fd < 0 || fd > 1 << 20) return Usage();
      files.fds.emplace_back(static_cast<int>(fd));
      files.names.push_back("");
    } else if (!arg.empty() && arg[0] != '-' && path.empty()) {
      path = arg;
    } else {
      return Usage();
    }
  }
  if (path.empty() == files.fds.empty()) return Usage();
  if (!path.empty()) {
    auto opened = OpenModelFiles(path);
    if (!opened.ok()) return Fail(opened.status());
    files = *std::move(opened);
  }
  return Run(files, tensors);
}

}  // namespace
}  // namespace rumbo

int main(int argc, char** argv) {
  try {
    return rumbo::Main(argc, argv);
  } catch (const std::exception& e) {
    return rumbo::Fail(rumbo::ModelInvalid(std::string("the reader gave up on this file: ") + e.what()));
  }
}
