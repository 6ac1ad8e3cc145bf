#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

// Confines this process for good, before it reads what is not trusted. Linux: no_new_privs, Landlock
// (whatever ABI the kernel has), seccomp, resource limits. What the kernel lacks is reported, never
// pretended.
namespace rumbo {

struct SandboxOptions {
  // Paths that stay readable (files, or folders with all below). Missing ones are skipped.
  std::vector<std::string> read_only;
  std::vector<std::string> read_write;
  // Device nodes that stay readable, writable and open to ioctl.
  std::vector<std::string> devices;
  bool allow_unix_sockets = false;  // AF_UNIX; other families are always denied
  // TCP and UDP towards others, as a client; for the one program that downloads. Includes allow_unix_sockets.
  bool allow_internet = false;
  bool allow_threads = true;  // false: clone, fork and vfork are denied too
  bool deny_exec = true;
  bool deny_jit = false;  // no memory that turns executable but from files: libraries load, code is not made
  // 0: left as it is.
  uint64_t max_file_bytes = 0;     // RLIMIT_FSIZE
  uint64_t max_address_bytes = 0;  // RLIMIT_AS; leave 0 for GPU runtimes, they reserve huge ranges
  uint64_t max_cpu_seconds = 0;    // RLIMIT_CPU
  uint64_t max_open_files = 0;     // RLIMIT_NOFILE
};

struct SandboxReport {
  int landlock_abi = 0;  // 0: the kernel has none, files are not confined
  bool seccomp = false;
  std::vector<std::string> missing;  // protections that the kernel does not offer, in words
  // "Landlock ABI 7, system calls filtered, no new privileges", for people.
  std::string Describe() const;
};

// The options as lines of text and back, to hand them to a program in its environment. Pure. Error:
// kInvalidArgument naming the line.
std::string SandboxToText(const SandboxOptions& options);
absl::StatusOr<SandboxOptions> SandboxFromText(std::string_view text);

// Enters the sandbox; irreversible, inherited by children and by threads made later. Call while the process
// has one thread. Core dumps are off afterwards. Errors: kInternal where a protection that the kernel offers
// could not be put in force; the process must then stop.
absl::StatusOr<SandboxReport> EnterSandbox(const SandboxOptions& options);

}  // namespace rumbo
