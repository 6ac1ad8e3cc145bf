#include "devices/vendors/vulkan_loader.h"

#include <fmt/format.h>

namespace rumbo {

VulkanInstance::VulkanInstance() : library_({"libvulkan.so.1"}) {
  if (!library_.ok()) {
    error_ = "the Vulkan loader cannot be loaded: " + library_.error();
  } else if (!library_.Load(get_, "vkGetInstanceProcAddr")) {
    error_ = "libvulkan.so.1 has no vkGetInstanceProcAddr";
  } else {
    Create();
  }
}

VulkanInstance::~VulkanInstance() {
  if (handle_ == VK_NULL_HANDLE) return;
  if (const auto destroy = Get<PFN_vkDestroyInstance>("vkDestroyInstance")) destroy(handle_, nullptr);
}

void VulkanInstance::Create() {
  const auto create = Get<PFN_vkCreateInstance>("vkCreateInstance");
  VkApplicationInfo app{VK_STRUCTURE_TYPE_APPLICATION_INFO};
  app.pApplicationName = "rumbo-probe";
  app.apiVersion = VK_API_VERSION_1_2;
  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &app;
  const VkResult result =
      create == nullptr ? VK_ERROR_INITIALIZATION_FAILED : create(&info, nullptr, &handle_);
  if (result != VK_SUCCESS) {
    handle_ = VK_NULL_HANDLE;
    error_ = result == VK_ERROR_INCOMPATIBLE_DRIVER
                 ? "no Vulkan driver is installed"
                 : fmt::format("vkCreateInstance failed ({})", int{result});
    return;
  }
  const auto list = Get<PFN_vkEnumeratePhysicalDevices>("vkEnumeratePhysicalDevices");
  uint32_t count = 0;
  if (list == nullptr || list(handle_, &count, nullptr) != VK_SUCCESS || count > 1024) {
    error_ = "vkEnumeratePhysicalDevices failed";
    return;
  }
  devices_.resize(count);
  if (list(handle_, &count, devices_.data()) < VK_SUCCESS) count = 0;
  devices_.resize(count);
}

}  // namespace rumbo
