#include "devices/vendors/vulkan_compute.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

namespace rumbo {
namespace {

constexpr uint64_t kWaitNanos = 10'000'000'000;

}  // namespace

VulkanCompute::VulkanCompute(const VulkanInstance& instance, VkPhysicalDevice physical)
    : physical_(physical) {
  const auto families =
      instance.Get<PFN_vkGetPhysicalDeviceQueueFamilyProperties>("vkGetPhysicalDeviceQueueFamilyProperties");
  const auto memory =
      instance.Get<PFN_vkGetPhysicalDeviceMemoryProperties>("vkGetPhysicalDeviceMemoryProperties");
  const auto create = instance.Get<PFN_vkCreateDevice>("vkCreateDevice");
  if (families == nullptr || memory == nullptr || create == nullptr) {
    error_ = "the Vulkan loader lacks a basic function";
    return;
  }
  memory(physical_, &memory_);
  uint32_t count = 0;
  families(physical_, &count, nullptr);
  std::vector<VkQueueFamilyProperties> all(count);
  families(physical_, &count, all.data());
  while (family_ < count && (all[family_].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) ++family_;
  if (family_ == count) {
    error_ = "no queue that computes";
    return;
  }
  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = family_;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  if (!Check(create(physical_, &info, nullptr, &device_), "vkCreateDevice") || !LoadFunctions(instance))
    return;
  GetDeviceQueue_(device_, family_, 0, &queue_);
  VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.queueFamilyIndex = family_;
  if (!Check(CreateCommandPool_(device_, &pool, nullptr, &pool_), "vkCreateCommandPool")) return;
  VkCommandBufferAllocateInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  commands.commandPool = pool_;
  commands.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  commands.commandBufferCount = 1;
  if (!Check(AllocateCommandBuffers_(device_, &commands, &commands_), "vkAllocateCommandBuffers")) return;
  VkFenceCreateInfo fence{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  Check(CreateFence_(device_, &fence, nullptr, &fence_), "vkCreateFence");
}

VulkanCompute::~VulkanCompute() {
  if (device_ == VK_NULL_HANDLE || DestroyDevice_ == nullptr) return;
  DeviceWaitIdle_(device_);
  for (auto p : pipelines_) DestroyPipeline_(device_, p, nullptr);
  for (auto l : layouts_) DestroyPipelineLayout_(device_, l, nullptr);
  for (auto d : descriptor_pools_) DestroyDescriptorPool_(device_, d, nullptr);
  for (auto s : set_layouts_) DestroyDescriptorSetLayout_(device_, s, nullptr);
  for (auto m : modules_) DestroyShaderModule_(device_, m, nullptr);
  for (const VulkanBuffer& b : buffers_) {
    DestroyBuffer_(device_, b.buffer, nullptr);
    FreeMemory_(device_, b.memory, nullptr);
  }
  DestroyFence_(device_, fence_, nullptr);
  DestroyCommandPool_(device_, pool_, nullptr);
  DestroyDevice_(device_, nullptr);
}

bool VulkanCompute::Check(VkResult result, const char* what) {
  if (result == VK_SUCCESS) return true;
  if (error_.empty()) error_ = fmt::format("{} failed ({})", what, int{result});
  return false;
}

bool VulkanCompute::LoadFunctions(const VulkanInstance& instance) {
  const auto get = instance.Get<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr");
#define RUMBO_X(name)                                                 \
  name##_ = reinterpret_cast<PFN_vk##name>(get(device_, "vk" #name)); \
  if (name##_ == nullptr && error_.empty()) error_ = "the driver lacks vk" #name;
  RUMBO_VK_DEVICE_FUNCTIONS(RUMBO_X)
#undef RUMBO_X
  return error_.empty();
}

VulkanBuffer VulkanCompute::MakeBuffer(Bytes bytes, bool host_visible) {
  VulkanBuffer out;
  if (!error_.empty()) return out;
  out.bytes = bytes;
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  if (!Check(CreateBuffer_(device_, &info, nullptr, &out.buffer), "vkCreateBuffer")) return out;
  VkMemoryRequirements need{};
  GetBufferMemoryRequirements_(device_, out.buffer, &need);
  const VkMemoryPropertyFlags want =
      host_visible ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                   : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  allocate.allocationSize = need.size;
  bool found = false;
  for (uint32_t i = 0; i < memory_.memoryTypeCount && !found; ++i) {
    found = (need.memoryTypeBits & (1u << i)) != 0 && (memory_.memoryTypes[i].propertyFlags & want) == want;
    if (found) allocate.memoryTypeIndex = i;
  }
  if (!found && error_.empty()) error_ = "no memory type fits";
  if (found && Check(AllocateMemory_(device_, &allocate, nullptr, &out.memory), "vkAllocateMemory")) {
    Check(BindBufferMemory_(device_, out.buffer, out.memory, 0), "vkBindBufferMemory");
  }
  buffers_.push_back(out);
  return out;
}

VulkanCompute::Kernel VulkanCompute::MakeKernel(const uint32_t* code, size_t words,
                                                const std::vector<VulkanBuffer>& buffers) {
  Kernel out;
  if (!error_.empty()) return out;
  VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = words * sizeof(uint32_t);
  module_info.pCode = code;
  VkShaderModule module = VK_NULL_HANDLE;
  if (!Check(CreateShaderModule_(device_, &module_info, nullptr, &module), "vkCreateShaderModule"))
    return out;
  modules_.push_back(module);

  std::vector<VkDescriptorSetLayoutBinding> bindings;
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    bindings.push_back({i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
  }
  VkDescriptorSetLayoutCreateInfo set_info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
  set_info.bindingCount = static_cast<uint32_t>(bindings.size());
  set_info.pBindings = bindings.data();
  VkDescriptorSetLayout set_layout = VK_NULL_HANDLE;
  if (!Check(CreateDescriptorSetLayout_(device_, &set_info, nullptr, &set_layout),
             "vkCreateDescriptorSetLayout"))
    return out;
  set_layouts_.push_back(set_layout);

  const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(uint32_t)};
  VkPipelineLayoutCreateInfo layout_info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  layout_info.setLayoutCount = 1;
  layout_info.pSetLayouts = &set_layout;
  layout_info.pushConstantRangeCount = 1;
  layout_info.pPushConstantRanges = &push;
  if (!Check(CreatePipelineLayout_(device_, &layout_info, nullptr, &out.layout), "vkCreatePipelineLayout"))
    return out;
  layouts_.push_back(out.layout);

  VkComputePipelineCreateInfo pipeline_info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  pipeline_info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                         nullptr,
                         0,
                         VK_SHADER_STAGE_COMPUTE_BIT,
                         module,
                         "main",
                         nullptr};
  pipeline_info.layout = out.layout;
  if (!Check(CreateComputePipelines_(device_, VK_NULL_HANDLE, 1, &pipeline_info, nullptr, &out.pipeline),
             "vkCreateComputePipelines"))
    return out;
  pipelines_.push_back(out.pipeline);

  const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, static_cast<uint32_t>(buffers.size())};
  VkDescriptorPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
  pool_info.maxSets = 1;
  pool_info.poolSizeCount = 1;
  pool_info.pPoolSizes = &size;
  VkDescriptorPool pool = VK_NULL_HANDLE;
  if (!Check(CreateDescriptorPool_(device_, &pool_info, nullptr, &pool), "vkCreateDescriptorPool"))
    return out;
  descriptor_pools_.push_back(pool);
  VkDescriptorSetAllocateInfo allocate{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
  allocate.descriptorPool = pool;
  allocate.descriptorSetCount = 1;
  allocate.pSetLayouts = &set_layout;
  if (!Check(AllocateDescriptorSets_(device_, &allocate, &out.set), "vkAllocateDescriptorSets")) return out;
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    const VkDescriptorBufferInfo buffer{buffers[i].buffer, 0, VK_WHOLE_SIZE};
    VkWriteDescriptorSet write{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
    write.dstSet = out.set;
    write.dstBinding = i;
    write.descriptorCount = 1;
    write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    write.pBufferInfo = &buffer;
    UpdateDescriptorSets_(device_, 1, &write, 0, nullptr);
  }
  return out;
}

void VulkanCompute::Begin() {
  if (!error_.empty()) return;
  Check(ResetCommandPool_(device_, pool_, 0), "vkResetCommandPool");
  VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  Check(BeginCommandBuffer_(commands_, &info), "vkBeginCommandBuffer");
}

std::optional<double> VulkanCompute::Submit() {
  if (!error_.empty() || !Check(EndCommandBuffer_(commands_), "vkEndCommandBuffer")) return std::nullopt;
  VkSubmitInfo submit{VK_STRUCTURE_TYPE_SUBMIT_INFO};
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &commands_;
  const auto start = std::chrono::steady_clock::now();
  if (!Check(QueueSubmit_(queue_, 1, &submit, fence_), "vkQueueSubmit")) return std::nullopt;
  if (!Check(WaitForFences_(device_, 1, &fence_, VK_TRUE, kWaitNanos), "vkWaitForFences"))
    return std::nullopt;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ResetFences_(device_, 1, &fence_);
  return seconds;
}

void VulkanCompute::Barrier() {
  VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER};
  barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                          VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_HOST_READ_BIT;
  CmdPipelineBarrier_(commands_, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                      VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0,
                      nullptr, 0, nullptr);
}

void VulkanCompute::Fill(const VulkanBuffer& buffer, float value) {
  Begin();
  if (!error_.empty()) return;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  CmdFillBuffer_(commands_, buffer.buffer, 0, VK_WHOLE_SIZE, bits);
  Barrier();
  Submit();
}

std::optional<double> VulkanCompute::Time(const Kernel& kernel, uint32_t parameter, uint32_t groups_x,
                                          uint32_t groups_y, int repeats) {
  Begin();
  if (!error_.empty()) return std::nullopt;
  CmdBindPipeline_(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
  CmdBindDescriptorSets_(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1, &kernel.set, 0,
                         nullptr);
  CmdPushConstants_(commands_, kernel.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof parameter, &parameter);
  for (int i = 0; i < repeats; ++i) {
    CmdDispatch_(commands_, groups_x, groups_y, 1);
    Barrier();
  }
  return Submit();
}

std::vector<float> VulkanCompute::Read(const VulkanBuffer& buffer, size_t offset, size_t count) {
  std::vector<float> out;
  const VulkanBuffer staging = MakeBuffer(count * sizeof(float), true);
  Begin();
  if (!error_.empty()) return out;
  const VkBufferCopy region{offset * sizeof(float), 0, count * sizeof(float)};
  CmdCopyBuffer_(commands_, buffer.buffer, staging.buffer, 1, &region);
  Barrier();
  if (!Submit()) return out;
  void* mapped = nullptr;
  if (!Check(MapMemory_(device_, staging.memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory")) return out;
  out.resize(count);
  std::memcpy(out.data(), mapped, count * sizeof(float));
  UnmapMemory_(device_, staging.memory);
  return out;
}

}  // namespace rumbo
