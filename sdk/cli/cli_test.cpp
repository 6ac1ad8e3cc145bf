// The program `rumbo` itself against a daemon with canned answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "sdk/cli/testing/run_program.h"
#include "sdk/cpp/testing/fake_daemon.h"

namespace rumbo {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
namespace bj = boost::json;

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/rumbo-cli-XXXXXX";
    dir_ = ::mkdtemp(pattern);
    socket_ = dir_ + "/s.sock";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Program::Spec Spec(std::vector<std::string> args, const std::string& input = "", bool terminal = false) {
    args.insert(args.begin(), std::string(RUMBO_BIN_DIR) + "/rumbo");
    return {
        std::move(args), {{"RUMBO_SOCKET", socket_}, {"RUMBO_STATE_DIR", dir_ + "/state"}}, input, terminal};
  }
  Program::Outcome Rumbo(std::vector<std::string> args, const std::string& input = "",
                         bool terminal = false) {
    if (!daemon_) daemon_ = std::make_unique<FakeDaemon>(socket_);
    return Program::Run(Spec(std::move(args), input, terminal));
  }
  // The one JSON document that the command prints.
  bj::value Json(std::vector<std::string> args, int exit_code = 0) {
    args.push_back("--json");
    const auto outcome = Rumbo(std::move(args));
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return bj::parse(outcome.out);
  }

  std::string dir_, socket_;
  std::unique_ptr<FakeDaemon> daemon_;
};

