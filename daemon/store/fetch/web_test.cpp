#include "daemon/store/fetch/web.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/status.h"
#include "daemon/store/fetch/hub.h"
#include "daemon/store/reasons.h"

namespace rumbo {
namespace {

TEST(WebTest, ContentRangesAreReadStrictly) {
  const auto range = ParseContentRange("bytes 0-99/1000");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->end, 100u);
  EXPECT_EQ(range->total, 1000u);
  for (const char* bad : {"", "bytes */1000", "bytes 5-4/10", "bytes 0-10/10", "bytes 0-9/*", "bytes -1-9/10",
                          "items 0-1/2", "bytes 0-9", "bytes 0-18446744073709551616/1", "bytes 0 - 9/10"}) {
    EXPECT_FALSE(ParseContentRange(bad)) << bad;
  }
}

TEST(WebTest, RedirectsEndSomewhere) {
  UrlPolicy policy({});
  WebAnswer answer;
  std::vector<std::string> seen = {"https://a.org/0"};
  answer.url = *ParseUrl("https://a.org/0");
  for (int i = 1; i < 10; ++i) {
    answer.location = "/" + std::to_string(i);
    ASSERT_TRUE(FollowRedirect(policy, answer, seen).ok()) << i;
  }
  answer.location = "/10";
  EXPECT_EQ(ReasonOf(FollowRedirect(policy, answer, seen).status()), kDownloadFailed);
  seen = {"https://a.org/0", "https://a.org/1"};
  answer.location = "/0";
  EXPECT_EQ(ReasonOf(FollowRedirect(policy, answer, seen).status()), kDownloadFailed);
  answer.location = "file:///etc/passwd";
  EXPECT_EQ(ReasonOf(FollowRedirect(policy, answer, seen).status()), Reason::kNotAllowedByPolicy);
}

TEST(WebTest, TokensAreAskedForOnlyWherePolicyAllows) {
  UrlPolicy policy({});
  const Url registry = *ParseUrl("https://r.org/v2/");
  const auto good =
      TokenAddress(policy, registry, R"(Bearer realm="https://auth.org/t",service="r",scope="a:b c")");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->text(), "https://auth.org/t?service=r&scope=a%3Ab%20c");
  for (const char* bad :
       {"Basic realm=\"x\"", R"(Bearer realm="http://auth.org/")", R"(Bearer realm="https://127.0.0.1/")",
        R"(Bearer realm="https://169.254.169.254/")", R"(Bearer realm="file:///etc")", "Bearer ",
        "Bearer x"}) {
    EXPECT_FALSE(TokenAddress(policy, registry, bad).ok()) << bad;
  }
}

TEST(WebTest, LoopbackKnowsNoProxy) {
  WebOptions options;
  options.proxy = "http://proxy.lan:3128";
  EXPECT_EQ(ProxyFor(*ParseUrl("https://hub.org/"), options), "http://proxy.lan:3128");
  EXPECT_EQ(ProxyFor(*ParseUrl("http://127.0.0.1:9/"), options), "");
  ::setenv("no_proxy", "other.org, hub.org", 1);
  EXPECT_EQ(ProxyFor(*ParseUrl("https://cdn.hub.org/"), options), "");
  EXPECT_EQ(ProxyFor(*ParseUrl("https://nothub.org/"), options), "http://proxy.lan:3128");
  ::unsetenv("no_proxy");
}

}  // namespace
}  // namespace rumbo
