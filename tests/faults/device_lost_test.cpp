// Cards that come, go and change their driver under a running daemon: the real rumbod and rumbo-probe over a
// synthetic /sys that the test changes, with the fake engine on the card.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "base/os/subprocess.h"
#include "base/status.h"
#include "devices/testing/machines.h"
#include "engines/worker_kit/grpc_status.h"
#include "rumbo/v1/device.grpc.pb.h"
#include "rumbo/v1/inference.grpc.pb.h"
#include "rumbo/v1/instance.grpc.pb.h"
#include "rumbo/v1/model.grpc.pb.h"

namespace rumbo {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;
using ::testing::HasSubstr;

constexpr char kCard[] = "gpu-0000:03:00.0";
constexpr char kReal[] = "/sys/devices/pci0000:00/0000:03:00.0";

// What a Vulkan driver would say of the card, so that a backend can use it.
constexpr char kVulkaninfo[] =
    "GPU0:\n\tapiVersion = 1.4.318\n\tvendorID = 0x1002\n\tdeviceID = 0x7551\n"
    "\tdeviceType = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU\n\tdeviceName = AMD Radeon AI PRO R9700 (RADV "
    "GFX1201)\n"
    "\tdriverName = radv\n\tdriverInfo = Mesa 25.2.0\n\tdeviceUUID = 00000000-0300-0000-0000-000000000000\n";

class DeviceLostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AddMemory(tree_, 64, 60);
    PlugIn();
    SpawnSpec spec;
    const std::string dir = tree_.dir() + "/daemon";
    tree_.Dir("/daemon");
    spec.argv = {std::string(RUMBO_BIN_DIR) + "/rumbod",
                 "--hardware-root",
                 tree_.dir(),
                 "--http",
                 "off",
                 "--socket",
                 dir + "/s",
                 "--state-dir",
                 dir + "/state",
                 "--cache-dir",
                 dir + "/cache"};
    spec.env = CleanEnvironment();
    spec.isolate = false;
    auto child = Spawn(spec);
    ASSERT_TRUE(child.ok()) << child.status();
    child_ = std::move(*child);
    channel_ = grpc::CreateChannel("unix:" + dir + "/s", grpc::InsecureChannelCredentials());
    ASSERT_TRUE(channel_->WaitForConnected(system_clock::now() + seconds(30)));
    devices_ = v1::DeviceService::NewStub(channel_);
    context_.set_deadline(system_clock::now() + seconds(90));
    v1::WatchDevicesRequest request;
    request.set_min_interval_ms(250);
    watch_ = devices_->WatchDevices(&context_, request);
  }
  void TearDown() override {
    context_.TryCancel();
    watch_.reset();
    KillTree(child_);
    if (child_.pid > 0) Reap(child_);
  }

  void PlugIn() {
    AddR9700(tree_, 0);
    tree_.File("/tools/vulkaninfo.txt", kVulkaninfo);
    tree_.File("/sys/module/amdgpu/version", "6.14.1\n");
  }
  void PullOut() {
    tree_.Remove("/tools").Remove("/sys/bus/pci/devices/0000:03:00.0").Remove(kReal);
    tree_.Remove("/sys/class/drm").Remove("/sys/class/kfd").Remove("/dev/dri");
  }

  // Reads what the watch sends until `wanted` holds; null where the stream ends before that.
  std::unique_ptr<v1::Topology> Until(const std::function<bool(const v1::Topology&)>& wanted) {
    v1::WatchDevicesResponse message;
    while (watch_->Read(&message)) {
      if (wanted(message.topology())) return std::make_unique<v1::Topology>(message.topology());
    }
    return nullptr;
  }
  static const v1::Device* Card(const v1::Topology& t) {
    for (const v1::Device& d : t.devices()) {
      if (d.id() == kCard) return &d;
    }
    return nullptr;
  }
  static bool Usable(const v1::Topology& t) { return Card(t) != nullptr && Card(t)->usable(); }

  // The fake engine on the card, then an answer that does not come to its end by itself.
  void StartAnswer() {
    auto models = v1::ModelService::NewStub(channel_);
    v1::LoadModelRequest load;
    load.set_name("fake");
    load.mutable_overrides()->set_engine("fake");
    load.mutable_overrides()->set_device(kCard);
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + seconds(60));
    auto stream = models->LoadModel(&context, load);
    v1::LoadModelResponse event;
    while (stream->Read(&event)) {
    }
    const grpc::Status status = stream->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_TRUE(event.has_loaded());
    ASSERT_EQ(event.loaded().plan().chosen().devices(0), kCard);

    inference_ = v1::InferenceService::NewStub(channel_);
    v1::GenerateRequest request;
    request.set_model("fake");
    request.set_prompt("<<token_us=20000>> count");
    request.mutable_sampling()->set_max_tokens(100000);
    answer_context_.set_deadline(system_clock::now() + seconds(60));
    answer_ = inference_->Generate(&answer_context_, request);
    v1::GenerateResponse chunk;
    do {
      ASSERT_TRUE(answer_->Read(&chunk));
    } while (!chunk.has_chunk());
  }
  // How the answer ended.
  absl::Status EndOfAnswer() {
    v1::GenerateResponse chunk;
    while (answer_->Read(&chunk)) {
    }
    return FromGrpcStatus(answer_->Finish());
  }

  FakeTree tree_;
  Child child_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::DeviceService::Stub> devices_;
  grpc::ClientContext context_, answer_context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchDevicesResponse>> watch_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> answer_;
};

