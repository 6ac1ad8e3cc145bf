#include "daemon/store/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>

#include "daemon/store/names.h"

namespace rumbo {
namespace {

const CheckItem* Find(const std::vector<CheckItem>& items, const std::string& code) {
  const auto it =
      std::find_if(items.begin(), items.end(), [&](const CheckItem& item) { return item.code == code; });
  return it == items.end() ? nullptr : &*it;
}

CheckRequest Sound() {
  CheckRequest request;
  request.name = "m";
  request.state = "complete";
  ModelDescriptor& d = request.descriptor;
  d.format = "gguf";
  d.architecture = "llama";
  d.capabilities = {"generate", "chat"};
  d.has_tokenizer = true;
  d.has_chat_template = true;
  d.chat_template = "{{ messages[0].content }}";
  d.context_trained = 2048;
  d.layers.resize(2);
  for (LayerDescriptor& layer : d.layers) layer.attention_bytes = 10;
  d.metadata["general.license"] = "apache-2.0";
  return request;
}

TEST(CheckTest, ASoundModelHasNothingBroken) {
  TemplateReport report{.ran = true, .prompt = "x", .supports_system = true};
  for (const CheckItem& item : CheckDescriptor(Sound(), &report, BuiltInModelNames().problems)) {
    EXPECT_NE(item.severity, "broken") << item.text;
    EXPECT_NE(item.severity, "warning") << item.text;
  }
}

TEST(CheckTest, MissingPartsAreSaid) {
  CheckRequest request = Sound();
  request.descriptor.layers[1].attention_bytes = 0;
  request.descriptor.has_tokenizer = false;
  request.descriptor.mtp_layers = 1;
  request.descriptor.metadata.clear();
  TemplateReport report{.ran = true, .error = "range(1e9)"};
  const auto items = CheckDescriptor(request, &report, {});
  for (const char* code :
       {"tensors.missing", "tokenizer.missing", "mtp.missing", "template.fails", "licence.unknown"})
    ASSERT_NE(Find(items, code), nullptr) << code;
  EXPECT_EQ(Find(items, "mtp.missing")->severity, "broken");
  request.state = "incomplete";
  EXPECT_EQ(CheckDescriptor(request, nullptr, {})[0].code, "incomplete");
}

TEST(CheckTest, TypesThatTheDeviceLacksAreSaid) {
  CheckRequest request = Sound();
  request.descriptor.bytes_by_type = {{"F8_E4M3", 10}, {"MXFP4", 10}};
  Topology topology;
  Device gpu;
  gpu.kind = DeviceKind::kGpu;
  gpu.name = "Radeon";
  gpu.gfx_target = "gfx1100";
  topology.devices.push_back(gpu);
  request.topology = &topology;
  auto items = CheckDescriptor(request, nullptr, {});
  EXPECT_NE(Find(items, "dtype.fp8"), nullptr);
  EXPECT_NE(Find(items, "dtype.mxfp4"), nullptr);
  topology.devices[0].gfx_target = "gfx950";
  items = CheckDescriptor(request, nullptr, {});
  EXPECT_EQ(Find(items, "dtype.fp8"), nullptr);
  EXPECT_EQ(Find(items, "dtype.mxfp4"), nullptr);
}

TEST(CheckTest, KnownProblemsComeWithTheirSource) {
  CheckRequest request = Sound();
  request.engine = "sglang";
  request.descriptor.mtp_layers = 1;
  request.descriptor.layers[1].mtp = true;
  const auto items = CheckDescriptor(request, nullptr, BuiltInModelNames().problems);
  const CheckItem* item = Find(items, "known.sglang-cuda-header");
  ASSERT_NE(item, nullptr);
  EXPECT_NE(item->source.find("29373"), std::string::npos);
  request.engine = "llamacpp";
  EXPECT_EQ(Find(CheckDescriptor(request, nullptr, BuiltInModelNames().problems), "known.sglang-cuda-header"),
            nullptr);
}

TEST(CheckTest, TemplateCodeIsFlagged) {
  EXPECT_FALSE(CheckTemplateText("{{ ''.__class__.__mro__[1].__subclasses__() }}").empty());
  EXPECT_FALSE(CheckTemplateText("{% for i in range(1000000000) %}x{% endfor %}").empty());
  EXPECT_TRUE(CheckTemplateText(
                  "{% for m in messages %}{{ m.content }}{% endfor %}{% for i in range(10) %}{% endfor %}")
                  .empty());
}

// The AMD Quark/MXFP4 case: the draft is stored in BF16 under the layer after the last; engines look it up
// without the layer's number, and fused.
const std::vector<TensorEntry> kQuark = {{"model.layers.0.self_attn.q_proj.weight", "U8"},
                                         {"model.layers.0.self_attn.q_proj.weight_scale", "U8"},
                                         {"model.layers.2.eh_proj.weight", "BF16"},
                                         {"model.layers.2.self_attn.q_proj.weight", "BF16"},
                                         {"model.layers.2.mlp.experts.0.up_proj.weight", "BF16"},
                                         {"lm_head.weight", "BF16"}};

std::string Config(const std::string& exclude) {
  return R"({"num_hidden_layers":2,"num_nextn_predict_layers":1,"quantization_config":{"quant_method":"quark","exclude":[)" +
         exclude + "]}}";
}

TEST(CheckQuantizationTest, UndeclaredDraftIsFoundAndTheOverrideMendsIt) {
  const auto items = CheckQuantization(Config("\"lm_head\""), kQuark);
  const CheckItem* item = Find(items, "mtp.excluded_names");
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(item->severity, "broken");
  EXPECT_EQ(item->file_name, "rumbo-hf-overrides.json");
  const boost::json::value fixed = boost::json::parse(item->file_content);
  boost::json::object config = boost::json::parse(Config("")).as_object();
  config["quantization_config"] = fixed.at("quantization_config");
  const auto again = CheckQuantization(boost::json::serialize(config), kQuark);
  ASSERT_NE(Find(again, "mtp.excluded_names"), nullptr);
  EXPECT_EQ(Find(again, "mtp.excluded_names")->severity, "ok");
  EXPECT_EQ(fixed.at("quantization_config").at("quant_method"), "quark");
}

TEST(CheckQuantizationTest, NamesOfTheFilesAloneAreNotEnough) {
  const auto items = CheckQuantization(Config("\"lm_head\",\"model.layers.2.*\""), kQuark);
  const CheckItem* item = Find(items, "mtp.excluded_names");
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(item->severity, "broken");
  EXPECT_NE(item->file_content.find("model.decoder.self_attn.qkv_proj"), std::string::npos);
}

TEST(CheckQuantizationTest, DeadNamesAndMissingDraftsAreSaid) {
  const auto items =
      CheckQuantization(Config("\"lm_head\",\"model.mtp.layers.0.mlp\""), {{"lm_head.weight", "BF16"}});
  ASSERT_NE(Find(items, "quantization.dead_names"), nullptr);
  ASSERT_NE(Find(items, "mtp.missing"), nullptr);
  EXPECT_TRUE(CheckQuantization("{}", {{"a.weight", "BF16"}}).empty());
  EXPECT_EQ(CheckQuantization("[", {})[0].severity, "broken");
}

}  // namespace
}  // namespace rumbo
