#include "base/os/sandbox.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>

#include "base/os/subprocess.h"

namespace rumbo {
namespace {

// Runs `body` in a child inside the sandbox; its return value is the child's exit code, 99 where entering
// failed.
int InSandbox(const SandboxOptions& options, const std::function<int(const SandboxReport&)>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto report = EnterSandbox(options);
    ::_exit(report.ok() ? body(*report) : 99);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

bool CanOpen(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rumbo-sandbox-XXXXXX";
    folder_ = ::mkdtemp(name);
    std::ofstream(folder_ + "/inside") << "x";
  }
  void TearDown() override {
    ::unlink((folder_ + "/inside").c_str());
    ::unlink((folder_ + "/new").c_str());
    ::rmdir(folder_.c_str());
  }
  std::string folder_;
};

TEST_F(SandboxTest, DeniesFilesThatWereNotNamed) {
  EXPECT_TRUE(CanOpen("/etc/passwd", O_RDONLY));
  const int code = InSandbox({}, [](const SandboxReport& report) {
    if (report.landlock_abi == 0) return 77;
    return CanOpen("/etc/passwd", O_RDONLY) ? 1 : 0;
  });
  if (code == 77) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(code, 0);
}

TEST_F(SandboxTest, NamedFolderIsReadableButNotWritable) {
  SandboxOptions options;
  options.read_only = {folder_};
  const int code = InSandbox(options, [&](const SandboxReport& report) {
    if (report.landlock_abi == 0) return 77;
    if (!CanOpen(folder_ + "/inside", O_RDONLY)) return 1;
    if (CanOpen(folder_ + "/inside", O_WRONLY)) return 2;
    return CanOpen(folder_ + "/new", O_WRONLY | O_CREAT) ? 3 : 0;
  });
  if (code == 77) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(code, 0);
}

TEST_F(SandboxTest, WritableFolderTakesNewFiles) {
  SandboxOptions options;
  options.read_write = {folder_};
  EXPECT_EQ(
      InSandbox(options,
                [&](const SandboxReport&) { return CanOpen(folder_ + "/new", O_WRONLY | O_CREAT) ? 0 : 1; }),
      0);
}

TEST_F(SandboxTest, NoSocketOfAnyFamilyByDefault) {
  EXPECT_EQ(InSandbox({},
                      [](const SandboxReport& report) {
                        if (!report.seccomp) return 1;
                        for (const int family : {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK}) {
                          if (::socket(family, SOCK_DGRAM, 0) >= 0 || errno != EPERM) return 2;
                        }
                        return 0;
                      }),
            0);
}

TEST_F(SandboxTest, UnixSocketsWhereAllowedAndNothingElse) {
  SandboxOptions options;
  options.allow_unix_sockets = true;
  EXPECT_EQ(InSandbox(options,
                      [](const SandboxReport&) {
                        if (::socket(AF_UNIX, SOCK_STREAM, 0) < 0) return 1;
                        return ::socket(AF_INET, SOCK_DGRAM, 0) >= 0 ? 2 : 0;
                      }),
            0);
}

TEST_F(SandboxTest, NoNewProgramAndNoNewProcess) {
  SandboxOptions options;
  options.read_only = {"/"};
  options.allow_threads = false;
  EXPECT_EQ(InSandbox(options,
                      [](const SandboxReport&) {
                        if (::fork() >= 0) return 1;
                        char arg[] = "true";
                        char* args[] = {arg, nullptr};
                        ::execv("/bin/true", args);
                        return errno == EPERM || errno == EACCES ? 0 : 2;
                      }),
            0);
}

TEST_F(SandboxTest, FilesOpenedBeforeStayReadable) {
  const int fd = ::open((folder_ + "/inside").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(InSandbox({},
                      [fd](const SandboxReport&) {
                        char c = 0;
                        return ::pread(fd, &c, 1, 0) == 1 && c == 'x' ? 0 : 1;
                      }),
            0);
  ::close(fd);
}

// What systemd's RestrictNamespaces= does to us: clone3 is not there, clone with the same flags is.
TEST(SubprocessUnderAFilterTest, ChildrenAreStartedWithoutClone3) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // a process of its own: the filter stays
  EXPECT_EXIT(
      {
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
        if (seccomp_load(filter) != 0) ::_exit(2);
        const auto result =
            RunHelper({.argv = {"/bin/sh", "-c", "echo out"}, .env = CleanEnvironment(), .isolate = true},
                      std::chrono::milliseconds(10000), 100);
        ::_exit(result.ok() && result->out == "out\n" ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(SandboxTest, WithoutJitNoMemoryTurnsExecutableButFromFiles) {
  for (const bool denied : {true, false}) {
    SandboxOptions options;
    options.read_only = {"/usr/lib", "/lib"};
    options.deny_jit = denied;
    EXPECT_EQ(InSandbox(options,
                        [denied](const SandboxReport&) {
                          void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                          if ((::mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0) != denied) return 1;
                          void* code = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                          if ((code == MAP_FAILED) != denied) return 2;
                          const int fd = ::open("/proc/self/exe", O_RDONLY);  // not named above: denied
                          if (fd >= 0) return 3;
                          return ::dlopen("libm.so.6", RTLD_NOW) != nullptr ? 0 : 4;  // libraries still load
                        }),
              0)
        << denied;
  }
}

TEST(SandboxTextTest, OptionsSurviveTheWayThroughText) {
  SandboxOptions options;
  options.read_only = {"/a b", "/c"};
  options.read_write = {"/w"};
  options.devices = {"/dev/dri"};
  options.allow_threads = false;
  options.deny_exec = false;
  options.deny_jit = true;
  options.max_open_files = 77;
  const auto back = SandboxFromText(SandboxToText(options));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(SandboxToText(*back), SandboxToText(options));
  EXPECT_EQ(back->read_only, options.read_only);
  EXPECT_TRUE(back->deny_jit);
  EXPECT_FALSE(back->deny_exec);
  EXPECT_EQ(back->max_open_files, 77u);
}

TEST(SandboxTextTest, WhatIsNoLineOfItIsRefused) {
  for (const char* text :
       {"read relative", "read", "nonsense yes", "deny-exec maybe", "open-files -1", "open-files 1x"})
    EXPECT_FALSE(SandboxFromText(text).ok()) << text;
  EXPECT_TRUE(SandboxFromText("").ok());
}

}  // namespace
}  // namespace rumbo
