#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <string>
#include <vector>

#include "devices/vendors/library.h"
#include "devices/vendors/vendor_facts.h"

namespace rumbo {

// The Vulkan loader and one instance, opened at run time.
class VulkanInstance {
 public:
  VulkanInstance();
  ~VulkanInstance();
  VulkanInstance(const VulkanInstance&) = delete;
  VulkanInstance& operator=(const VulkanInstance&) = delete;

  const std::string& error() const { return error_; }  // "" usable
  const std::vector<VkPhysicalDevice>& devices() const { return devices_; }

  template <typename F>
  F Get(const char* name) const {
    return reinterpret_cast<F>(get_(handle_, name));
  }

 private:
  void Create();
  Library library_;
  PFN_vkGetInstanceProcAddr get_ = nullptr;
  VkInstance handle_ = VK_NULL_HANDLE;
  std::vector<VkPhysicalDevice> devices_;
  std::string error_;
};

// What the device of that index says about itself.
VulkanDevice ReadVulkanDevice(const VulkanInstance& instance, int index);

}  // namespace rumbo