TEST_F(CliTest, RunStreamsTheAnswer) {
  const auto outcome = Rumbo({"run", "hello", "hi"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Hello, world\n");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(CliTest, RunTakesThePromptFromArgumentsOrInput) {
  EXPECT_EQ(Rumbo({"run", "echo", "to", "be"}).out, "to be\n");
  EXPECT_EQ(Rumbo({"run", "echo"}, "or not\n").out, "or not\n");
  EXPECT_EQ(Rumbo({"run", "echo", "given"}, "ignored").out, "given\n");
  EXPECT_EQ(Rumbo({"run", "echo", "--", "--not-an-option"}).out, "--not-an-option\n");
}

TEST_F(CliTest, RunSendsItsOptions) {
  Rumbo({"run", "hello", "--system", "be short", "--max-tokens", "5", "--temperature", "0", "--seed",
         "18446744073709551615", "hi"});
  const auto chat = daemon_->seen().chat.value();
  EXPECT_EQ(chat.messages(0).role(), "system");
  EXPECT_EQ(chat.messages(0).content(0).text(), "be short");
  EXPECT_EQ(chat.sampling().max_tokens(), 5u);
  EXPECT_EQ(chat.sampling().temperature(), 0);
  EXPECT_EQ(chat.sampling().seed(), 18446744073709551615ull);
  EXPECT_EQ(chat.options().app(), "rumbo");
}

TEST_F(CliTest, RunContinuesTextWhereAskedTo) {
  EXPECT_EQ(Rumbo({"run", "--raw", "echo", "raw"}).out, "raw\n");
  EXPECT_FALSE(daemon_->seen().chat);
  EXPECT_EQ(Rumbo({"run", "--raw", "--system", "x", "echo", "raw"}).exit_code, 2);
}

TEST_F(CliTest, RunSaysWhenAModelHasNoTemplateAndContinuesTheText) {
  const auto outcome = Rumbo({"run", "base", "Once"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "Hello, world\n");
  EXPECT_THAT(outcome.err, HasSubstr("base has no chat template"));
}

TEST_F(CliTest, VerboseTellsPlacementAndSpeedOnStandardError) {
  const auto outcome = Rumbo({"run", "--verbose", "hello", "hi"});
  EXPECT_EQ(outcome.out, "Hello, world\n");
  EXPECT_THAT(outcome.err, HasSubstr("llamacpp (cpu) on cpu0"));
  EXPECT_THAT(outcome.err, HasSubstr("123 tokens/s"));
}

TEST_F(CliTest, RunAsJsonIsOneDocument) {
  const auto value = Json({"run", "hello", "hi"});
  EXPECT_EQ(value.at("text"), "Hello, world");
  EXPECT_EQ(value.at("started").at("backend"), "cpu");
  EXPECT_EQ(value.at("finished").at("usage").at("completion_tokens"), 3);
}

TEST_F(CliTest, ErrorsHaveTheirDocumentedExitCodes) {
  struct Case {
    std::vector<std::string> args;
    int code;
    std::string text;
  };
  const Case cases[] = {
      {{"run", "nobody", "x"}, 3, "rumbo: no model is called \"nobody\"\n  See `rumbo models`.\n"},
      {{"load", "nobody"}, 3, "rumbo: no model"},
      {{"devices", "--hardware", "nosuch"}, 3, "rumbo: no profile nosuch"},
      {{"load", "big"}, 4, "rumbo: system lacks 3.0 GiB\n  Use --context 512.\n"},
      {{"import", "/damaged.gguf"}, 1, "rumbo: the file is cut\n  Download it again.\n"},
      {{"run", "crash", "x"}, 1, "rumbo: the engine died"},
      {{"pul", "x"}, 2, "rumbo: there is no command \"pul\"\n  Did you mean `rumbo pull`?\n"},
      {{"load", "hello", "--contxt", "4"},
       2,
       "rumbo: there is no option \"--contxt\"\n  Did you mean --context?\n"},
      {{"ps", "--xyzzy"}, 2, "rumbo: there is no option \"--xyzzy\"\n  See `rumbo ps --help`.\n"},
      {{"load", "hello", "--context", "-1"}, 2, "rumbo: "},
      {{"load", "hello", "--context", "many"}, 2, "rumbo: "},
      {{"run", "hello", "--seed", "-1", "x"}, 2, "rumbo: "},
      {{"load"}, 2, "rumbo: MODEL is required"},
      {{}, 2, "rumbo: a command is missing"},
  };
  for (const auto& [args, code, text] : cases) {
    const auto outcome = Rumbo(args);
    EXPECT_EQ(outcome.exit_code, code) << text << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith(text));
  }
}

TEST_F(CliTest, WithoutADaemonTheExitCodeIsFive) {
  for (const char* command : {"ps", "devices", "models", "status"}) {
    const auto outcome = Program::Run(Spec({command, "--json"}));
    EXPECT_EQ(outcome.exit_code, 5);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("rumbo: no daemon runs"));
    EXPECT_THAT(outcome.err, HasSubstr("rumbod"));
  }
}

TEST_F(CliTest, DoctorLooksAtTheMachineWithoutADaemon) {
  Program::Spec spec = Spec({"doctor", "--json"});
  spec.env.emplace_back("HSA_OVERRIDE_GFX_VERSION", "11.0.0");
  const auto outcome = Program::Run(spec);
  EXPECT_EQ(outcome.err, "");
  const bj::value document = bj::parse(outcome.out);
  std::map<std::string, std::string> said;
  bool broken = false;
  for (const bj::value& finding : document.at("findings").as_array()) {
    said[finding.at("code").as_string().c_str()] = finding.at("text").as_string().c_str();
    broken = broken || finding.at("severity") == "broken";
  }
  EXPECT_EQ(outcome.exit_code, broken ? 1 : 0);
  EXPECT_THAT(said["daemon.not_running"], HasSubstr("not running"));
  EXPECT_EQ(said.count("probe.failed"), 0u) << said["probe.failed"];
  const std::string about = said["env.hsa_override"] + said["gpu.hsa_override"];  // the latter beside a card
  EXPECT_THAT(about, HasSubstr("HSA_OVERRIDE_GFX_VERSION=11.0.0"));
  EXPECT_THAT(Program::Run(Spec({"doctor"})).out, HasSubstr("The daemon is not running"));
}

TEST_F(CliTest, HelpAndVersionGoToStandardOutput) {
  const auto help = Rumbo({"plan", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* option : {"--context", "--sessions", "--threads", "--kv", "--engine", "--device",
                             "--hardware", "--objective", "--system", "--json"}) {
    EXPECT_THAT(help.out, HasSubstr(option));
  }
  EXPECT_THAT(Rumbo({"--help"}).out, HasSubstr("explain"));
  EXPECT_THAT(Rumbo({"--version"}).out, StartsWith("rumbo "));
}

// Words of `text` that begin with "--", without what follows the name.
std::set<std::string> OptionsIn(const std::string& text) {
  std::set<std::string> options;
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    size_t end = at + 2;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '-'))
      ++end;
    if (end > at + 2) options.insert(text.substr(at, end - at));
  }
  return options;
}