TEST_F(DeviceLostTest, ACardThatGoesEndsItsInstancesAndComesBackByItself) {
  ASSERT_NE(Until(Usable), nullptr);
  ASSERT_NO_FATAL_FAILURE(StartAnswer());
  PullOut();
  ASSERT_NE(Until([](const v1::Topology& t) { return !Usable(t); }), nullptr);
  const absl::Status end = EndOfAnswer();
  EXPECT_EQ(ReasonOf(end), Reason::kDeviceLost) << end;
  EXPECT_THAT(MessageOf(end), HasSubstr(std::string(kCard) + " is gone"));
  EXPECT_FALSE(NextStepOf(end).empty());
  auto instances = v1::InstanceService::NewStub(channel_);
  grpc::ClientContext context;
  v1::ListInstancesResponse list;
  ASSERT_TRUE(instances->ListInstances(&context, {}, &list).ok());
  for (const v1::Instance& i : list.instances()) {
    EXPECT_NE(i.state(), "ready") << i.reason();
    EXPECT_THAT(i.reason(), HasSubstr("is gone"));
  }
  PlugIn();
  EXPECT_NE(Until(Usable), nullptr);
}

TEST_F(DeviceLostTest, AnUnboundDriverIsALostDevice) {
  ASSERT_NE(Until(Usable), nullptr);
  ASSERT_NO_FATAL_FAILURE(StartAnswer());
  tree_.Remove(std::string(kReal) + "/driver").Remove("/tools");
  const auto after = Until([](const v1::Topology& t) { return !Usable(t); });
  ASSERT_NE(after, nullptr);
  const absl::Status end = EndOfAnswer();
  EXPECT_EQ(ReasonOf(end), Reason::kDeviceLost) << end;
  EXPECT_THAT(MessageOf(end), HasSubstr("amdgpu is no longer bound"));
}

TEST_F(DeviceLostTest, AReloadedDriverIsProbedAnew) {
  const auto before = Until(Usable);
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(Card(*before)->driver_version(), "6.14.1");
  // Nodes made anew under their old names, by a newer driver that sees more memory.
  tree_.File("/sys/module/amdgpu/version", "6.15.0\n");
  tree_.File(std::string(kReal) + "/mem_info_vram_total", "17179869184\n");
  tree_.Remove("/sys/class/drm");
  AddDrm(tree_, "0000:03:00.0", 2);
  const auto after =
      Until([](const v1::Topology& t) { return Usable(t) && Card(t)->driver_version() == "6.15.0"; });
  ASSERT_NE(after, nullptr);
  for (const v1::MemoryPool& pool : after->pools()) {
    if (pool.id() == "pool-vram-0000:03:00.0") {
      EXPECT_EQ(pool.total_bytes(), 17179869184u);
    }
  }
}

}  // namespace
}  // namespace rumbo
