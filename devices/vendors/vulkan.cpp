#include <fmt/format.h>

#include <cstring>

#include "devices/vendors/vendors.h"
#include "devices/vendors/vulkan_loader.h"

namespace rumbo {
namespace {

const char* TypeWord(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return "integrated";
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return "discrete";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return "virtual";
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return "cpu";
    default:
      return "other";
  }
}

class DeviceReader {
 public:
  DeviceReader(const VulkanInstance& instance, VkPhysicalDevice device)
      : instance_(instance), device_(device) {}

  VulkanDevice Read(int index) {
    out_.index = index;
    ListExtensions();
    Properties();
    Features();
    Heaps();
    return std::move(out_);
  }

 private:
  bool Has(const char* name) const {
    for (const auto& e : extensions_) {
      if (std::strcmp(e.extensionName, name) == 0) return true;
    }
    return false;
  }

  void ListExtensions() {
    const auto list =
        instance_.Get<PFN_vkEnumerateDeviceExtensionProperties>("vkEnumerateDeviceExtensionProperties");
    uint32_t count = 0;
    if (list == nullptr || list(device_, nullptr, &count, nullptr) != VK_SUCCESS || count > 4096) return;
    extensions_.resize(count);
    if (list(device_, nullptr, &count, extensions_.data()) < VK_SUCCESS) count = 0;
    extensions_.resize(count);
    out_.bf16 = Has("VK_KHR_shader_bfloat16");
    out_.matrix = Has("VK_KHR_cooperative_matrix") || Has("VK_NV_cooperative_matrix");
  }

  void Properties() {
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
    VkPhysicalDeviceDriverProperties driver{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceSubgroupProperties subgroup{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
    VkPhysicalDeviceIDProperties id{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    const bool with_pci = Has(VK_EXT_PCI_BUS_INFO_EXTENSION_NAME);
    all.pNext = &id;
    id.pNext = &subgroup;
    subgroup.pNext = &driver;
    driver.pNext = with_pci ? &pci : nullptr;
    const auto get = instance_.Get<PFN_vkGetPhysicalDeviceProperties2>("vkGetPhysicalDeviceProperties2");
    if (get == nullptr) return;
    get(device_, &all);
    const VkPhysicalDeviceProperties& p = all.properties;
    out_.name = std::string(p.deviceName, strnlen(p.deviceName, sizeof p.deviceName));
    out_.type = TypeWord(p.deviceType);
    out_.vendor = p.vendorID;
    out_.device = p.deviceID;
    out_.api_version = fmt::format("{}.{}.{}", VK_API_VERSION_MAJOR(p.apiVersion),
                                   VK_API_VERSION_MINOR(p.apiVersion), VK_API_VERSION_PATCH(p.apiVersion));
    out_.driver = std::string(driver.driverName, strnlen(driver.driverName, sizeof driver.driverName));
    out_.driver_info = std::string(driver.driverInfo, strnlen(driver.driverInfo, sizeof driver.driverInfo));
    out_.subgroup = static_cast<int>(subgroup.subgroupSize);
    for (uint8_t byte : id.deviceUUID) out_.uuid += fmt::format("{:02x}", byte);
    if (with_pci) {
      out_.address =
          fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.pciDomain, pci.pciBus, pci.pciDevice, pci.pciFunction);
    }
  }

  void Features() {
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
    VkPhysicalDeviceShaderFloat16Int8Features half{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES};
    VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    all.pNext = &half;
    half.pNext = &dot;
    const auto get = instance_.Get<PFN_vkGetPhysicalDeviceFeatures2>("vkGetPhysicalDeviceFeatures2");
    if (get == nullptr) return;
    get(device_, &all);
    out_.fp16 = half.shaderFloat16 == VK_TRUE;
    out_.int8_dot = dot.shaderIntegerDotProduct == VK_TRUE;
  }

  void Heaps() {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    const bool with_budget = Has(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    all.pNext = with_budget ? &budget : nullptr;
    const auto get =
        instance_.Get<PFN_vkGetPhysicalDeviceMemoryProperties2>("vkGetPhysicalDeviceMemoryProperties2");
    if (get == nullptr) return;
    get(device_, &all);
    const auto& m = all.memoryProperties;
    for (uint32_t i = 0; i < m.memoryHeapCount && i < VK_MAX_MEMORY_HEAPS; ++i) {
      VulkanHeap heap;
      heap.size = m.memoryHeaps[i].size;
      heap.device_local = (m.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
      if (with_budget) heap.budget = budget.heapBudget[i], heap.usage = budget.heapUsage[i];
      out_.heaps.push_back(heap);
    }
  }

  const VulkanInstance& instance_;
  VkPhysicalDevice device_;
  std::vector<VkExtensionProperties> extensions_;
  VulkanDevice out_;
};

}  // namespace

VulkanDevice ReadVulkanDevice(const VulkanInstance& instance, int index) {
  return DeviceReader(instance, instance.devices()[index]).Read(index);
}

VulkanFacts AskVulkan() {
  VulkanFacts out;
  const VulkanInstance instance;
  out.error = instance.error();
  for (size_t i = 0; i < instance.devices().size(); ++i) {
    out.devices.push_back(ReadVulkanDevice(instance, static_cast<int>(i)));
  }
  return out;
}

}  // namespace rumbo
