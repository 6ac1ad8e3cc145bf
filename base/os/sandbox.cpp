#include "base/os/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <memory>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "base/status.h"

namespace rumbo {
namespace {

// Access bits newer than Debian 12's header; numbers from the kernel's uapi, which never change.
constexpr uint64_t kFsTruncate = 1ULL << 14;        // ABI 3
constexpr uint64_t kFsIoctlDev = 1ULL << 15;        // ABI 5
constexpr uint64_t kNetBindTcp = 1ULL << 0;         // ABI 4
constexpr uint64_t kNetConnectTcp = 1ULL << 1;      // ABI 4
constexpr uint64_t kScopeAbstractUnix = 1ULL << 0;  // ABI 6
constexpr uint64_t kScopeSignal = 1ULL << 1;        // ABI 6

struct RulesetAttr {  // the kernel takes shorter versions of it from older callers
  uint64_t handled_access_fs;
  uint64_t handled_access_net;
  uint64_t scoped;
};

constexpr uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kRead = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;

uint64_t AllFsAccess(int abi) {
  uint64_t all = (1ULL << 13) - 1;  // ABI 1: EXECUTE to MAKE_SYM
  if (abi >= 2) all |= 1ULL << 13;  // REFER
  if (abi >= 3) all |= kFsTruncate;
  if (abi >= 5) all |= kFsIoctlDev;
  return all;
}

absl::Status AddPath(int ruleset, const std::string& path, uint64_t access) {
  UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd.valid()) return absl::OkStatus();  // nothing there, nothing to allow
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISDIR(info.st_mode)) {
    access &=
        kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE | kFsTruncate | kFsIoctlDev;
  }
  landlock_path_beneath_attr rule{};
  rule.allowed_access = access;
  rule.parent_fd = fd.get();
  if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return ErrnoStatus(errno, "landlock rule for " + path);
  }
  return absl::OkStatus();
}

absl::Status EnterLandlock(const SandboxOptions& options, SandboxReport* report) {
  const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi <= 0) {
    report->missing.push_back("landlock: the kernel offers none, so file access is not confined");
    return absl::OkStatus();
  }
  report->landlock_abi = static_cast<int>(abi);
  RulesetAttr attr{};
  attr.handled_access_fs = AllFsAccess(report->landlock_abi);
  size_t size = sizeof attr.handled_access_fs;
  if (abi >= 4) {
    attr.handled_access_net = options.allow_internet ? kNetBindTcp : kNetBindTcp | kNetConnectTcp;
    size = 2 * sizeof(uint64_t);
  }
  if (abi >= 6) {
    attr.scoped = kScopeAbstractUnix | kScopeSignal;
    size = sizeof attr;
  }
  UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attr, size, 0)));
  if (!ruleset.valid()) return ErrnoStatus(errno, "landlock ruleset");
  const uint64_t handled = attr.handled_access_fs;
  const uint64_t write = (handled & ~uint64_t{LANDLOCK_ACCESS_FS_EXECUTE}) & ~kFsIoctlDev;
  const uint64_t device = (kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE | kFsIoctlDev) & handled;
  for (const std::string& path : options.read_only)
    RUMBO_RETURN_IF_ERROR(AddPath(ruleset.get(), path, kRead));
  for (const std::string& path : options.read_write)
    RUMBO_RETURN_IF_ERROR(AddPath(ruleset.get(), path, write));
  for (const std::string& path : options.devices) RUMBO_RETURN_IF_ERROR(AddPath(ruleset.get(), path, device));
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) return ErrnoStatus(errno, "landlock");
  return absl::OkStatus();
}

// System calls that nothing behind the sandbox needs; names the kernel or library lacks are skipped.
constexpr const char* kDenied[] = {"accept",
                                   "accept4",
                                   "bind",
                                   "connect",
                                   "listen",
                                   "ptrace",
                                   "process_vm_readv",
                                   "process_vm_writev",
                                   "mount",
                                   "umount2",
                                   "move_mount",
                                   "fsopen",
                                   "fsmount",
                                   "open_tree",
                                   "pivot_root",
                                   "chroot",
                                   "setns",
                                   "unshare",
                                   "bpf",
                                   "perf_event_open",
                                   "userfaultfd",
                                   "io_uring_setup",
                                   "io_uring_enter",
                                   "io_uring_register",
                                   "keyctl",
                                   "add_key",
                                   "request_key",
                                   "init_module",
                                   "finit_module",
                                   "delete_module",
                                   "kexec_load",
                                   "reboot",
                                   "swapon",
                                   "swapoff",
                                   "quotactl",
                                   "open_by_handle_at",
                                   "name_to_handle_at",
                                   "fanotify_init",
                                   "personality",
                                   "kcmp",
                                   "pidfd_getfd",
                                   "acct",
                                   "settimeofday",
                                   "clock_settime",
                                   "sethostname",
                                   "setdomainname",
                                   "syslog"};