TEST_F(CliTest, DocsListExactlyTheCommandsAndOptionsThatAreThere) {
  std::ifstream in(std::string(RUMBO_SOURCE_DIR) + "/docs/cli.md");
  const std::string docs((std::istreambuf_iterator<char>(in)), {});
  std::set<std::string> documented;
  for (size_t at = docs.find("\n### `rumbo "); at != std::string::npos;
       at = docs.find("\n### `rumbo ", at + 1)) {
    const size_t name = at + 12;
    const std::string command = docs.substr(name, docs.find_first_of(" `", name) - name);
    documented.insert(command);
    auto wanted = OptionsIn(Rumbo({command, "--help"}).out);
    wanted.erase("--help");
    wanted.erase("--json");
    const size_t text = docs.find('\n', at + 1);
    EXPECT_EQ(OptionsIn(docs.substr(text, docs.find("\n##", text) - text)), wanted) << command;
  }
  const std::string help = Rumbo({"--help"}).out;
  std::set<std::string> there;
  std::istringstream lines(help.substr(help.find("Subcommands:")));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);) {
    if (line.size() > 2) there.insert(line.substr(2, line.find(' ', 2) - 2));
  }
  EXPECT_EQ(documented, there);
}

TEST_F(CliTest, JsonHasTheKeysThatToolsRelyOn) {
  const auto devices = Json({"devices"});
  for (const char* key : {"id", "kind", "name", "vendor", "memory_kind", "pools", "backends", "present",
                          "accessible", "usable", "reason", "evidence"}) {
    EXPECT_TRUE(devices.at("devices").at(0).as_object().contains(key)) << key;
  }
  for (const char* key : {"id", "kind", "total_bytes", "free_bytes", "limits", "source"}) {
    EXPECT_TRUE(devices.at("pools").at(0).as_object().contains(key)) << key;
  }
  EXPECT_TRUE(devices.at("pools").at(1).at("total_bytes").is_null());

  const auto plan = Json({"plan", "hello"});
  for (const char* key :
       {"variant", "engine", "backend", "devices", "settings", "memory", "predicted", "reasons"}) {
    EXPECT_TRUE(plan.at("chosen").as_object().contains(key)) << key;
  }
  for (const char* key : {"pool", "what", "bytes"}) {
    EXPECT_TRUE(plan.at("chosen").at("memory").at(0).as_object().contains(key)) << key;
  }
  EXPECT_TRUE(plan.at("chosen").at("predicted").at("ttft_ms").is_null());
  EXPECT_EQ(plan.at("chosen").at("predicted").at("decode_tok_s"), 85.5);
  for (const char* key : {"engine", "backend", "devices", "reason_code", "reason"}) {
    EXPECT_TRUE(plan.at("rejected").at(0).as_object().contains(key)) << key;
  }

  const auto ps = Json({"ps"});
  for (const char* key : {"id", "model", "engine", "backend", "devices", "state", "pid", "memory", "sessions",
                          "queue", "since"}) {
    EXPECT_TRUE(ps.at("instances").at(0).as_object().contains(key)) << key;
  }
  EXPECT_TRUE(ps.at("instances").at(0).at("pid").is_null());
}

TEST_F(CliTest, EveryCommandPrintsOneDocument) {
  EXPECT_EQ(Json({"models"}).at("models").as_array().size(), 2u);
  EXPECT_EQ(Json({"show", "hello"}).at("model").at("name"), "hello");
  EXPECT_EQ(Json({"status"}).at("version"), "9.9.9");
  EXPECT_EQ(Json({"doctor"}).at("findings").at(0).at("severity"), "warning");
  EXPECT_EQ(Json({"explain", "hello"}).at("measured").at("decode_tok_s"), 90);
  EXPECT_EQ(Json({"load", "hello"}).at("instance_id"), "i-7");
  EXPECT_EQ(Json({"unload", "hello"}).at("instance_ids").at(0), "i-7");
  EXPECT_EQ(Json({"import", "/m.gguf", "--name", "hello"}).at("name"), "hello");
  EXPECT_EQ(Json({"tokenize", "hello", "ab"}).at("ids").as_array().size(), 2u);
  EXPECT_EQ(Json({"embed", "hello", "a", "b"}).at("embeddings").at(0).at("values").at(0).as_double(), 0.1);
  EXPECT_TRUE(Json({"plan", "big"}, 4).at("chosen").is_null());
}

