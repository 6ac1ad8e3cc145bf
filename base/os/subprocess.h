#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/unique_fd.h"

// Child processes that cannot outlive us. Linux.
namespace rumbo {

struct SpawnSpec {
  std::vector<std::string> argv;         // argv[0] is the path of the program
  std::vector<std::string> env;          // "KEY=value": the whole environment of the child
  std::vector<std::pair<int, int>> fds;  // our descriptor -> its number in the child; all others are closed
  // Puts the child into its own user, PID and network namespaces where the kernel allows it: when it ends,
  // everything it started ends, and it reaches no network. Elsewhere it gets a process group of its own.
  bool isolate = true;
};

struct Child {
  pid_t pid = -1;  // as we see it
  UniqueFd pidfd;  // readable once the child has ended; then Reap() it
  bool isolated = false;
};

// Starts a child from a thread that never ends, so that PR_SET_PDEATHSIG (SIGKILL) means the death of this
// process. Blocks for about a millisecond. Errors: kNotFound where the program is missing, kInternal
// otherwise.
absl::StatusOr<Child> Spawn(const SpawnSpec& spec);

// SIGKILLs the child with all it started (its PID namespace, else its process group). Safe after its end.
void KillTree(const Child& child);

// Sends `signal` to the child alone.
void Signal(const Child& child, int signal);

// How the child ended; call once, after its pidfd became readable (else it blocks). "exit code 3", "signal 11
// (Segmentation fault)".
struct ExitStatus {
  bool exited = false;  // false: by a signal
  int code = 0;         // exit code or signal number
  std::string Describe() const;
};
ExitStatus Reap(const Child& child);

struct HelperResult {
  ExitStatus exit;
  bool timed_out = false;
  std::string out;
  std::string err;
};

// Runs a short-lived program to its end: its stdout (up to `max_output` bytes; more kills it) and the last 4
// KiB of its stderr. Killed with all it started at the deadline. Blocking.
absl::StatusOr<HelperResult> RunHelper(SpawnSpec spec, std::chrono::milliseconds deadline, size_t max_output);

// The parts of our environment that children get: PATH, HOME, LANG, LC_ALL=C.UTF-8, TMPDIR, XDG_*; never
// LD_LIBRARY_PATH, proxies or engine variables.
std::vector<std::string> CleanEnvironment();

}  // namespace rumbo