absl::Status AddRules(scmp_filter_ctx filter, const SandboxOptions& options) {
  const uint32_t deny = SCMP_ACT_ERRNO(EPERM);
  auto add = [&](const char* name) {
    const int number = seccomp_syscall_resolve_name(name);
    return number == __NR_SCMP_ERROR || seccomp_rule_add(filter, deny, number, 0) == 0;
  };
  bool ok = true;
  for (const char* name : kDenied) {
    if ((options.allow_unix_sockets || options.allow_internet) && (std::string_view(name) == "connect"))
      continue;
    // A resolver binds the source of its questions.
    if (options.allow_internet && std::string_view(name) == "bind") continue;
    ok = ok && add(name);
  }
  if (options.allow_internet) {
    // Internet and Unix stream and datagram sockets, and netlink, by which libc learns its own addresses.
    ok = ok && seccomp_rule_add(filter, deny, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_GT, AF_NETLINK)) == 0;
    for (uint64_t family = AF_UNIX; family < AF_NETLINK; ++family) {
      if (family == AF_UNIX || family == AF_INET || family == AF_INET6) continue;
      ok = ok && seccomp_rule_add(filter, deny, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, family)) == 0;
    }
  } else if (options.allow_unix_sockets) {
    ok = ok && seccomp_rule_add(filter, deny, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_NE, AF_UNIX)) == 0;
    ok = ok && seccomp_rule_add(filter, deny, SCMP_SYS(socketpair), 1, SCMP_A0(SCMP_CMP_NE, AF_UNIX)) == 0;
  } else {
    ok = ok && add("socket") && add("socketpair");
  }
  if (options.deny_jit) {
    // Libraries are mapped executable from their files and never changed after that.
    ok = ok && seccomp_rule_add(filter, deny, SCMP_SYS(mprotect), 1,
                                SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC)) == 0;
    ok = ok && seccomp_rule_add(filter, deny, SCMP_SYS(pkey_mprotect), 1,
                                SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC)) == 0;
    ok = ok &&
         seccomp_rule_add(filter, deny, SCMP_SYS(mmap), 2, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC),
                          SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS)) == 0;
    ok = ok && add("memfd_create");
  }
  if (options.deny_exec) ok = ok && add("execve") && add("execveat");
  if (!options.allow_threads) {
    ok = ok && add("clone") && add("fork") && add("vfork");
    // ENOSYS, so that libc falls back to clone and meets EPERM there.
    ok = ok && seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
  }
  return ok ? absl::OkStatus() : Internal("a seccomp rule was refused");
}

absl::Status EnterSeccomp(const SandboxOptions& options, SandboxReport* report) {
  std::unique_ptr<void, void (*)(void*)> filter(seccomp_init(SCMP_ACT_ALLOW), seccomp_release);
  if (filter == nullptr) return Internal("seccomp filter: no memory");
  RUMBO_RETURN_IF_ERROR(AddRules(filter.get(), options));
  const int result = seccomp_load(filter.get());
  if (result == -EINVAL || result == -ENOSYS) {
    report->missing.push_back("seccomp: the kernel offers none, so system calls are not confined");
    return absl::OkStatus();
  }
  if (result != 0) return ErrnoStatus(-result, "seccomp");
  report->seccomp = true;
  return absl::OkStatus();
}

absl::Status Limit(int resource, uint64_t value, const char* what) {
  rlimit limit{value, value};
  rlimit old;
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &old) == 0 && old.rlim_max < value) {
    limit = {old.rlim_max, old.rlim_max};  // already tighter
  }
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return ErrnoStatus(errno, what);
  return absl::OkStatus();
}

absl::Status EnterLimits(const SandboxOptions& options) {
  RUMBO_RETURN_IF_ERROR(Limit(RLIMIT_CORE, 0, "limit of core dumps"));
  const struct {
    int resource;
    uint64_t value;
    const char* what;
  } limits[] = {{RLIMIT_FSIZE, options.max_file_bytes, "limit of file size"},
                {RLIMIT_AS, options.max_address_bytes, "limit of address space"},
                {RLIMIT_CPU, options.max_cpu_seconds, "limit of CPU time"},
                {RLIMIT_NOFILE, options.max_open_files, "limit of open files"}};
  for (const auto& l : limits) {
    if (l.value != 0) RUMBO_RETURN_IF_ERROR(Limit(l.resource, l.value, l.what));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SandboxReport::Describe() const {
  std::string out = landlock_abi > 0 ? "Landlock ABI " + std::to_string(landlock_abi) : "no Landlock";
  return out + (seccomp ? ", system calls filtered" : ", no filter of system calls") + ", no new privileges";
}

absl::StatusOr<SandboxReport> EnterSandbox(const SandboxOptions& options) {
  SandboxReport report;
  RUMBO_RETURN_IF_ERROR(EnterLimits(options));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return ErrnoStatus(errno, "no_new_privs");
  RUMBO_RETURN_IF_ERROR(EnterLandlock(options, &report));
  RUMBO_RETURN_IF_ERROR(EnterSeccomp(options, &report));
  return report;
}

}  // namespace rumbo
