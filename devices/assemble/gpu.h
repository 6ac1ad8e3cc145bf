#pragma once

#include <string>
#include <vector>

#include "devices/api/topology.h"
#include "devices/assemble/facts.h"
#include "devices/assemble/gpu_records.h"
#include "devices/chips/chips.h"

namespace rumbo {

// Every GPU, partition, MIG instance and software renderer with its pools, limits and backends.
// "pool-system" must be there already.
void AddGpus(const Facts& facts, const ChipTable& chips, Topology& topology);

// The steps, each in a file of its own. `device.id`, its identity and memory_kind are set before.

// Pools and limits. `parts` is how many partitions share the record's card (1: none).
void AddGpuMemory(const Facts& facts, const GpuRecord& record, int parts, Device& device, Topology& topology);

// present, accessible, usable, backends, reasons and remedies; findings about them.
void AddGpuAccess(const Facts& facts, const GpuRecord& record, Device& device, Topology& topology);

// What else the doctor says about a GPU.
void AddGpuFindings(const Facts& facts, const GpuRecord& record, const Device& device, Topology& topology);

// Instances of a MIG card, each a device with its own pool. True where there were some.
bool AddMigInstances(const GpuRecord& record, const Device& card, Topology& topology);

// Puts measurements of this device, made with the drivers that are here now, into `device`.
void SetMeasured(const Facts& facts, const VulkanDevice* vulkan, const HipDevice* hip, Device& device);

// llvmpipe and its kind.
void AddSoftwareRenderers(const Facts& facts, Topology& topology);

}  // namespace rumbo
