#include "daemon/store/reference.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace rumbo {
namespace {

using Kind = ModelReference::Kind;

TEST(ReferenceTest, HubReferencesAreTakenApart) {
  const auto plain = ParseReference("hf:unsloth/Qwen3-8B-GGUF");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->kind, Kind::kHub);
  EXPECT_EQ(plain->repository, "unsloth/Qwen3-8B-GGUF");
  EXPECT_EQ(plain->revision, "main");
  const auto quant = ParseReference("hf:unsloth/Qwen3-8B-GGUF:Q4_K_M@refs/pr/3");
  ASSERT_TRUE(quant.ok()) << quant.status();
  EXPECT_EQ(quant->quantization, "Q4_K_M");
  EXPECT_EQ(quant->file, "");
  EXPECT_EQ(quant->revision, "refs/pr/3");
  const auto file = ParseReference("hf:a/b:sub/model-Q8_0.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->file, "sub/model-Q8_0.gguf");
  EXPECT_EQ(file->quantization, "");
}

TEST(ReferenceTest, RegistryReferencesHaveDefaults) {
  const auto plain = ParseReference("ollama:smollm2");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->repository, "library/smollm2");
  EXPECT_EQ(plain->tag, "latest");
  const auto full = ParseReference("ollama:127.0.0.1:5000/me/model:135m-q4_0");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->host, "127.0.0.1:5000");
  EXPECT_EQ(full->repository, "me/model");
  EXPECT_EQ(full->tag, "135m-q4_0");
}

TEST(ReferenceTest, AddressesNeedHttpsExceptOnThisMachine) {
  const std::string hash(64, 'A');
  const auto url = ParseReference("https://Example.org/m.gguf?x=1#sha256=" + hash);
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->url, "https://example.org/m.gguf?x=1");
  EXPECT_EQ(url->sha256, std::string(64, 'a'));
  EXPECT_TRUE(ParseReference("http://127.0.0.1:80/m.gguf").ok());
  EXPECT_TRUE(ParseReference("http://localhost/m.gguf").ok());
  EXPECT_FALSE(ParseReference("http://example.org/m.gguf").ok());
  EXPECT_FALSE(ParseReference("https://example.org/m.gguf#sha256=zz").ok());
  EXPECT_FALSE(ParseReference("https://user:pw@example.org/m.gguf").ok());
  EXPECT_FALSE(ParseReference("ftp://example.org/m.gguf").ok());
}

TEST(ReferenceTest, HostileTextsAreRefused) {
  for (const std::string& text : {std::string(),
                                  std::string("hf:"),
                                  std::string("hf:a"),
                                  std::string("hf:a/b/c"),
                                  std::string("hf:../b"),
                                  std::string("hf:a/.."),
                                  std::string("hf:a/b:../x.gguf"),
                                  std::string("hf:a/b:/x.gguf"),
                                  std::string("hf:a/b:x\\y.gguf"),
                                  std::string("hf:a/b@../main"),
                                  std::string("hf:a/b@"),
                                  std::string("hf:a/b\0c", 8),
                                  std::string("hf:CON/b"),
                                  std::string("hf:a/nul.gguf"),
                                  std::string("hf:a/b:aux.gguf"),
                                  std::string("hf:a/b:COM1.gguf"),
                                  std::string("hf:a/b\xc3\xa9"),
                                  std::string("hf:\xd0\xb0/b"),
                                  std::string("ollama:"),
                                  std::string("ollama:a/b/c/d"),
                                  std::string("ollama:evil@host/a/b"),
                                  std::string("ollama:a:../t"),
                                  std::string("ollama:0x7f.1/a/b"),
                                  std::string("file:relative"),
                                  std::string("file:/a/../b"),
                                  std::string("../x"),
                                  std::string("x y"),
                                  std::string("a\nb"),
                                  "hf:a/" + std::string(97, 'b'),
                                  std::string(3000, 'a')}) {
    const auto parsed = ParseReference(text);
    EXPECT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(ReasonOf(parsed.status()), Reason::kInvalidArgument) << text;
  }
}

TEST(ReferenceTest, WritingAndReadingAgree) {
  for (const char* text :
       {"hf:a/b", "hf:a/b:Q4_K_M", "hf:a/b:x.gguf@v1", "ollama:qwen3:8b", "ollama:localhost:5000/x/y:z",
        "https://example.org/m.gguf", "file:/m/x.gguf", "qwen3:8b", "qwen3"}) {
    const auto parsed = ParseReference(text);
    ASSERT_TRUE(parsed.ok()) << text << parsed.status();
    EXPECT_EQ(FormatReference(*parsed), text);
    EXPECT_TRUE(CheckModelName(NameFor(*parsed)).ok()) << NameFor(*parsed);
  }
  EXPECT_EQ(NameFor(*ParseReference("hf:a/Model-GGUF:Q4_K_M")), "Model-GGUF:q4_k_m");
  EXPECT_EQ(NameFor(*ParseReference("ollama:qwen3:8b")), "qwen3:8b");
}

TEST(ReferenceTest, RemotePathsStayBelowTheirFolder) {
  for (const char* good : {"config.json", "a/b/c.gguf", "model (1).gguf", "UD-Q4_K_XL/x-00001-of-00002.gguf"})
    EXPECT_TRUE(CheckRemotePath(good).ok()) << good;
  for (const std::string& bad :
       {std::string(), std::string("/etc/passwd"), std::string("../x"), std::string("a/../../x"),
        std::string("a//b"), std::string("a/"), std::string("a\\b"), std::string("C:\\x"), std::string("C:x"),
        std::string("nul"), std::string("a/Con.txt"), std::string("lpt9.gguf"), std::string("x."),
        std::string("x "), std::string("%2e%2e/x"), std::string("a\0b", 3), std::string("a\nb"),
        std::string("caf\xc3\xa9"), std::string(300, 'a')}) {
    EXPECT_FALSE(CheckRemotePath(bad).ok()) << bad;
  }
}

TEST(ReferenceTest, ModelNamesAreNoDevices) {
  for (const char* bad : {"con", "NUL.gguf", "a/com1", "aux:q4"})
    EXPECT_FALSE(CheckModelName(bad).ok()) << bad;
  for (const char* good : {"console", "qwen3:8b", "org/model:q4_k_m@v1"})
    EXPECT_TRUE(CheckModelName(good).ok()) << good;
}

}  // namespace
}  // namespace rumbo
