#include "daemon/store/url.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace rumbo {
namespace {

AddressKind KindOf(const std::string& text) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr), 1) << text;
    v6->sin6_family = AF_INET6;
  }
  return ClassifyAddress(reinterpret_cast<const sockaddr*>(&storage));
}

TEST(UrlTest, EveryDisguiseOfAnInnerAddressIsSeen) {
  for (const char* loopback : {"127.0.0.1", "127.255.0.3", "::1", "::ffff:127.0.0.1", "::127.0.0.1",
                               "64:ff9b::7f00:1", "2002:7f00:1::1"}) {
    EXPECT_EQ(KindOf(loopback), AddressKind::kLoopback) << loopback;
  }
  for (const char* inner : {"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
                            "fd00::1", "fc00::1", "::ffff:10.0.0.1", "fec0::1", "64:ff9b:1::1"}) {
    EXPECT_EQ(KindOf(inner), AddressKind::kPrivate) << inner;
  }
  for (const char* link : {"169.254.169.254", "fe80::1", "::ffff:169.254.169.254"})
    EXPECT_EQ(KindOf(link), AddressKind::kLinkLocal) << link;
  for (const char* odd :
       {"0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1", "2001::1", "2001:db8::1", "192.0.2.1"})
    EXPECT_EQ(KindOf(odd), AddressKind::kReserved) << odd;
  for (const char* open : {"8.8.8.8", "172.32.0.1", "2606:4700::1", "::ffff:8.8.8.8", "100.128.0.1"})
    EXPECT_EQ(KindOf(open), AddressKind::kPublic) << open;
}

TEST(UrlTest, WhatParsersReadDifferentlyIsRefused) {
  for (const char* bad : {"https://127.1/",
                          "https://0x7f.1/",
                          "https://0x7f000001/",
                          "https://2130706433/",
                          "https://0177.0.0.1/",
                          "https://1.2.3.4.5/",
                          "https://a@b/",
                          "https://a:b@c/",
                          "https://a\\b/",
                          "https://a b/",
                          "https:///x",
                          "https://",
                          "https://a:0/",
                          "https://a:99999/",
                          "https://a:/",
                          "https://[::1/",
                          "https://[::1]x/",
                          "https://a..b/",
                          "https://-a/",
                          "https://a/#f",
                          "file:///etc",
                          "gopher://a/",
                          "//a/",
                          "https://caf\xc3\xa9.org/",
                          "https://a\t/",
                          "https://a%2eb/",
                          "a"}) {
    EXPECT_FALSE(ParseUrl(bad).ok()) << bad;
  }
  const auto url = ParseUrl("HTTPS://Example.ORG:8443?q=1");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->text(), "https://example.org:8443/?q=1");
  EXPECT_EQ(ParseUrl("https://[0:0::1]:443/x")->text(), "https://[::1]/x");
}

TEST(UrlTest, LocationsAreReadAgainstTheirPage) {
  const Url base = *ParseUrl("https://a.org/x/y?z=/");
  EXPECT_EQ(ResolveLocation(base, "/m")->text(), "https://a.org/m");
  EXPECT_EQ(ResolveLocation(base, "m?u=http://b/")->text(), "https://a.org/x/m?u=http://b/");
  EXPECT_EQ(ResolveLocation(base, "//b.org/m")->text(), "https://b.org/m");
  EXPECT_EQ(ResolveLocation(base, "https://b.org/m#f")->text(), "https://b.org/m");
  for (const char* bad : {"", "file:///etc/passwd", "javascript:x", "https://127.1/", "//a@b/"})
    EXPECT_FALSE(ResolveLocation(base, bad).ok()) << bad;
}

TEST(UrlTest, OnlyNamedHostsMayBeInside) {
  UrlPolicy policy({"mirror.lan", "127.0.0.1:8000"});
  const auto from = ParseUrl("https://hub.org/m");
  const auto hop = [&](const char* to) { return policy.CheckHop(*from, *ParseUrl(to)); };
  for (const char* bad :
       {"https://127.0.0.1/", "https://127.0.0.1:8001/", "http://127.0.0.1:8001/", "https://localhost/",
        "https://x.localhost/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://0.0.0.0/",
        "https://169.254.169.254/latest", "https://192.168.0.1/", "http://cdn.org/"}) {
    EXPECT_EQ(ReasonOf(hop(bad)), Reason::kNotAllowedByPolicy) << bad;
  }
  EXPECT_TRUE(hop("https://cdn.org/x").ok());
  EXPECT_TRUE(hop("http://127.0.0.1:8000/").ok());
  EXPECT_TRUE(hop("http://mirror.lan:81/").ok());
}

TEST(UrlTest, ANameThatResolvesInsideIsRefusedWhenConnecting) {
  UrlPolicy policy({"mirror.lan"});
  sockaddr_in inner{};
  inner.sin_family = AF_INET;
  ::inet_pton(AF_INET, "10.1.2.3", &inner.sin_addr);
  const auto* address = reinterpret_cast<const sockaddr*>(&inner);
  EXPECT_EQ(ReasonOf(policy.CheckAddress(*ParseUrl("https://rebound.org/"), address)),
            Reason::kNotAllowedByPolicy);
  EXPECT_TRUE(policy.CheckAddress(*ParseUrl("https://mirror.lan/"), address).ok());
}

}  // namespace
}  // namespace rumbo