TEST_F(CliTest, TopShowsWhatRuns) {
  const auto once = Rumbo({"top", "--once", "--interval", "0.1"});
  EXPECT_EQ(once.exit_code, 0) << once.err;
  EXPECT_THAT(once.out, HasSubstr("rumbod 9.9.9"));
  EXPECT_THAT(once.out, HasSubstr("TOKENS/S"));
  EXPECT_THAT(once.out, HasSubstr("i-1"));
  EXPECT_THAT(once.out, Not(HasSubstr("\x1b")));  // a model's name is the text of others
  const auto document = Json({"top", "--interval", "0.1"});
  EXPECT_EQ(document.at("status").at("version"), "9.9.9");
  EXPECT_EQ(document.at("list").at("instances").at(0).at("id"), "i-1");
  EXPECT_EQ(document.at("tokens_per_second").at("i-1").to_number<double>(), 0);
  EXPECT_EQ(Rumbo({"top", "--interval", "0"}).exit_code, 2);
}

TEST_F(CliTest, TopOnATerminalLeavesItAsItWas) {
  const auto shown = Rumbo({"top"}, "q", true);
  EXPECT_EQ(shown.exit_code, 0);
  const size_t enter = shown.out.find("\x1b[?1049h");
  const size_t leave = shown.out.find("\x1b[?1049l");
  ASSERT_NE(enter, std::string::npos);
  ASSERT_NE(leave, std::string::npos);
  EXPECT_LT(enter, leave);
  EXPECT_THAT(shown.out, HasSubstr("rumbod 9.9.9"));
}

// Puts a program that writes down its arguments and some of its environment where `rumbo launch` finds it.
class LaunchTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    const char* path = std::getenv("PATH");
    path_ = path != nullptr ? path : "";
    ::setenv("PATH", (dir_ + ":" + path_).c_str(), 1);
    std::ofstream(dir_ + "/claude") << "#!/bin/sh\necho \"$ANTHROPIC_BASE_URL $ANTHROPIC_MODEL "
                                       "$ANTHROPIC_AUTH_TOKEN $*\"\nexit 7\n";
    std::filesystem::permissions(dir_ + "/claude", std::filesystem::perms::owner_all);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    CliTest::TearDown();
  }
  std::string path_;
};

TEST_F(LaunchTest, StartsTheToolWithItsEnvironment) {
  const auto outcome =
      Rumbo({"launch", "claude", "--model", "hello", "--token", "t0ken", "--", "--resume", "x"});
  EXPECT_EQ(outcome.out, "http://127.0.0.1:11711 hello t0ken --resume x\n") << outcome.err;
  EXPECT_EQ(outcome.exit_code, 7);  // the tool's own
  // It was asked first, with a tool.
  EXPECT_EQ(daemon_->seen().chat.value().tools_size(), 1);
}

TEST_F(LaunchTest, RefusesModelsThatCannotCallTools) {
  const auto refused = Rumbo({"launch", "claude", "--model", "base"});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("needs a model that can call tools"));
  EXPECT_THAT(Rumbo({"launch", "claude", "--model", "base", "--no-check"}).out, HasSubstr(" base "));
}

