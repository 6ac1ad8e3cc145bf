#include "daemon/store/manifest.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace rumbo {
namespace {

std::string Hub(const std::string& siblings) {
  return R"({"sha":"0123456789012345678901234567890123456789","gated":false,"cardData":{"license":"apache-2.0"},)"
         R"("siblings":[)" +
         siblings + "]}";
}
std::string File(const std::string& name, int size = 10) {
  return R"({"rfilename":")" + name + R"(","size":)" + std::to_string(size) + R"(,"blobId":")" +
         std::string(40, 'a') + R"("})";
}
RemoteModel Model(const std::vector<std::string>& names) {
  RemoteModel model;
  for (const std::string& name : names) model.files.push_back({name, 10, "", "", ""});
  return model;
}

TEST(ManifestTest, HubModelHasSizesHashesAndLicence) {
  const auto model =
      ParseHubModel(Hub(File("config.json", 7) + R"(,{"rfilename":"m.gguf","size":1,"lfs":{"sha256":")" +
                        std::string(64, 'b') + R"(","size":99}})"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->licence, "apache-2.0");
  ASSERT_EQ(model->files.size(), 2u);
  EXPECT_EQ(model->files[0].git_sha1, std::string(40, 'a'));
  EXPECT_EQ(model->files[1].bytes, 99u);
  EXPECT_EQ(model->files[1].sha256, std::string(64, 'b'));
  const auto back = RemoteModelFromJson(RemoteModelToJson(*model));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->files, model->files);
}

TEST(ManifestTest, HostileListsAreRefused) {
  for (const std::string& bad :
       {std::string("[]"), std::string("{"), std::string(R"({"sha":"x","siblings":[]})"), Hub(File("../x")),
        Hub(File("/etc/passwd")), Hub(File("a\\\\b")), Hub(File("a") + "," + File("A")),
        Hub(R"({"rfilename":"m","lfs":{"sha256":"../../x","size":1}})"),
        Hub(R"({"rfilename":"m","size":18446744073709551615})"), std::string(200, '[')}) {
    EXPECT_EQ(ReasonOf(ParseHubModel(bad).status()), Reason::kModelInvalid) << bad;
  }
}

TEST(ManifestTest, OciDigestsAreChecked) {
  const auto oci = [](const std::string& digest, const std::string& type = "model") {
    return R"({"schemaVersion":2,"layers":[{"mediaType":"application/vnd.ollama.image.)" + type +
           R"(","digest":")" + digest + R"(","size":5}]})";
  };
  const auto good = ParseOciManifest(oci("sha256:" + std::string(64, 'c')));
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->files[0].path, "model");
  EXPECT_EQ(good->files[0].bytes, 5u);
  for (const std::string& bad :
       {std::string("sha256:../../../x"), std::string("sha256:") + std::string(63, 'c'), std::string(64, 'c'),
        "sha256:" + std::string(64, 'C'), "sha512:" + std::string(64, 'c')}) {
    EXPECT_FALSE(ParseOciManifest(oci(bad)).ok()) << bad;
  }
  EXPECT_FALSE(ParseOciManifest(oci("sha256:" + std::string(64, 'c'), "../x")).ok());
}

TEST(ManifestTest, SplitSetIsOneVariantInOrder) {
  const auto variants =
      VariantsOf(Model({"q/m-Q8_0-00002-of-00002.gguf", "q/m-Q8_0-00001-of-00002.gguf", "m-Q4_K_M.gguf",
                        "mmproj-F16.gguf", "best-of-breed.gguf", "x-00000-of-00003.gguf", "README.md"}));
  ASSERT_EQ(variants.size(), 4u);
  EXPECT_EQ(variants[0].id, "q4_k_m");
  EXPECT_EQ(variants[1].id, "best-of-breed");
  EXPECT_EQ(variants[2].id, "x-00000-of-00003");
  EXPECT_EQ(variants[3].id, "q8_0");
  EXPECT_EQ(variants[3].bytes, 20u);
  EXPECT_EQ(variants[3].files[0].path, "q/m-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(variants[3].problem, "");
}

TEST(ManifestTest, MissingPartIsNamedBeforeAnythingIsFetched) {
  const RemoteModel model = Model({"m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"});
  EXPECT_EQ(VariantsOf(model)[0].problem, "part 2 of 3 is missing");
  const auto chosen = SelectVariants(model, "", "Q8_0");
  EXPECT_EQ(ReasonOf(chosen.status()), Reason::kModelInvalid);
}

TEST(ManifestTest, SelectorsFindTheirVariant) {
  const RemoteModel model =
      Model({"m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-BF16.gguf", "config.json", "model.safetensors"});
  EXPECT_EQ(SelectVariants(model, "", "q4_k_m")->size(), 1u);
  EXPECT_EQ((*SelectVariants(model, "m-BF16.gguf", ""))[0].id, "bf16");
  EXPECT_EQ(SelectVariants(model, "", "")->size(), 4u);
  const auto none = SelectVariants(model, "", "Q2_K");
  EXPECT_EQ(ReasonOf(none.status()), Reason::kModelNotFound);
  EXPECT_NE(NextStepOf(none.status()).find("q4_k_m"), std::string::npos);
}

TEST(ManifestTest, PicklesAreNeverPartOfAModel) {
  const auto variants = VariantsOf(Model({"pytorch_model.bin", "model.pt", "config.json"}));
  EXPECT_TRUE(variants.empty());
  for (const RemoteVariant& variant :
       VariantsOf(Model({"pytorch_model.bin", "model.safetensors", "config.json"}))) {
    for (const RemoteFile& file : variant.files) EXPECT_NE(file.path, "pytorch_model.bin");
  }
}

}  // namespace
}  // namespace rumbo
