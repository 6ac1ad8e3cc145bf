#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "devices/vendors/vulkan_loader.h"

namespace rumbo {

// clang-format off
#define RUMBO_VK_DEVICE_FUNCTIONS(X)                                                                         \
  X(DestroyDevice)                                                                                           \
  X(GetDeviceQueue)                                                                                          \
  X(CreateBuffer)                                                                                            \
  X(DestroyBuffer)                                                                                           \
  X(GetBufferMemoryRequirements)                                                                             \
  X(AllocateMemory) X(FreeMemory) X(BindBufferMemory) X(MapMemory) X(UnmapMemory) X(CreateShaderModule)      \
      X(DestroyShaderModule) X(CreateDescriptorSetLayout) X(DestroyDescriptorSetLayout)                      \
          X(CreatePipelineLayout) X(DestroyPipelineLayout) X(CreateComputePipelines) X(DestroyPipeline)      \
              X(CreateDescriptorPool) X(DestroyDescriptorPool) X(AllocateDescriptorSets)                     \
                  X(UpdateDescriptorSets) X(CreateCommandPool) X(DestroyCommandPool)                         \
                      X(AllocateCommandBuffers) X(BeginCommandBuffer) X(EndCommandBuffer) X(CmdBindPipeline) \
                          X(CmdBindDescriptorSets) X(CmdPushConstants) X(CmdDispatch) X(CmdPipelineBarrier)  \
                              X(CmdFillBuffer) X(CmdCopyBuffer) X(CreateFence) X(DestroyFence)               \
                                  X(ResetFences) X(QueueSubmit) X(WaitForFences) X(DeviceWaitIdle)           \
                                      X(ResetCommandPool)
// clang-format on

struct VulkanBuffer {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  Bytes bytes = 0;
};

// One Vulkan device with a compute queue: buffers, kernels, and the time that dispatches take. Everything
// made through it is freed with it. Failures are kept in error() and make later calls do nothing.
class VulkanCompute {
 public:
  VulkanCompute(const VulkanInstance& instance, VkPhysicalDevice physical);
  ~VulkanCompute();
  VulkanCompute(const VulkanCompute&) = delete;
  VulkanCompute& operator=(const VulkanCompute&) = delete;

  const std::string& error() const { return error_; }

  // Device-local where `host_visible` is false.
  VulkanBuffer MakeBuffer(Bytes bytes, bool host_visible);

  struct Kernel {
    VkPipeline pipeline = VK_NULL_HANDLE;
    VkPipelineLayout layout = VK_NULL_HANDLE;
    VkDescriptorSet set = VK_NULL_HANDLE;
  };
  // A compute shader with its storage buffers at bindings 0, 1, ... and one uint as push constant.
  Kernel MakeKernel(const uint32_t* code, size_t words, const std::vector<VulkanBuffer>& buffers);

  void Fill(const VulkanBuffer& buffer, float value);
  // `repeats` dispatches one after the other; seconds for all of them.
  std::optional<double> Time(const Kernel& kernel, uint32_t parameter, uint32_t groups_x, uint32_t groups_y,
                             int repeats);
  // `count` floats from `offset` floats on.
  std::vector<float> Read(const VulkanBuffer& buffer, size_t offset, size_t count);

 private:
  bool Check(VkResult result, const char* what);
  bool LoadFunctions(const VulkanInstance& instance);
  void Begin();
  // Submits what was recorded since Begin and waits, ten seconds at most.
  std::optional<double> Submit();
  void Barrier();

  VkPhysicalDevice physical_;
  VkDevice device_ = VK_NULL_HANDLE;
  uint32_t family_ = 0;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkFence fence_ = VK_NULL_HANDLE;
  VkPhysicalDeviceMemoryProperties memory_{};
  std::vector<VulkanBuffer> buffers_;
  std::vector<VkShaderModule> modules_;
  std::vector<VkDescriptorSetLayout> set_layouts_;
  std::vector<VkPipelineLayout> layouts_;
  std::vector<VkPipeline> pipelines_;
  std::vector<VkDescriptorPool> descriptor_pools_;
  std::string error_;
#define RUMBO_X(name) PFN_vk##name name##_ = nullptr;
  RUMBO_VK_DEVICE_FUNCTIONS(RUMBO_X)
#undef RUMBO_X
};

}  // namespace rumbo