TEST_F(LaunchTest, PrintsWhatAShellOrAnyClientNeeds) {
  const auto printed = Rumbo({"launch", "claude", "--model", "hello", "--print"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_THAT(printed.out, HasSubstr("export ANTHROPIC_BASE_URL='http://127.0.0.1:11711'\n"));
  EXPECT_THAT(printed.out, HasSubstr("\nclaude\n"));
  const auto any = Json({"launch", "env", "--model", "hello"});
  EXPECT_EQ(any.at("environment").at("OPENAI_BASE_URL"), "http://127.0.0.1:11711/v1");
  EXPECT_EQ(any.at("environment").at("OLLAMA_HOST"), "http://127.0.0.1:11711");
  EXPECT_EQ(any.at("command").as_array().size(), 0u);
}

TEST_F(LaunchTest, SaysWhatIsWrong) {
  EXPECT_THAT(Rumbo({"launch"}).out, HasSubstr("Claude Code"));
  const auto unknown = Rumbo({"launch", "clade"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("Did you mean `rumbo launch claude`?"));
  EXPECT_EQ(Rumbo({"launch", "claude", "--model", "missing"}).exit_code, 3);
  EXPECT_EQ(Rumbo({"launch", "goose", "--model", "hello"}).exit_code, 3);  // not installed
  // The only model loaded is taken; its name is the text of others.
  EXPECT_THAT(Rumbo({"launch", "env"}, "", true).out, Not(HasSubstr("\x1b")));
}

TEST_F(CliTest, PlacementOptionsReachTheDaemon) {
  Rumbo({"load", "hello", "--context", "4096", "--sessions", "4", "--threads", "2", "--kv", "q8_0",
         "--engine", "fake", "--device", "cpu0", "--force"});
  const auto load = daemon_->seen().load.value();
  EXPECT_EQ(load.workload().context(), 4096u);
  EXPECT_EQ(load.workload().sessions(), 4u);
  EXPECT_EQ(load.overrides().threads(), 2u);
  EXPECT_EQ(load.overrides().kv_type(), "q8_0");
  EXPECT_EQ(load.overrides().engine(), "fake");
  EXPECT_EQ(load.overrides().device(), "cpu0");
  EXPECT_TRUE(load.overrides().force());
  Rumbo({"plan", "hello", "--hardware", "r9700", "--objective", "throughput", "--system", "windows",
         "--sessions", "16"});
  const auto plan = daemon_->seen().plan.value();
  EXPECT_EQ(plan.hardware(), "r9700");
  EXPECT_EQ(plan.workload().objective(), "throughput");
  EXPECT_EQ(plan.system(), "windows");
  EXPECT_FALSE(plan.workload().has_context());
}

TEST_F(CliTest, NumbersThatAreNoneAreRefusedInWords) {
  for (const char* number : {"-1", "0", "two", "99999999999", "1.5"}) {
    const auto outcome = Rumbo({"plan", "hello", "--sessions", number});
    EXPECT_EQ(outcome.exit_code, 2) << number;
    EXPECT_THAT(outcome.err, HasSubstr("whole number")) << number;
    EXPECT_THAT(outcome.err, HasSubstr("--sessions")) << number;
  }
}

TEST_F(CliTest, EnginesThatAreNotInstalledAreOneLineUnlessAllIsAskedFor) {
  const auto brief = Rumbo({"plan", "hello"}).out;
  EXPECT_THAT(brief, HasSubstr("not installed here, or not for this system: vllm, sglang"));
  EXPECT_THAT(brief, Not(HasSubstr("vllm is not installed here")));
  EXPECT_THAT(brief, HasSubstr("llamacpp native (vulkan) on gpu0"));
  const auto all = Rumbo({"plan", "hello", "--all"}).out;
  EXPECT_THAT(all, HasSubstr("vllm is not installed here"));
}

TEST_F(CliTest, SeveralModelsArePlannedTogetherOnlyOnRequest) {
  const auto refused = Rumbo({"plan", "hello", "echo"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--together"));
  const auto value = Json({"plan", "hello", "echo", "--together"});
  EXPECT_EQ(value.at("plan").at("model"), "hello");
  EXPECT_EQ(value.at("together").at(0).at("model"), "echo");
  EXPECT_EQ(daemon_->seen().plan->together(0), "echo");
  EXPECT_EQ(Rumbo({"plan", "hello", "big", "--together"}).exit_code, 4) << "one does not fit";
}

TEST_F(CliTest, TuneShowsTrialsAndWinners) {
  const auto outcome = Rumbo({"tune", "hello", "--sessions", "4", "--limit", "10"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("llamacpp native (cpu), 4 sessions: 99.0 tokens/s in all"));
  EXPECT_THAT(outcome.out, HasSubstr("best latency"));
  const auto value = Json({"tune", "hello"});
  EXPECT_EQ(value.at("trials").at(0).at("ttft_ms"), 12);
  EXPECT_EQ(value.at("result").at("winners").at(0).at("objective"), "latency");
  EXPECT_EQ(Rumbo({"tune", "nobody"}).exit_code, 3);
}

TEST_F(CliTest, RelativePathsBecomeAbsolute) {
  const std::string here = std::filesystem::current_path();
  Rumbo({"import", "models/../x.gguf"});
  EXPECT_EQ(daemon_->seen().import->path(), here + "/x.gguf");
  EXPECT_EQ(daemon_->seen().import->name(), "x");
  Rumbo({"plan", "./y.gguf"});
  EXPECT_EQ(daemon_->seen().plan->model(), here + "/y.gguf");
  Rumbo({"plan", "hello"});
  EXPECT_EQ(daemon_->seen().plan->model(), "hello");
}

TEST_F(CliTest, DoctorFailsWhereSomethingIsBroken) {
  EXPECT_EQ(Rumbo({"doctor"}).exit_code, 0);
  daemon_->doctor_broken = true;
  const auto outcome = Rumbo({"doctor"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("usermod"));
}

TEST_F(CliTest, NamesOfOthersCannotDriveTheTerminal) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"models"}, {"ps"}, {"devices"}, {"load", "evil\x1b[2J"}}) {
    const auto outcome = Rumbo(args, "", true);
    EXPECT_THAT(outcome.out + outcome.err, HasSubstr("\\x1b"));
    EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("\x1b[2J")));
    EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("\x1b]0;")));
  }
}

