#include "sdk/cli/screen.h"

#include <gtest/gtest.h>

#include "base/nearest.h"
#include "sdk/cli/commands.h"
#include "sdk/cli/options.h"
#include "sdk/cli/progress.h"
#include "sdk/cli/render.h"

namespace rumbo::cli {
namespace {

TEST(ScreenTest, ControlsOfOthersBecomeVisible) {
  EXPECT_EQ(Safe("a\x1b[2Jb\nc"), "a\\x1b[2Jb\\x0ac");
  EXPECT_EQ(SafeLines("one\ntw\ro", "  "), "one\n  tw\\x0do");
}

TEST(ScreenTest, AnswersLoseControlsButKeepTextNewlinesAndTabs) {
  EXPECT_EQ(WithoutControls("a\x1b]0;x\x07\r\n\tä\xc2\x9b😊\x7f"), "a]0;x\n\tä😊");
}

TEST(ScreenTest, TablesAlignByCharactersAndIgnorePaint) {
  Screen color;
  color.color = true;
  Table table({"A", "B"});
  table.AlignRight(1);
  table.Add({"ä", "1"});
  table.Add({"xyz", "22"});
  EXPECT_EQ(table.Render(Screen()), "A     B\nä     1\nxyz  22\n");
  EXPECT_EQ(Columns(Paint(color, Style::kBad, "ab")), 2);
}

TEST(ScreenTest, WrapsAtSpaces) {
  EXPECT_EQ(Wrap("one two three", 7, "  "), "one two\n  three");
  EXPECT_EQ(Wrap("", 7, "  "), "");
}

TEST(ScreenTest, BarsStayInTheirBounds) {
  const Screen plain;
  EXPECT_EQ(Bar(plain, 0.5, 4), "[##..]");
  EXPECT_EQ(Bar(plain, 7, 4), "[####]");
  EXPECT_EQ(Bar(plain, -1, 4), "[....]");
}

TEST(NearestTest, FindsTypingErrorsAndBeginnings) {
  const std::vector<std::string> names = {"--context", "--sessions", "--kv"};
  EXPECT_EQ(Nearest("--contxt", names), "--context");
  EXPECT_EQ(Nearest("--sess", names), "--sessions");
  EXPECT_EQ(Nearest("--colour", names), "");
  EXPECT_EQ(Nearest(std::string(10000, 'x'), names), "");
}

TEST(RenderTest, UnknownMemoryIsSaidNotDrawn) {
  Topology topology;
  topology.pools.push_back({"vram0", "vram", std::nullopt, std::nullopt, std::nullopt, {}, ""});
  const std::string text = RenderTopology(topology, Screen());
  EXPECT_NE(text.find("unknown free of unknown"), std::string::npos) << text;
  EXPECT_EQ(text.find('['), std::string::npos);
}

TEST(RenderTest, ADeviceStandsUnderItsBestPoolAndNamesTheOthers) {
  Topology topology;
  topology.pools.push_back({"carveout", "carveout", 4, 2, std::nullopt, {}, ""});
  topology.pools.push_back({"system", "system", 8, 2, std::nullopt, {}, ""});
  Device gpu;
  gpu.id = "gpu0";
  gpu.pools = {"carveout", "system"};
  gpu.present = true;
  gpu.reason = "no render group";
  topology.devices = {gpu};
  EXPECT_EQ(RenderTopology(topology, Screen()),
            "carveout  [############............] 2 B free of 4 B\n"
            "`- gpu0      not accessible\n"
            "     also uses system\n"
            "     why: no render group\n"
            "system  [##################......] 2 B free of 8 B\n");
}

TEST(RenderTest, EachBackendsViewOfSeveralPoolsIsSaid) {
  Topology topology;
  topology.pools.push_back({"carveout", "carveout", 64u << 20, std::nullopt, std::nullopt, {}, ""});
  const MemoryLimit gtt{"limit-gtt-0000:c5:00.0", "gtt", 96u << 20, std::nullopt, ""};
  const MemoryLimit other{"limit-gtt-0000:03:00.0", "gtt", 1u << 20, std::nullopt, ""};
  const MemoryLimit kfd{"limit-kfd-0000:c5:00.0", "kfd", 80u << 20, std::nullopt, ""};
  topology.pools.push_back(
      {"system", "system", 200u << 20, std::nullopt, std::nullopt, {gtt, other, kfd}, ""});
  Device gpu;
  gpu.id = "gpu-0000:c5:00.0";
  gpu.pools = {"system", "carveout"};
  gpu.present = gpu.accessible = gpu.usable = true;
  gpu.backends = {{"hip", true, "", "", "", gpu.pools, false}, {"vulkan", true, "", "", "", gpu.pools, true}};
  topology.devices = {gpu};
  const std::string text = RenderTopology(topology, Screen());
  EXPECT_NE(text.find("hip sees 80.0 MiB in one pool, vulkan sees 160.0 MiB"), std::string::npos) << text;
}

TEST(RenderTest, APlanThatWasRefusedSaysWhatWouldFit) {
  Plan plan;
  plan.model = "m";
  plan.refusal = Refusal{"DOES_NOT_FIT", "no room", "system", 1024, Workload{.context = 512}, "Do less."};
  const std::string text = RenderPlan(plan, Screen());
  for (const char* part : {"no room (DOES_NOT_FIT)", "1.0 KiB in system", "--context 512", "Do less."}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(RenderTest, ProgressWithoutATotalHasNoBar) {
  EXPECT_EQ(RenderProgress({.step = "load"}, Screen()), "load     ");
  EXPECT_EQ(RenderProgress({.step = "copy", .done_bytes = 512, .total_bytes = 1024}, Screen()),
            "copy      [###############...............] 50 %, 512 B of 1.0 KiB");
}

TEST(ExitCodeTest, FollowsReasonThenCode) {
  const auto code = [](Code c, Reason r) { return ExitCodeFor(Error{c, r, "", "", "", std::nullopt}); };
  EXPECT_EQ(code(Code::kUnavailable, Reason::kDaemonUnreachable), 5);
  EXPECT_EQ(code(Code::kUnavailable, Reason::kEngineCrashed), 1);
  EXPECT_EQ(code(Code::kInvalidArgument, Reason::kInvalidArgument), 2);
  EXPECT_EQ(code(Code::kInvalidArgument, Reason::kModelInvalid), 1);
  EXPECT_EQ(code(Code::kNotFound, Reason::kFileNotFound), 3);
  EXPECT_EQ(code(Code::kResourceExhausted, Reason::kDoesNotFit), 4);
  EXPECT_EQ(code(Code::kResourceExhausted, Reason::kQueueFull), 1);
}

}  // namespace
}  // namespace rumbo::cli