TEST_F(CliTest, AnAnswerKeepsItsBytesInAPipeAndLosesControlsOnATerminal) {
  EXPECT_EQ(Rumbo({"run", "evil", "x"}).out,
            "a\x1b[31mb\xc2\x9b\x07"
            "c\n\td\n");
  EXPECT_EQ(Rumbo({"run", "evil", "x"}, "", true).out, "a[31mbc\n\td\n");
}

TEST_F(CliTest, RunLoadsInSightOfATerminalOnly) {
  Rumbo({"run", "hello", "hi"});
  EXPECT_FALSE(daemon_->seen().load);
  Program::Spec spec = Spec({"run", "hello", "hi"}, "", true);
  spec.errors_too = true;
  const auto outcome = Program::Run(spec);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(daemon_->seen().load->name(), "hello");
  EXPECT_THAT(outcome.out, HasSubstr("\r\x1b[Kload"));
  EXPECT_THAT(outcome.out, HasSubstr("\r\x1b[KHello, world\n"));
}

TEST_F(CliTest, NoProgressOutsideATerminal) {
  const auto outcome = Rumbo({"load", "hello"});
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, "hello is loaded as i-7: llamacpp (cpu) on cpu0\n");
}

TEST_F(CliTest, InvalidTextIsRefusedBeforeItIsSent) {
  EXPECT_EQ(Rumbo({"run", "echo"}, "\xff\xfe").exit_code, 2);
  EXPECT_EQ(Rumbo({"run", "echo", "\xff"}).exit_code, 2);
  EXPECT_EQ(daemon_->seen().calls, 0);
}

TEST_F(CliTest, InterruptCancelsCleanly) {
  daemon_ = std::make_unique<FakeDaemon>(socket_);
  Program program(Spec({"run", "silent", "x"}));
  ASSERT_TRUE(daemon_->WaitForSilent());
  program.Signal(SIGINT);
  const auto outcome = program.Wait();
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(daemon_->WaitForCancelled(1));
}

TEST_F(CliTest, AClosedPipeEndsTheProgram) {
  daemon_ = std::make_unique<FakeDaemon>(socket_);
  Program::Spec spec = Spec({});
  spec.argv = {"/bin/sh", "-c", spec.argv[0] + " models | true; echo done"};
  const auto outcome = Program::Run(spec);
  EXPECT_EQ(outcome.out, "done\n");
}

TEST_F(CliTest, TalksOnATerminal) {
  const auto outcome = Rumbo({"run", "echo"}, "one\n\ntwo\n\x04", true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "one\ntwo\n");
  const auto chat = daemon_->seen().chat.value();
  ASSERT_EQ(chat.messages_size(), 3) << "the conversation so far goes along";
  EXPECT_EQ(chat.messages(1).role(), "assistant");
  EXPECT_EQ(chat.messages(1).content(0).text(), "one");
}

TEST_F(CliTest, RunStartsADaemonBesideIt) {
  std::filesystem::create_directories(dir_ + "/bin");
  std::filesystem::copy(std::string(RUMBO_BIN_DIR) + "/rumbo", dir_ + "/bin/rumbo");
  std::filesystem::create_symlink(std::string(RUMBO_TESTS_DIR) + "/fake_rumbod", dir_ + "/bin/rumbod");
  Program::Spec spec = Spec({"run", "hello", "hi"});
  spec.argv[0] = dir_ + "/bin/rumbo";
  const auto outcome = Program::Run(spec);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Hello, world\n");
  EXPECT_THAT(outcome.err, HasSubstr("starting the daemon, log in " + dir_ + "/state/rumbod.log"));
  int pid = 0;
  std::ifstream log(dir_ + "/state/rumbod.log");
  std::string line;
  std::getline(log, line);
  ASSERT_EQ(std::sscanf(line.c_str(), "pid %d", &pid), 1) << line;
  EXPECT_EQ(::kill(pid, SIGTERM), 0) << "it still runs";
}

TEST_F(CliTest, TheExampleStreamsAChat) {
  daemon_ = std::make_unique<FakeDaemon>(socket_);
  Program::Spec spec = Spec({});
  spec.argv = {std::string(RUMBO_BIN_DIR) + "/example_chat", "hello", "hi"};
  const auto outcome = Program::Run(spec);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Hello, world\n123.4 tokens/s\n");
}

}  // namespace
}  // namespace rumbo
